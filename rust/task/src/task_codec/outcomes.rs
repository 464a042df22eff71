// SPDX-License-Identifier: Apache-2.0
//! What calls came to, handed to the operator, which says what of it is kept.

use sparkawait_arrow::ResultRows;
use sparkawait_core::operator::{AttemptId, Completion, Handled, Retry};
use sparkawait_core::policy::CallSign;

use super::TaskCodec;
use crate::error::{CallFailure, TaskError};
use crate::function::{ReplyGroup, ResultGroup};

impl TaskCodec {
    /// Hands the outcomes of some calls to the operator.
    pub(super) fn accept_outcomes(
        &mut self,
        reply: ReplyGroup,
        mut complete: impl FnMut(AttemptId, Completion<ResultRows, Box<CallFailure>>) -> Handled,
    ) -> Result<(), TaskError> {
        if let Some(group) = reply.results {
            self.accept_results(group, &mut complete)?;
        }
        // Only the failure of a task shows what was raised, and its traceback may hold much.
        let keeps_causes = self.config.keeps_causes;
        for mut failed in reply.failures {
            self.first_misses.end();
            if !keeps_causes {
                failed.failure.raised = None;
            }
            failed.failure.shorten();
            if failed.retry == Retry::IfRepeatable
                && let Some(why) = &self.config.not_repeated
            {
                failed.failure.add(why);
            }
            let bytes = failed.failure.bytes();
            let completion = Completion::failed(failed.failure, failed.retry, failed.sign);
            if is_kept(complete(failed.attempt, completion)) {
                self.failure_bytes += bytes;
            }
        }
        Ok(())
    }

    /// Hands the results of some calls to the operator.
    fn accept_results(
        &mut self,
        group: ResultGroup,
        complete: &mut impl FnMut(AttemptId, Completion<ResultRows, Box<CallFailure>>) -> Handled,
    ) -> Result<(), TaskError> {
        group.check()?;
        self.note_misses(&group);
        let (is_one_each, is_branch) = (group.is_one_each(), self.config.is_branch);
        let ResultGroup { attempts, counts, retries, known, rows, .. } = group;
        let mut rest = self.rows.accept_results(rows)?;
        if let Some(journal) = self.journal.as_mut().filter(|_| !rest.is_empty()) {
            journal.begin_chunk(self.rows.chunks().chunk(rest.chunk));
        }
        if is_one_each {
            // Nothing more is looked at for each call: this is the usual case.
            for attempt in attempts {
                let results = rest.split_front(1);
                let good =
                    Completion { outcome: Ok(results), retry: Retry::No, sign: CallSign::Good };
                self.keep(attempt, results, complete(attempt, good));
            }
            return Ok(());
        }
        for (index, attempt) in attempts.into_iter().enumerate() {
            let asks_for_retry = retries.as_ref().is_some_and(|retries| retries[index]);
            let retry = if asks_for_retry { Retry::Yes } else { Retry::No };
            let count = counts.as_ref().map_or(1, |counts| counts[index]);
            let (results, sign) = (rest.split_front(count), known.sign(index));
            if count > 1 && is_branch {
                self.rows.discard(results);
                self.fail_several(attempt, count, sign, complete);
            } else {
                let completion = Completion { outcome: Ok(results), retry, sign };
                self.keep(attempt, results, complete(attempt, completion));
            }
        }
        Ok(())
    }

    /// Holds results until they are emitted, or lets go of those that nobody waits for.
    #[inline]
    fn keep(&mut self, attempt: AttemptId, results: ResultRows, handled: Handled) {
        if !is_kept(handled) {
            self.rows.discard(results);
        } else if self.journal.is_some() {
            self.keep_in_journal(attempt, results, handled);
        }
    }

    #[inline(never)]
    fn keep_in_journal(&mut self, attempt: AttemptId, results: ResultRows, handled: Handled) {
        if let Some(journal) = &mut self.journal {
            journal.keep(attempt, results, handled);
        }
    }

    /// Fails a call beside others that has more than one result.
    fn fail_several(
        &mut self,
        attempt: AttemptId,
        count: u32,
        sign: CallSign,
        complete: &mut impl FnMut(AttemptId, Completion<ResultRows, Box<CallFailure>>) -> Handled,
    ) {
        let several = Box::new(CallFailure::several(count));
        let bytes = several.bytes();
        if is_kept(complete(attempt, Completion::failed(several, Retry::No, sign))) {
            self.failure_bytes += bytes;
        }
    }
}

/// Returns whether what a call brought waits to be emitted.
const fn is_kept(handled: Handled) -> bool {
    matches!(handled, Handled::Final(_) | Handled::TimeoutAnswered)
}
