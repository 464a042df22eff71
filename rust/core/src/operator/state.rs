// SPDX-License-Identifier: Apache-2.0
//! Taking and restoring a snapshot.

use std::time::Duration;

use super::in_flight::{InFlight, Phase};
use super::snapshot::{Replayed, Snapshot, SnapshotRecord, SnapshotState};
use super::{AsyncWaitOperator, AttemptId, Config, Outcome};
use crate::element::{Key, StreamElement, StreamRecord};
use crate::flow::ChannelId;
use crate::policy::Price;
use crate::queue::{Entry, EntryId, QueueFull, Start, StreamElementQueue};
use crate::time::ProcessingTime;

/// Taking a snapshot.
impl<E: Clone, R: Clone, F: Clone> AsyncWaitOperator<E, R, F> {
    /// Returns everything that was admitted and not emitted, without a change to it.
    pub fn snapshot(&self, now: ProcessingTime) -> Snapshot<E, R, F> {
        let held =
            self.queue.values().into_iter().map(|it| it.map(|entry| self.record_of(&entry, now)));
        let waiting =
            self.replay.iter().map(|it| it.as_ref().map(|replayed| replayed.record.clone()));
        held.chain(waiting).collect()
    }

    /// Copies a record of the queue.
    fn record_of(
        &self,
        entry: &Entry<'_, InFlight<E>, Outcome<R, F>>,
        now: ProcessingTime,
    ) -> SnapshotRecord<E, R, F> {
        let in_flight = entry.value;
        let state = match entry.result {
            Some(outcome) => SnapshotState::Completed(outcome.clone()),
            None => SnapshotState::Pending {
                // Nothing is left once the function is asked about it, also if no retry fits in the
                // rest.
                time_left: match in_flight.phase {
                    Phase::TimedOut => Some(Duration::ZERO),
                    _ => in_flight.time_left(now),
                },
                backoff_left: match in_flight.phase {
                    Phase::BackOff { until } => Some(until.saturating_since(now)),
                    _ => None,
                },
                was_running: in_flight.run().is_some(),
                last_failure: self.earlier.failure(entry.id).cloned(),
                uncounted: self.earlier.uncounted(entry.id, self.held_by(in_flight.channel)),
            },
        };
        SnapshotRecord {
            record: in_flight.record.clone(),
            attempts: in_flight.attempt,
            age: in_flight.age(now),
            state,
        }
    }
}

/// Going on with one.
impl<E: Clone, R, F> AsyncWaitOperator<E, R, F> {
    /// Makes an operator that holds what `snapshot` held.
    ///
    /// Its elements are admitted in order as slots are free, so a snapshot of a
    /// larger capacity fits; new records come behind them. `key_of` gives the
    /// key of a record in key-ordered mode.
    pub fn restore(
        config: Config,
        snapshot: Snapshot<E, R, F>,
        key_of: impl FnMut(&E) -> Option<Key>,
        now: ProcessingTime,
    ) -> Self {
        Self::restore_on(config, snapshot, |_| (None, Price::Usual), key_of, now)
    }

    /// Does as [`restore`](Self::restore); `place_of` gives the channel of a record, and its price.
    pub fn restore_on(
        config: Config,
        snapshot: Snapshot<E, R, F>,
        mut place_of: impl FnMut(&E) -> (Option<Key>, Price),
        mut key_of: impl FnMut(&E) -> Option<Key>,
        now: ProcessingTime,
    ) -> Self {
        let mut operator = Self::new(config);
        operator.answered_at = now;
        let elements = snapshot.into_iter().map(|element| {
            element.map(|record| {
                let value = &record.record.value;
                let (channel, price) = place_of(value);
                Replayed { key: key_of(value), channel, price, record }
            })
        });
        operator.replay = elements.collect();
        operator.replay(now);
        operator
    }

    /// Admits restored elements while slots are free.
    ///
    /// Call it after [`pop_output`](Self::pop_output) made room, until
    /// [`is_replaying`](Self::is_replaying) is false.
    pub fn replay(&mut self, now: ProcessingTime) {
        self.replay_until_full(now);
        self.start_waiting(now);
    }

    fn replay_until_full(&mut self, now: ProcessingTime) {
        while !self.is_closed
            && let Some(element) = self.replay.pop_front()
        {
            match element {
                StreamElement::Watermark(watermark) => self.queue.put_watermark(watermark),
                StreamElement::Record(replayed) => {
                    if let Some(refused) = self.replay_record(replayed, now) {
                        self.replay.push_front(StreamElement::Record(refused));
                        return;
                    }
                }
            }
        }
    }

