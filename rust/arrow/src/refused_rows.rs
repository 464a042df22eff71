// SPDX-License-Identifier: Apache-2.0
//! Rows of a batch that are not to be called.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;

/// Why a row is not to be called.
#[derive(Clone)]
pub struct RefusedRow {
    /// What is wrong; may quote what was raised.
    pub message: String,
    /// The same without any content of a row.
    pub summary: String,
    /// What was raised, if something was.
    pub raised: Option<Arc<dyn Error + Send + Sync>>,
}

impl RefusedRow {
    /// Describes what was not raised.
    pub fn new(message: String) -> Self {
        Self { summary: message.clone(), message, raised: None }
    }
}

// Shows nothing of the message and of what was raised, which may quote a value.
sparkawait_core::opaque_debug!(RefusedRow, summary: summary);

/// The rows of a batch that are not to be called, by their positions.
pub type RefusedRows = HashMap<u32, RefusedRow>;
