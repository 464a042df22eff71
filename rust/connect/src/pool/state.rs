// SPDX-License-Identifier: Apache-2.0
//! What is kept of a server, what is under way, and what a call does.

use std::collections::VecDeque;
use std::time::Duration;

use sparkawait_task::supervision::Backoff;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::connection::{Age, Condition, Connection, Dial, Kept, Lease, Wish};
use super::idleness::Idleness;
use crate::dial::HIGHEST_AGE;

/// How long calls wait for connections that others have begun, which take two or three round trips.
pub(super) const PATIENCE: Duration = Duration::from_millis(250);

/// How long calls wait for another connection to a server that takes no request over the one that there
/// is; twice as long for each further one.
const NO_ROOM_PAUSE: Duration = Duration::from_secs(1);

/// How often they look whether it takes one.
const NO_ROOM_LOOK: Duration = Duration::from_millis(50);

/// Most connections that are made at a time because those before stalled or failed, beyond those that are
/// needed.
const WIDEST: usize = 64;

/// Most connections that are made on for calls which have given up.
pub(super) const MOST_LEFT: usize = WIDEST;

/// Connections that are made one after the other and do not come to their end together.
const AGES: u32 = 16;

/// A call that needs a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// It has just come.
    New,
    /// It waits since then for what others have begun.
    Waits(Instant),
    /// It has had one made, and waits.
    HasDialled,
}

/// What a call does that needs a connection.
pub(super) enum Next<D: Dial> {
    Take(Lease<D::Connection>),
    Fail(D::Failure),
    /// It has one made, and waits.
    Dial,
    /// It looks again on news, or then.
    Wait(Option<Instant>),
}

/// A connection that is being made. It is no longer made when this is dropped.
struct Dialling {
    number: u64,
    begun: Instant,
    /// It takes so long that others are tried beside it.
    is_stalled: bool,
    task: AbortHandle,
}

impl Drop for Dialling {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What is known and kept of a server.
pub(super) struct State<D: Dial> {
    /// Those that calls share, and those that no call has; what served last is at the end.
    kept: Vec<Kept<D::Connection>>,
    /// Those that are being made; what was begun first is at the front.
    dials: Vec<Dialling>,
    /// How many were begun so far.
    count: u64,
    /// Why those were not made that calls still wait for.
    failures: VecDeque<D::Failure>,
    /// Calls that wait.
    pub(super) lacking: usize,
    /// How many calls a connection takes, if that is known.
    room: Option<usize>,
    /// Connections that may be made at a time whatever is needed: more after some that failed or stalled.
    width: usize,
    /// When the next may be made.
    pub(super) backoff: Backoff,
    /// When one failed last.
    failed_at: Option<Instant>,
    pub(super) idleness: Idleness,
    /// Whether a task looks at what is kept.
    pub(super) is_swept: bool,
}

/// Returns when to make another connection to a server that takes no call for the moment over those it
/// has, which were made at these times; `None`: at once, since there are none.
pub(super) fn next_beside(closed: impl Iterator<Item = Instant>) -> Option<Instant> {
    let (count, last) =
        closed.fold((0, None), |(count, last), made| (count + 1, last.max(Some(made))));
    let doublings: u32 = count.clamp(1, 6) - 1;
    Some(last? + NO_ROOM_PAUSE * (1 << doublings))
}

impl<D: Dial> State<D> {
    pub(super) fn new(room: Option<usize>) -> Self {
        Self {
            kept: Vec::new(),
            dials: Vec::new(),
            count: 0,
            failures: VecDeque::new(),
            lacking: 0,
            room,
            width: 1,
            backoff: Backoff::default(),
            failed_at: None,
            idleness: Idleness::default(),
            is_swept: false,
        }
    }

