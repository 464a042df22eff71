// SPDX-License-Identifier: Apache-2.0
//! Rows that wait for a destination that has never answered.

use crate::rules::RULES;
use crate::trace::{Broken, Checked, Path};

use super::site::{Row, Site};

impl Site {
    /// A row is called for the first time, at `now`, that has waited for `holder`, the row of its key before
    /// it: it has not waited too long.
    ///
    /// Judged where the number of calls is their only bound, and nobody has said anything yet. The first call
    /// of all shows that a destination is not there when its time has passed. A row ages from then on, if it
    /// waited already: one that came behind it had been called for. The call of `holder` went on all the time, so
    /// the destination was asked.
    pub(super) fn check_patience(&self, holder: Option<&Row>, path: &Path, now: u64) -> Checked {
        let plan = &self.plan;
        let (Some(timeout), Some(most)) = (plan.timeout, plan.max_wait) else { return Ok(()) };
        let is_plain = !plan.has_policies() && plan.cache.is_none() && plan.pause.is_none();
        let is_silent = !self.is_answered && plan.attempt_timeout.is_none() && !self.is_branch;
        if !RULES.patience_ends || !is_plain || !is_silent {
            return Ok(());
        }
        let begun = |it: &Row| it.first_call.filter(|_| it.attempts == 1);
        let gone_at = self.rows.values().filter_map(begun).min().map(|it| it + timeout);
        let Some((gone_at, asked_since)) = gone_at.zip(holder.and_then(begun)) else {
            return Ok(());
        };
        let came_later = self.rows.values().filter(|it| it.row > path.row).filter_map(begun).min();
        let has_waited = came_later.is_some_and(|it| it < gone_at) && asked_since < gone_at;
        if has_waited && gone_at + most <= now {
            let what = format!(
                "row {} of operator {} is called at {now}, {most} behind {gone_at}",
                path.row, self.operator
            );
            return Err(Broken::new("a row waits for max_wait where nobody answers", what));
        }
        Ok(())
    }
}
