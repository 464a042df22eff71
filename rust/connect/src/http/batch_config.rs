// SPDX-License-Identifier: Apache-2.0
//! How rows are put together into requests, as it is described.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

/// How rows are put together into requests, and taken apart again.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BatchConfig {
    /// Most rows of a request.
    pub(super) max_rows: usize,
    /// Most bytes of the items of a request, unless it is of one row.
    pub(super) max_bytes: Option<usize>,
    /// Seconds that a row waits for company at most.
    pub(super) linger: f64,
    /// Whether rows at fault are looked for where a request fails.
    pub(super) split_on_error: bool,
    /// Whether a text that is too long alone is halved until it is not.
    #[serde(default)]
    pub(super) halve_texts: bool,
    /// The JSON values of a row: one element of an array, or lines.
    pub(super) item: Vec<Box<RawValue>>,
    /// What stands around the array; none for lines.
    pub(super) around: Option<Box<RawValue>>,
    /// How an item of the reply names its row; by its position, if it does not.
    pub(super) id: Option<ItemId>,
    /// Path of the error in an item.
    pub(super) error: Option<String>,
    /// Path of the status in an item.
    pub(super) status: Option<String>,
    /// Errors that are worth another attempt.
    #[serde(default)]
    pub(super) retry: Vec<String>,
}

/// How an item of a reply names its row.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ItemId {
    /// Where the name is in the item.
    pub(super) path: String,
    /// The template of the name; `None`: it is the position in the request, from 0.
    pub(super) template: Option<String>,
}

impl BatchConfig {
    pub(super) fn linger(&self) -> Duration {
        Duration::try_from_secs_f64(self.linger).unwrap_or_default()
    }
}
