// SPDX-License-Identifier: Apache-2.0
//! Texts that nobody can guess.

use rand::TryRng;
use rand::rngs::SysRng;
use sparkawait_task::error::StartError;

/// Returns a text that no other task has.
///
/// From the system: what a process keeps of it, its forked children would repeat.
pub(super) fn random_text() -> Result<String, StartError> {
    let mut bytes = [0; 16];
    SysRng.try_fill_bytes(&mut bytes).map_err(|error| {
        StartError::option(format!("the system gives no random numbers: {error}"))
    })?;
    Ok(format!("{:032x}", u128::from_le_bytes(bytes)))
}
