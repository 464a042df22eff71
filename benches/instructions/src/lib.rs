// SPDX-License-Identifier: Apache-2.0
//! Holds the bench of `benches/core.rs`; there is no library code.
