// SPDX-License-Identifier: Apache-2.0
//! When it happens: the tokio driver, the clock, dispatch, cancellation.
