// SPDX-License-Identifier: Apache-2.0
//! Record batches to elements, and results back to record batches.