    /// Says what a call does.
    pub(super) fn next(&mut self, now: Instant, wish: Wish, caller: Caller) -> Next<D> {
        if !wish.careful {
            self.idleness.carefree_at = Some(now);
        }
        let is_waiting = caller != Caller::New;
        if let Some(lease) = self.take(now, wish, is_waiting) {
            return Next::Take(lease);
        }
        let closed = self.kept.iter().filter(|it| it.connection.room() == 0);
        let pause = next_beside(closed.map(|it| it.age.since)).filter(|it| now < *it);
        let calls = self.lacking + usize::from(!is_waiting);
        let is_lacking = self.under_way(now, caller) < self.needed(calls);
        // What others have left behind comes to nothing, perhaps.
        let is_left = || !is_lacking && !is_waiting && self.dials.iter().all(|it| it.is_stalled);
        if (self.backoff.rest(now).is_some() || !self.failures.is_empty() || is_left())
            && let Some(room) = self.squeeze()
        {
            return Next::Take(Lease::Room(room));
        }
        if is_waiting && let Some(failure) = self.failures.pop_front() {
            return Next::Fail(failure);
        }
        if let Some(until) = pause {
            return Next::Wait(Some(until.min(now + NO_ROOM_LOOK)));
        }
        if is_lacking {
            return Next::Dial;
        }
        let first = self.dials.iter().find(|it| !it.is_stalled).map(|it| it.begun);
        let since = match caller {
            Caller::New => Some(now),
            Caller::Waits(since) if now < since + PATIENCE => Some(since),
            Caller::Waits(_) => first,
            Caller::HasDialled => None,
        };
        Next::Wait(since.filter(|_| !D::IS_BOUNDED).map(|it| it + PATIENCE))
    }

    /// Returns how many connections are needed for so many calls.
    fn needed(&self, calls: usize) -> usize {
        match self.room {
            // One that takes no call tells nothing of how many the next one takes.
            Some(room) if room > 0 => calls.div_ceil(room),
            _ => 1,
        }
        .max(self.width.min(calls))
    }

    /// Returns how many connections are under way that a call may wait for.
    fn under_way(&mut self, now: Instant, caller: Caller) -> usize {
        let mut is_any = false;
        for it in self.dials.iter_mut().filter(|it| now >= it.begun + PATIENCE) {
            is_any |= !std::mem::replace(&mut it.is_stalled, true);
        }
        if is_any {
            self.widen();
        }
        // A call that has waited long enough counts those no more that take too long.
        let is_tired = matches!(caller, Caller::Waits(since) if now >= since + PATIENCE);
        let counts = |it: &&Dialling| D::IS_BOUNDED || !is_tired || !it.is_stalled;
        self.dials.iter().filter(counts).count()
    }

    /// Has more made at a time, where nothing else bounds that.
    fn widen(&mut self) {
        if !D::IS_BOUNDED {
            self.width = (self.width * 2).min(WIDEST);
        }
    }

    /// Takes a connection that is fit for a call, the one that served last.
    fn take(&mut self, now: Instant, wish: Wish, is_waiting: bool) -> Option<Lease<D::Connection>> {
        let longest = self.idleness.longest(now, wish.careful);
        // Others may use what is too old for this one.
        let is_left = wish.careful && !self.idleness.is_only_careful(now);
        for index in (0..self.kept.len()).rev() {
            let Self { kept, idleness, .. } = self;
            let it = &mut kept[index];
            if is_over(it, now, idleness) {
                drop(kept.remove(index));
                continue;
            }
            if it.idle_for(now).is_some_and(|idle| idle >= longest) {
                if !is_left {
                    drop(kept.remove(index));
                }
                continue;
            }
            if it.connection.is_shared() {
                if let Some(room) = it.connection.enter() {
                    return Some(Lease::Room(room));
                }
            } else if !wish.is_new || (it.age.is_new && is_waiting) {
                let mut taken = kept.remove(index);
                taken.age.is_new &= is_waiting;
                return Some(Lease::Whole(taken));
            }
        }
        None
    }

    /// Takes room beyond what there is, on the connection that the fewest calls have.
    fn squeeze(&mut self) -> Option<<D::Connection as Connection>::Room> {
        let shared = self.kept.iter_mut().map(|it| &mut it.connection);
        let good = shared.filter_map(|it| (it.condition() == Condition::Good).then_some(it));
        good.min_by_key(|it| it.load()).and_then(Connection::squeeze)
    }

