// SPDX-License-Identifier: Apache-2.0
//! What tells the settings of one connection from those of another.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use serde::Serialize;
use sparkawait_task::error::StartError;

/// Two, so that nobody finds settings that have the key of others.
static HASHERS: LazyLock<[RandomState; 2]> =
    LazyLock::new(|| [RandomState::new(), RandomState::new()]);

/// Returns a text that only equal settings have in this process. It shows nothing of them.
pub(crate) fn key_of(settings: &impl Serialize) -> Result<String, StartError> {
    let text = serde_json::to_string(settings).map_err(|error| {
        StartError::option(format!("settings that cannot be compared: {error}"))
    })?;
    let [one, other] = &*HASHERS;
    Ok(format!("{:016x}{:016x}", one.hash_one(&text), other.hash_one(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_tells_settings_apart_and_shows_nothing() {
        let key = |password: &str| key_of(&("host", password)).unwrap();

        assert_eq!(key("hidden"), key("hidden"));
        assert_ne!(key("hidden"), key("other"));
        assert!(!key("hidden").contains("hidden"));
    }
}
