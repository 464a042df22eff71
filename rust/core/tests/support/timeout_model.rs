// SPDX-License-Identifier: Apache-2.0
//! What time does in the model of the operator.

use sparkawait_core::operator::{Ended, Failure, Retry};
use sparkawait_core::policy::CallSign;
use sparkawait_core::time::ProcessingTime;

use super::held_model::{Held, State};
use super::operator_model::Model;

impl Model {
    pub(super) fn arm(&mut self, value: u32, deadline: Option<ProcessingTime>) {
        self.armed += 1;
        let number = self.armed;
        let held = self.get(value);
        (held.deadline, held.armed) = (deadline, number);
    }

    pub(crate) fn handle_time(&mut self) {
        let (now, attempt_timeout) = (self.now, self.config.attempt_timeout);
        self.handled_at = now;
        for value in self.are_due(|held| Some((held.deadline?, held.armed))) {
            self.time_out(value);
        }
        for value in self.are_due(|held| held.attempt_deadline(attempt_timeout)) {
            self.time_out_attempt(value);
        }
        self.end_back_offs(now);
        self.hand_out_tokens();
    }

    /// The records whose time has come, in the order of `time`.
    fn are_due(&self, time: impl Fn(&Held) -> Option<(ProcessingTime, usize)>) -> Vec<u32> {
        let live = self.held().filter(|it| it.ages() && !self.is_closed);
        let due = live.filter_map(|held| Some((time(held)?, held.value)));
        let mut due: Vec<_> = due.filter(|((time, _), _)| *time <= self.now).collect();
        due.sort_by_key(|(time, _)| *time);
        due.into_iter().map(|(_, value)| value).collect()
    }

    pub(super) fn time_out(&mut self, value: u32) {
        if self.is_closed {
            return;
        }
        let (now, timeout) = (self.now, self.config.timeout.unwrap_or_default());
        let deadline = self.get(value).deadline.unwrap_or_default().as_nanos();
        let timeout_nanos = u64::try_from(timeout.as_nanos()).unwrap();
        self.note_silence(ProcessingTime::from_nanos(deadline.saturating_sub(timeout_nanos)));
        self.tell_end(value, false, |held| match held.state {
            // A call that got less than half of the time is not to blame.
            State::Running { since, .. } if 2 * now.saturating_since(since) < timeout => {
                CallSign::CutOff
            }
            _ => CallSign::TimedOut,
        });
        self.cancel(value);
        self.run_out(value, Ended::TimedOut);
    }

    fn time_out_attempt(&mut self, value: u32) {
        if self.is_closed || !self.get(value).is_running() {
            return;
        }
        if let State::Running { since, .. } = self.get(value).state {
            self.note_silence(since);
        }
        self.begin_budget(value, Retry::IfRepeatable, CallSign::TimedOut);
        self.doubt(value, Retry::IfRepeatable, CallSign::TimedOut);
        self.tell_end(value, false, |_| CallSign::TimedOut);
        self.cancel(value);
        if !self.back_off(value, Retry::IfRepeatable, CallSign::TimedOut, None) {
            self.metrics.timeouts += 1;
            let last = self.get(value).last_failure;
            self.finish(value, Err(Failure::ended(Ended::AttemptTimedOut, last)));
        }
    }
}
