// SPDX-License-Identifier: Apache-2.0
//! What the model of the operator saves and is restored from.

use std::time::Duration;

use sparkawait_core::element::StreamElement;
use sparkawait_core::operator::{Config, Ended, Snapshot, SnapshotRecord, SnapshotState};
use sparkawait_core::time::ProcessingTime;

use super::held_model::{Held, Reply, State};
use super::operator_model::Model;

impl Model {
    pub(crate) fn snapshot(&self) -> Snapshot<u32, Reply, Reply> {
        let save = |it: &Held| it.snapshot(self.saved_uncounted(it.value), self.now);
        let held = self.line.iter().map(|element| element.as_ref().map(save));
        held.chain(self.replay.iter().cloned()).collect()
    }

    pub(crate) fn restore(
        config: Config,
        snapshot: Snapshot<u32, Reply, Reply>,
        now: ProcessingTime,
    ) -> Self {
        let mut model = Self::new(config, now);
        model.replied_at.insert(None, now);
        model.replay = snapshot.into();
        model.admit_replayed();
        model
    }

    /// Admits restored elements while slots are free.
    pub(crate) fn admit_replayed(&mut self) {
        while !self.is_closed {
            let is_full = self.slots() == 0;
            if is_full && matches!(self.replay.front(), Some(StreamElement::Record(_))) {
                return;
            }
            match self.replay.pop_front() {
                None => return,
                Some(StreamElement::Record(restored)) => self.admit(&restored),
                Some(StreamElement::Watermark(watermark)) => self.append_watermark(watermark),
            }
        }
        self.withdraws_calls = true;
    }

    fn admit(&mut self, restored: &SnapshotRecord<u32, Reply, Reply>) {
        let value = restored.record.value;
        self.metrics.admitted += 1;
        self.push(value, restored.attempts, restored.age);
        let (time_left, backoff_left, was_running) = match restored.state.clone() {
            SnapshotState::Completed(outcome) => return self.finish(value, outcome),
            SnapshotState::Pending {
                time_left,
                backoff_left,
                was_running,
                last_failure,
                uncounted,
            } => {
                self.get(value).last_failure = last_failure;
                self.restore_uncounted(value, uncounted);
                (time_left, backoff_left, was_running)
            }
        };
        let (now, timeout) = (self.now, self.config.timeout);
        let is_free = !self.is_blocked(value) && !self.is_draining();
        let held = self.get(value);
        held.attempts -= u32::from(was_running);
        let spent = time_left.filter(Duration::is_zero);
        let is_new = held.attempts == 0 && time_left.is_none();
        let timeout = timeout.filter(|_| !is_new);
        let left = timeout.map(|timeout| time_left.unwrap_or(timeout).min(timeout));
        let deadline = spent.or(left).map(|left| now + left);
        self.arm(value, deadline);
        let held = self.get(value);
        if held.deadline.is_some_and(|deadline| deadline <= now) {
            self.run_out(value, Ended::TimedOut);
        } else if let Some(rest) = backoff_left.filter(|_| is_free) {
            held.state = State::BackOff { due: now + rest, lacks_token: false };
        }
    }
}
