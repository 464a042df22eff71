// SPDX-License-Identifier: Apache-2.0
//! What the outage of a destination does to records that it has dropped, where a circuit breaker holds
//! them.
//!
//! An outage takes one try of a record, however many calls it takes: of attempts that were dropped one
//! after the other, while the destination has answered nothing at all, only the first counts.
//!
//! | drop of an attempt | what follows |
//! |---|---|
//! | the first, or the destination has answered since the last one | it takes a try of its record |
//! | it would take the last one, had the first ones counted | it opens the circuit breaker |
//! | the circuit breaker is open | no back-off: its record waits for a probe, behind those that wait |
//!
//! So a few records open it as surely as many do, and none ends because it was a probe. A record that its
//! destination drops for what is in it ends, too: each answer to another record lets its next drop
//! count. Where others have its key and wait for it, so that nobody else is called, it ends after a quarter
//! of `max_wait`: they are called before they have waited too long themselves. One that nobody waits for
//! ends after `max_wait`, as all do that wait for a destination that is down. Where nothing bounds that wait,
//! each drop takes a try: a record like this would never end otherwise.

use super::action::AttemptId;
use super::earlier_attempts::EarlierAttempts;
use super::{AsyncWaitOperator, Config};
use crate::flow::{ChannelId, ChannelTable};
use crate::policy::{CallSign, Watch};
use crate::queue::{EntryId, StreamElementQueue};
use crate::time::ProcessingTime;

impl<E: Clone, R, F> AsyncWaitOperator<E, R, F> {
    /// Returns what is known of a destination, if it holds records.
    pub(super) fn held_by(&self, channel: ChannelId) -> Option<Watch> {
        let channels = self.channels.as_ref().filter(|_| self.config.max_wait().is_some());
        channels.and_then(|it| it.watch(channel))
    }

    /// Returns whether another attempt may follow one that ended so in an outage, whatever tries are left:
    /// the destination has answered nothing since the one before was dropped. `None` without an outage.
    #[cold]
    pub(super) fn outlasts(
        &mut self,
        attempt: AttemptId,
        sign: CallSign,
        now: ProcessingTime,
    ) -> Option<bool> {
        let id = attempt.entry;
        let in_flight = self.queue.get_mut(id).filter(|_| sign.is_drop())?;
        let is_awaited = in_flight.attempt == attempt.first().attempt && in_flight.run().is_some();
        let channel = in_flight.channel;
        let channels = self.channels.as_mut().filter(|_| is_awaited)?;
        let watch = channels.watch(channel)?;
        if self.earlier.drops(id, watch.answers) == 0 {
            return None;
        }
        let held_alone = self.earlier.held_alone_since(id).map(|it| now.saturating_since(it));
        let bound = self.config.max_wait().map(|it| it / 4);
        let is_over = held_alone.zip(bound).is_some_and(|(held, bound)| held >= bound);
        Some(!(is_over && channels.doubt(channel)))
    }

    /// Lets a record wait for a probe of its destination if one comes, after an attempt that was
    /// [noted](note); returns whether it does.
    pub(super) fn hold(&mut self, id: EntryId, sign: CallSign, now: ProcessingTime) -> bool {
        let in_flight = self.queue.get_mut(id).filter(|_| sign.is_drop());
        let (Some(in_flight), Some(channels)) = (in_flight, &self.channels) else { return false };
        let watch = channels.watch(in_flight.channel).filter(|it| it.is_left_alone);
        let is_held = watch.is_some_and(|it| self.earlier.drops(id, it.answers) > 1);
        if is_held {
            self.earlier.hold(id, now);
        }
        is_held
    }
}

/// Notes how an attempt of a channel ended that another one follows, after the channel has learnt of it.
#[cold]
pub(super) fn note<F>(
    channels: &mut ChannelTable,
    earlier: &mut EarlierAttempts<F>,
    config: &Config,
    (channel, attempt): (ChannelId, AttemptId),
    sign: CallSign,
    now: ProcessingTime,
) {
    let Some(watch) = channels.watch(channel).filter(|_| sign != CallSign::Divided) else { return };
    if !sign.is_drop() {
        return earlier.end_outage(attempt.entry);
    }
    if config.max_wait().is_none() {
        return;
    }
    earlier.note_drop(attempt.entry, &watch);
    let is_last = config.retry.is_some_and(|it| !it.can_retry(earlier.failures(attempt)));
    if is_last && earlier.drops(attempt.entry, watch.answers) > 1 {
        channels.trip(channel, now);
    }
}
