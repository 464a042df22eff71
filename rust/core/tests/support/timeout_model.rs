// SPDX-License-Identifier: Apache-2.0
//! What time does in the model of the operator.

use sparkawait_core::operator::{Failure, Retry};
use sparkawait_core::policy::CallSign;
use sparkawait_core::time::ProcessingTime;

use super::held_model::{Held, State};
use super::operator_model::Model;

impl Model {
    pub(super) fn arm(&mut self, value: u32, deadline: Option<ProcessingTime>) {
        self.armed += 1;
        let number = self.armed;
        self.get(value).armed = deadline.map(|it| (it, number));
    }

    pub(crate) fn handle_time(&mut self) {
        let (now, attempt_timeout) = (self.now, self.config.attempt_timeout);
        self.handled_at = now;
        while let Some((armed, value)) = self.first_armed() {
            let due = self.due(self.get_ref(value));
            if due > Some(armed) {
                self.arm(value, self.over(self.get_ref(value)));
            } else {
                self.time_out(value);
            }
        }
        self.check_that_none_is_late();
        for value in self.are_due(|held| held.attempt_deadline(attempt_timeout)) {
            self.time_out_attempt(value);
        }
        self.end_back_offs(now);
        self.hand_out_tokens();
    }

    /// What is looked at later has its time then.
    fn check_that_none_is_late(&self) {
        let mut live = self.held().filter(|it| it.has_deadline() && !self.is_closed);
        let late = live.find(|it| self.due(it).is_some_and(|due| due <= self.now));
        assert!(late.is_none(), "its time is over, and it is there: {late:?}");
    }

    /// The record whose deadline is looked at first, if that is by now.
    fn first_armed(&self) -> Option<(ProcessingTime, u32)> {
        let live = self.held().filter(|it| it.has_deadline() && !self.is_closed);
        let armed = live.filter_map(|held| Some((held.armed?, held.value)));
        let first = armed.min_by_key(|(armed, _)| *armed);
        first.filter(|((at, _), _)| *at <= self.now).map(|((at, _), value)| (at, value))
    }

    /// The records whose time has come, in the order of `time`.
    fn are_due(&self, time: impl Fn(&Held) -> Option<(ProcessingTime, usize)>) -> Vec<u32> {
        let live = self.held().filter(|it| it.has_deadline() && !self.is_closed);
        let due = live.filter_map(|held| Some((time(held)?, held.value)));
        let mut due: Vec<_> = due.filter(|((time, _), _)| *time <= self.now).collect();
        due.sort_by_key(|(time, _)| *time);
        due.into_iter().map(|(_, value)| value).collect()
    }

    fn time_out(&mut self, value: u32) {
        if self.is_closed {
            return;
        }
        let now = self.now;
        self.tell_end(value, |held| match held.state {
            // A call that got less of the time than the wait for it is not to blame.
            State::Running { since, .. }
                if now.saturating_since(since) < since.saturating_since(held.admitted_at) =>
            {
                CallSign::CutOff
            }
            _ => CallSign::TimedOut,
        });
        self.note_if_running(value);
        self.cancel(value);
        self.run_out(value, None);
    }

    fn time_out_attempt(&mut self, value: u32) {
        if self.is_closed || !self.get(value).is_running() {
            return;
        }
        let attempt = self.get(value).attempt();
        self.begin_budget(attempt, Retry::IfRepeatable, CallSign::TimedOut);
        self.tell_end(value, |_| CallSign::TimedOut);
        self.note_if_running(value);
        self.cancel(value);
        if !self.back_off(value, Retry::IfRepeatable, CallSign::TimedOut, None) {
            self.metrics.timeouts += 1;
            let last = self.get(value).last_failure;
            self.finish(value, Err(Failure::AttemptTimedOut(last)));
        }
    }

    fn note_if_running(&mut self, value: u32) {
        if let State::Running { since, .. } = self.get(value).state {
            self.note_expired(value, self.now.saturating_since(since));
        }
    }
}
