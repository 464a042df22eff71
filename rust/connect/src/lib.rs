// SPDX-License-Identifier: Apache-2.0
//! Native async functions, and the servers that tests call.
