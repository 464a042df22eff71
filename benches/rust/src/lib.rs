// SPDX-License-Identifier: Apache-2.0
//! Holds the benches of `benches/`; there is no library code.