    /// Keeps a connection for the next call.
    pub(super) fn keep(&mut self, mut kept: Kept<D::Connection>, now: Instant) {
        if now < kept.age.until {
            kept.age = Age { since: now, is_new: false, ..kept.age };
            self.kept.push(kept);
        }
    }

    /// Notes that a call waits no longer: it leaves no failure behind for others.
    pub(super) fn leave(&mut self) {
        self.lacking -= 1;
        self.failures.truncate(self.lacking);
    }

    /// Returns the number of the next connection.
    pub(super) fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// Notes that a connection is being made; of many that calls have left behind the oldest is given up.
    pub(super) fn begin(&mut self, number: u64, task: AbortHandle, now: Instant) {
        if self.dials.len() >= self.lacking + MOST_LEFT {
            drop(self.dials.remove(0));
        }
        self.dials.push(Dialling { number, begun: now, is_stalled: false, task });
    }

    /// How many are being made.
    #[cfg(test)]
    pub(super) fn dials(&self) -> usize {
        self.dials.len()
    }

    /// Notes how the making of a connection has ended; returns whether that changes what is needed
    /// for all that wait, and not for one.
    pub(super) fn end(
        &mut self,
        number: u64,
        made: Result<D::Connection, D::Failure>,
        now: Instant,
    ) -> bool {
        let Some(index) = self.dials.iter().position(|it| it.number == number) else {
            return false;
        };
        let begun = self.dials.remove(index).begun;
        let is_for_all = self.room != Some(1);
        match made {
            Ok(connection) => {
                self.backoff.note(false, now);
                (self.room, self.width) = (Some(connection.room()), 1);
                let until = now + highest_age(number);
                let age = Age { until, since: now, is_new: self.lacking > 0 };
                self.kept.push(Kept { connection, age });
            }
            Err(failure) => {
                // Those that failed together are one failure.
                if D::IS_BOUNDED && self.failed_at.is_none_or(|at| begun > at) {
                    self.backoff.note(true, now);
                    self.failed_at = Some(now);
                }
                self.widen();
                if self.failures.len() < self.lacking {
                    self.failures.push_back(failure);
                }
            }
        }
        is_for_all
    }

    /// When the connections were used last that are not shared.
    pub(super) fn idle_since(&self) -> impl Iterator<Item = Instant> {
        self.kept.iter().filter(|it| !it.connection.is_shared()).map(|it| it.age.since)
    }

    /// Closes the connections that served no later than that, of those that are not shared.
    pub(super) fn close_before(&mut self, dead: Instant) {
        self.kept.retain(|it| it.connection.is_shared() || it.age.since > dead);
    }

    /// Closes what was idle for too long, and what the server has closed; returns whether anything is left.
    pub(super) fn sweep(&mut self, now: Instant) -> bool {
        let longest = self.idleness.longest(now, self.idleness.is_only_careful(now));
        let idleness = &mut self.idleness;
        self.kept.retain_mut(|it| {
            !is_over(it, now, idleness) && it.idle_for(now).is_none_or(|idle| idle < longest)
        });
        !self.is_empty()
    }

    /// Whether nothing is kept, nor being made.
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.dials.is_empty()
    }
}

impl<C: Connection> Kept<C> {
    /// For how long no call has had it, if none has.
    fn idle_for(&self, now: Instant) -> Option<Duration> {
        self.connection.idle_since(self.age.since).map(|since| now.saturating_duration_since(since))
    }
}

/// Whether a connection is too old, or of no more use; notes for how long its server kept it.
fn is_over<C: Connection>(kept: &mut Kept<C>, now: Instant, idleness: &mut Idleness) -> bool {
    let condition = kept.connection.condition();
    if condition == Condition::Closed
        && let Some(idle) = kept.idle_for(now)
    {
        idleness.note_closed(idle, now);
    }
    condition != Condition::Good || now >= kept.age.until
}

/// Returns how old a connection may become: not all that were made together are made again together.
fn highest_age(number: u64) -> Duration {
    let step = u32::try_from(number % u64::from(AGES)).unwrap_or_default();
    HIGHEST_AGE.saturating_sub(HIGHEST_AGE / 10 / AGES * step)
}
