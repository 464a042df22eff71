// SPDX-License-Identifier: Apache-2.0
//! What nobody can guess.

use std::io;

use rand::TryRng as _;
use rand::rngs::SysRng;

/// Returns bytes from the system: forked processes share the state of any other source.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    SysRng.try_fill_bytes(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}
