// SPDX-License-Identifier: Apache-2.0
//! The extension module sparkawait._core: translates, decides nothing.
