// SPDX-License-Identifier: Apache-2.0
//! Records of many destinations; no destination may hold the others.
//!
//! Where there are channels, a call starts with a credit of its channel instead
//! of the next free permit. What waits for one does not take a slot of the
//! capacity but one of the backlog, so that a destination that stands still
//! keeps its own calls waiting and no others.

use super::AsyncWaitOperator;
use super::action::{AttemptId, Ended, Failure};
use super::in_flight::{InFlight, Phase, Run};
use crate::flow::{ChannelId, ChannelReport, ChannelTable, Next, Unserved};
use crate::policy::CallSign;
use crate::queue::{EntryId, Start, StreamElementQueue};
use crate::time::ProcessingTime;

impl<E: Clone, R, F> AsyncWaitOperator<E, R, F> {
    /// Returns how many records may be admitted: each takes a slot, or a place of the backlog.
    ///
    /// The backlog is for records of busy channels that come in while calls are
    /// left for others, as many as there are such calls. Once all are in flight,
    /// a record that waits takes a slot as it does without channels: it would only
    /// wait longer in a backlog.
    ///
    /// Calls that start while the queue is full may hold more slots than there
    /// are: they make room, in ordered mode they alone do.
    pub(super) fn slots_beside(&self, channels: &ChannelTable) -> usize {
        let (capacity, held) = (self.capacity, self.taken_slots());
        if channels.is_single() {
            return capacity.saturating_sub(held);
        }
        let unused = self.window.saturating_sub(self.running);
        let slots = capacity.saturating_sub(held - channels.sheltered());
        slots.min(capacity.saturating_sub(held).max(unused)).min(channels.free_backlog())
    }

    /// Returns whether records wait for credits of their channels in all places of the backlog.
    pub fn is_backlog_full(&self) -> bool {
        self.channels.as_ref().is_some_and(|channels| channels.free_backlog() == 0)
    }

    /// Starts the first attempt of a new record, or lets it wait for its key or for a credit of its
    /// channel.
    #[inline(never)]
    pub(super) fn make_ready_on(
        &mut self,
        channel: ChannelId,
        id: EntryId,
        start: Start,
        now: ProcessingTime,
    ) {
        if start == Start::Blocked {
            return self.block(id);
        }
        let Some(channels) = &mut self.channels else { return };
        if self.running < self.window && channels.try_start(channel, id, now) {
            return self.start(id, now);
        }
        channels.suspend(channel);
        self.wait_for_permit(id, now);
        // A channel that was held may go on by now: then those that wait are called, oldest first.
        self.start_waiting(now);
    }

    /// Starts what has a credit now, a record of one channel after the other.
    #[inline(never)]
    pub(super) fn start_ready(&mut self, now: ProcessingTime) {
        loop {
            // Each one that starts may be a probe, which others are not to wait for.
            self.fail_unserved(now);
            if self.running >= self.window {
                return;
            }
            let (queue, Some(channels)) = (&mut self.queue, &mut self.channels) else { return };
            let Next::Start(id) = channels.next_start(now) else {
                // One of them may have found that it will never start.
                if channels.has_unserved() && !self.is_closed {
                    continue;
                }
                return;
            };
            if let Some(in_flight) = queue.get_mut(id) {
                channels.resume(in_flight.channel);
            }
            self.start(id, now);
        }
    }

    /// Fails what waits for a destination that refuses, for too long for one that is not there, or for a
    /// budget that is spent.
    fn fail_unserved(&mut self, now: ProcessingTime) {
        while !self.is_closed
            && let (queue, Some(channels)) = (&mut self.queue, &mut self.channels)
            && channels.has_unserved()
        {
            let earlier = &self.earlier;
            let waits = |it: &mut InFlight<E>| it.waits_since();
            let mut waits = |id| queue.get_mut(id).and_then(waits);
            // One that is held has waited all the time, also while it was a probe.
            let since = |id| earlier.held_since(id).or_else(|| waits(id)).unwrap_or(now);
            let Some((id, why)) = channels.next_unserved(now, since) else { return };
            let Some(in_flight) = queue.get_mut(id) else { continue };
            channels.resume(in_flight.channel);
            match why {
                Unserved::Refused(rest) => self.refuse(id, Ended::Refused { rest }, now),
                Unserved::Spent(spent) => self.refuse(id, Ended::Spent(spent), now),
                Unserved::Unavailable { is_paused } => {
                    let held_since = self.earlier.held_since(id);
                    let since = held_since.or_else(|| in_flight.waits_since()).unwrap_or(now);
                    in_flight.phase = Phase::TimedOut;
                    let waited = now.saturating_since(since);
                    self.run_out(id, Ended::Unavailable { waited, is_paused }, now);
                }
            }
        }
    }

    /// Fails a record that is not called.
    fn refuse(&mut self, id: EntryId, why: Ended, now: ProcessingTime) {
        let last = self.earlier.forget(id);
        self.finish(id, Err(Failure::ended(why, last)), now);
    }

    /// Takes a record whose time has passed out of what runs in its channel, or rests there.
    pub(super) fn time_out_in_channel(
        &mut self,
        id: EntryId,
        run: Option<Run>,
        was_made: bool,
        now: ProcessingTime,
    ) {
        let (Some(in_flight), Some(channels)) = (self.queue.get_mut(id), &mut self.channels) else {
            return;
        };
        let channel = in_flight.channel;
        let Some(run) = run else { return channels.resume(channel) };
        let attempt = AttemptId { entry: id, attempt: in_flight.attempt };
        let (Run { since, has_begun, .. }, call) = (run, run.call_of(attempt).call());
        let took = now.nanos_since(since);
        if has_begun {
            // A call that got less than half of the time is not to blame: others had the rest.
            let is_late = took >= self.timeout_nanos - took.min(self.timeout_nanos);
            let sign = if is_late { CallSign::TimedOut } else { CallSign::CutOff };
            let number = self.earlier.try_of(attempt);
            channels.observe_attempt(channel, call, Some(number), (since, now), sign);
        } else {
            // It earns no retry. Once it was handed over its permits stay taken: that it has begun may
            // be in the mail.
            let sign = if was_made { CallSign::CutOff } else { CallSign::NotCalled };
            channels.note_answer(channel, sign, now);
            channels.observe_call(channel, call, (since, now), sign);
        }
        channels.finish_call(channel, took, now);
    }

    /// Returns the `count` channels that wait most, and a record of each that has one.
    ///
    /// `None` without channels, and where all records are of one.
    pub fn channel_report(
        &self,
        count: usize,
        now: ProcessingTime,
    ) -> Option<(ChannelReport, Vec<Option<E>>)> {
        let channels = self.channels.as_ref().filter(|it| !it.is_single())?;
        let mut report = channels.report(count, now);
        let mut samples = vec![None; report.top.len()];
        if self.is_closed {
            report.rest_in_flight = 0;
            report.top.iter_mut().for_each(|it| it.in_flight = 0);
            return Some((report, samples));
        }
        let mut missing = report.top.iter().filter(|it| it.records > 0).count();
        self.queue.any(|in_flight| {
            // The channel of a completed record may have been forgotten.
            if missing > 0 && in_flight.phase != Phase::Completed {
                let key = channels.key(in_flight.channel);
                let place = report.top.iter().position(|it| it.key == key);
                let sample = place.and_then(|it| samples.get_mut(it)).filter(|it| it.is_none());
                if let Some(sample) = sample {
                    *sample = Some(in_flight.record.value.clone());
                    missing -= 1;
                }
            }
            missing == 0
        });
        Some((report, samples))
    }
}

#[cfg(test)]
mod tests;
