// SPDX-License-Identifier: Apache-2.0
//! Settings of connections: what tells those of one from those of another, and times.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::time::Duration;

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

/// Reads a time.
pub(crate) fn seconds(value: f64, option: &str) -> Result<Duration, StartError> {
    let time = Duration::try_from_secs_f64(value).ok().filter(|it| !it.is_zero());
    let wrong = || format!("`{option}` must be a positive number of seconds, got {value}");
    time.ok_or_else(|| StartError::option(wrong()))
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

    #[test]
    fn a_time_is_positive_and_has_an_end() {
        assert_eq!(seconds(0.007, "linger").unwrap(), Duration::from_millis(7));
        for wrong in [0.0, -7.0, f64::NAN, f64::INFINITY, 1e300] {
            let message = seconds(wrong, "linger").unwrap_err().message;
            assert!(message.starts_with("`linger` must be a positive number of seconds, got "));
        }
    }
}
