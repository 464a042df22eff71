// SPDX-License-Identifier: Apache-2.0
//! What stands between the operator and the function: a stack of layers.
//!
//! ```text
//!   operator --calls--> layer --calls--> layer --calls--> function
//!      ^                 |  ^             |  ^               |
//!      +---- replies ----+  +-- replies --+  +-- conformed --+
//! ```
//!
//! A layer may answer a call itself, make others of it, or look on. It stands on the side of the
//! calls, so what it does changes neither the order of the rows nor what is held for them. It
//! costs one call through a pointer per burst each way, and nothing where there is none.
//!
//! Results are brought to the schema of the task before the first layer sees them: all layers,
//! and those of other tasks that get them from one, see columns of exactly these types. Without a
//! layer the task thread does that, as it accepts a reply: there a cast holds up neither a
//! function's own thread nor Python, whose lock that thread may have.

pub mod cache;
mod conform;

use std::fmt;
use std::sync::Arc;

use sparkawait_core::operator::Begins;

use crate::error::TaskError;
use crate::function::{Replies, TaskFunction, Wants};
use crate::row_config::RowConfig;
use conform::ConformingSink;

/// Makes a function that sends its replies there.
pub type MakeFunction<'a> = Box<dyn FnOnce(Replies) -> Result<TaskFunction, TaskError> + 'a>;

/// What a layer stands in front of: a function, or another layer.
pub struct Inner<'a> {
    /// Makes it.
    pub make: MakeFunction<'a>,
    /// When its calls begin. A layer that makes all of them as it gets them says nothing of it.
    pub begins: Begins,
}

sparkawait_core::opaque_debug!(Inner<'_>, begins: begins);

/// What a task is told of one of its layers.
pub trait Layer: fmt::Debug + Send + Sync {
    /// Puts the layer in front of `inner`.
    ///
    /// What is returned gets the calls of the operator, or of the layer above. `replies` leads
    /// there, too; `inner` is given the sink that takes the replies of the function. `rows` says
    /// what the rows of the task look like.
    ///
    /// # Errors
    ///
    /// What the layer is told does not fit the rows, or whatever `inner` fails with.
    fn wrap(
        &self,
        inner: Inner<'_>,
        replies: Replies,
        rows: &RowConfig,
    ) -> Result<TaskFunction, TaskError>;

    /// Returns when the calls of the layer begin, if those of what it stands in front of begin so. A
    /// layer that answers some calls itself [says](Replies::started) which of them it makes.
    fn begins(&self, inner: Begins) -> Begins {
        inner
    }
}

/// Makes the function that the operator calls: the first of the layers, if there is one.
///
/// # Errors
///
/// Whatever a layer or `function` fails with.
pub(crate) fn stack<'a>(
    layers: &'a [Arc<dyn Layer>],
    function: Inner<'a>,
    replies: Replies,
    rows: &'a RowConfig,
) -> Result<TaskFunction, TaskError> {
    let Inner { make, begins } = function;
    if layers.is_empty() {
        return make(replies);
    }
    let results = &rows.results;
    let wants = Wants { begins, ..replies.wants() };
    let conformed: MakeFunction<'a> = Box::new(move |replies| {
        let sink = ConformingSink::new(results, replies.wanting(wants));
        make(Replies::to(sink).wanting(wants))
    });
    let conformed = Inner { make: conformed, begins };
    let stacked = layers.iter().rev().fold(conformed, |inner, layer| {
        let begins = layer.begins(inner.begins);
        let wants = Wants { begins, ..wants };
        let make = move |replies: Replies| layer.wrap(inner, replies.wanting(wants), rows);
        Inner { make: Box::new(make), begins }
    });
    (stacked.make)(replies)
}
