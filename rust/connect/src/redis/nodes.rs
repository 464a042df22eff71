// SPDX-License-Identifier: Apache-2.0
//! The node of a cluster as the channel of a row.
//!
//! Its number is the channel, so that the sender of the row finds the node in it. A row keeps the
//! channel that it had when its batch came, wherever redirections send it.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use sparkawait_arrow::Keys;
use sparkawait_core::Key;
use sparkawait_task::channel_finder::ChannelFinder;
use sparkawait_task::error::{StartError, TaskError};

use crate::template::{BoundTemplate, Escape, Template};

use super::router::Router;
use super::routes::{channel_of, node_of};
use super::slots::slot_of;

/// Finds the node that has the key of each row.
pub(super) struct Nodes {
    router: Arc<Router>,
    /// The key, or several; the first without a null counts.
    keys: Vec<BoundTemplate>,
}

impl Nodes {
    /// Binds what follows the name in a command; `options` says what each was given for.
    ///
    /// The key is the first of it, or, where keys may be asked for apart, any.
    pub(super) fn new(
        router: Arc<Router>,
        arguments: &[String],
        options: &[String],
        input: &Schema,
        is_split: bool,
    ) -> Result<Self, StartError> {
        let keys = arguments.iter().zip(options).skip(1);
        let keys = keys.take(if is_split { arguments.len() } else { 1 });
        let bind = |(text, option): (&String, &String)| Template::parse(text, option)?.bind(input);
        Ok(Self { router, keys: keys.map(bind).collect::<Result<_, _>>()? })
    }
}

impl ChannelFinder for Nodes {
    fn find(&self, batch: &RecordBatch) -> Result<Keys, TaskError> {
        let keys = self.keys.iter().map(|it| it.rows(batch)).collect::<Result<Vec<_>, _>>();
        let keys = keys.map_err(|error| TaskError::Internal(error.message))?;
        let (routes, mut text) = (self.router.routes(), Vec::new());
        let channel = |row: usize| {
            text.clear();
            let mut written = keys.iter().map(|key| key.write(row, Escape::None, &mut text));
            let slot = written.any(|it| it).then(|| slot_of(&text));
            // A command without a key is carried out by any node.
            (slot.is_some() || keys.is_empty()).then(|| channel_of(routes.destination(slot, row)))
        };
        Ok((0..batch.num_rows()).map(channel).collect())
    }

    fn name(&self, channel: Key) -> Option<String> {
        self.router.address(node_of(channel)?)
    }
}

sparkawait_core::opaque_debug!(Nodes, keys: keys.len());