    /// Admits a record whose outcome is known, as one that was restored when it was completed: it is
    /// not called, takes no permit, and leaves in the order of its mode.
    ///
    /// # Errors
    ///
    /// [`QueueFull`] gives the record back while `capacity` records are held, while restored records
    /// are replayed, and after a failure or close.
    #[inline(never)]
    pub fn process_completed(
        &mut self,
        record: StreamRecord<E>,
        (channel, key): (Option<Key>, Option<Key>),
        (outcome, attempts): (Outcome<R, F>, u32),
        now: ProcessingTime,
    ) -> Result<(), QueueFull<StreamRecord<E>>> {
        let capacity = self.config.capacity;
        if self.is_closed || self.is_replaying() {
            return Err(QueueFull { element: record, capacity });
        }
        let (age, state) = (Duration::ZERO, SnapshotState::Completed(outcome));
        let record = SnapshotRecord { record, attempts, age, state };
        match self.replay_record(Replayed { record, key, channel, price: Price::Usual }, now) {
            None => Ok(()),
            Some(refused) => Err(QueueFull { element: refused.record.record, capacity }),
        }
    }

    /// Returns whether restored elements wait for a slot.
    pub fn is_replaying(&self) -> bool {
        !self.replay.is_empty()
    }

    /// Admits one restored record, or returns it where there is no slot.
    fn replay_record(
        &mut self,
        replayed: Replayed<E, R, F>,
        now: ProcessingTime,
    ) -> Option<Replayed<E, R, F>> {
        if self.slots() == 0 {
            return Some(replayed);
        }
        let Replayed {
            record: SnapshotRecord { record, attempts, age, state },
            key,
            channel,
            price,
        } = replayed;
        let id = self.channels.as_mut().map(|channels| channels.admit(channel, false, now).0);
        let channel_id = id.unwrap_or(ChannelId(0));
        let in_flight = InFlight::restored(record, attempts, channel_id, age, now);
        let (id, start) = match self.queue.try_put_keyed(in_flight, key) {
            Ok(admitted) => admitted,
            Err(full) => {
                let record = self.turn_away(full.element, false).element;
                let record = SnapshotRecord { record, attempts, age, state };
                return Some(Replayed { record, key, channel, price });
            }
        };
        self.metrics.admitted += 1;
        match state {
            SnapshotState::Completed(outcome) => self.finish(id, outcome, now),
            SnapshotState::Pending {
                time_left,
                backoff_left,
                was_running,
                last_failure,
                uncounted,
            } => {
                let watch = self.held_by(channel_id);
                self.earlier.restore(id, last_failure, uncounted, watch);
                self.note_price(id, price, None);
                // Until it is known better, and so that its channel counts it as waiting.
                self.block(id);
                // What was running is run again under the same number.
                let attempt = attempts.saturating_sub(u32::from(was_running));
                self.resume(AttemptId { entry: id, attempt }, time_left, now);
                match (start, backoff_left) {
                    _ if self.is_timed_out(id, now) => self.end_untimely(id, now),
                    (Start::Blocked, _) => self.block(id),
                    (Start::Now, Some(rest)) if !self.is_draining() => {
                        self.back_off_until(AttemptId { entry: id, attempt }, now + rest);
                    }
                    // It starts when all are restored; in a channel it is counted as waiting already.
                    (Start::Now, _) => self.wait_for_permit(id, now),
                }
            }
        }
        None
    }

    /// Restores the attempt number of a pending record and what is left of its timeout.
    fn resume(&mut self, attempt: AttemptId, time_left: Option<Duration>, now: ProcessingTime) {
        let Some(in_flight) = self.queue.get_mut(attempt.entry) else { return };
        in_flight.attempt = attempt.attempt;
        // A record that had timed out has no time, whatever the timeout is now.
        let spent = time_left.filter(Duration::is_zero);
        // One that was never called has all of its time from its first call on.
        let is_new = attempt.attempt == 0 && time_left.is_none();
        let timeout = self.config.timeout.filter(|_| !is_new);
        let of_timeout = timeout.map(|it| time_left.unwrap_or(it).min(it));
        let Some(left) = spent.or(of_timeout) else { return };
        in_flight.deadline = now + left;
        if !left.is_zero() {
            self.timers.records.push(in_flight.deadline, attempt.entry);
        }
    }

    /// Returns whether no time was left: the record must not be called again.
    fn is_timed_out(&mut self, id: EntryId, now: ProcessingTime) -> bool {
        self.queue.get_mut(id).is_some_and(|it| it.deadline <= now)
    }
}
