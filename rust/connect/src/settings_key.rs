// SPDX-License-Identifier: Apache-2.0
//! What tells the settings of one connection from those of another.

use serde::Serialize;
use sparkawait_task::error::StartError;

/// Returns a text that only equal settings have. It shows their secrets.
pub(crate) fn key_of(settings: &impl Serialize) -> Result<String, StartError> {
    serde_json::to_string(settings)
        .map_err(|error| StartError::option(format!("settings that cannot be compared: {error}")))
}
