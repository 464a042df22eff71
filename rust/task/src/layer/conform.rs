// SPDX-License-Identifier: Apache-2.0
//! Results brought to the schema of their task, before any layer sees them.

use std::sync::{Mutex, PoisonError};

use arrow::datatypes::SchemaRef;
use sparkawait_arrow::Side;
use sparkawait_arrow::conform::Conform;
use sparkawait_core::operator::AttemptId;

use crate::error::TaskError;
use crate::function::{Replies, ReplyGroup, ReplySink, ResultGroup};

/// Takes the replies of a function, and fails its task where results do not fit.
#[derive(Debug)]
pub(super) struct ConformingSink {
    /// Locked once per burst, by the thread that sends it.
    conform: Mutex<Conform>,
    above: Replies,
}

impl ConformingSink {
    /// Makes the sink of results that are to have the schema `results`.
    pub(super) fn new(results: &SchemaRef, above: Replies) -> Self {
        let conform = Conform::new(Side::Result, SchemaRef::clone(results));
        Self { conform: Mutex::new(conform), above }
    }

    fn conform(&self, results: ResultGroup) -> Result<ResultGroup, TaskError> {
        results.check()?;
        let mut conform = self.conform.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = conform.conform(results.rows)?;
        Ok(ResultGroup { rows, ..results })
    }
}

impl ReplySink for ConformingSink {
    fn send(&self, group: ReplyGroup) -> bool {
        let ReplyGroup { results, .. } = group;
        match results.map(|it| self.conform(it)).transpose() {
            Ok(results) => self.above.send(ReplyGroup { results, ..group }),
            Err(error) => self.above.fail(error),
        }
    }

    fn started(&self, attempts: Vec<AttemptId>) -> bool {
        self.above.started(&attempts)
    }

    fn fail(&self, error: TaskError) -> bool {
        self.above.fail(error)
    }
}
