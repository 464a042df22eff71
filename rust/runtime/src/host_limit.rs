// SPDX-License-Identifier: Apache-2.0
//! A limit in time that the processes of a host keep together.

use std::hash::{BuildHasher, Hash};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sparkawait_core::ProcessingTime;
use sparkawait_core::policy::{Gcra, MAX_LIMITS, PermitSource, PermitSources};

use crate::clock::Clock;
use crate::held_part::{HeldPart, Holder};
use crate::shared_page::{PREFIX, PageError, SharedPage, Slot};

/// Returns where an application keeps its limits in a [private folder](crate::private_folder).
///
/// `application` names what shares them, such as the id of a Spark application.
pub fn page_of(folder: &Path, application: &str) -> PathBuf {
    // Clocks begin again with the host, so pages do, too.
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let name = number_of(&(application, boot));
    folder.join(format!("{PREFIX}{name:016x}"))
}

/// Returns the same number for the same thing in all processes of a version.
pub fn number_of(thing: &impl Hash) -> NonZeroU64 {
    let number = foldhash::quality::FixedState::default().hash_one(thing);
    NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN)
}

/// Returns what says what the word of a limit means.
fn terms_of(limit: Gcra) -> NonZeroU64 {
    number_of(&(limit.rate(), limit.burst()))
}

/// The clock that all processes of a host read alike.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostClock;

impl Clock for HostClock {
    fn now(&self) -> ProcessingTime {
        // Goes on while the host sleeps, as the limits of services do.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let id = ClockId::Boottime;
        // Has no such clock that is the same after it was started again.
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let id = ClockId::Realtime;
        let now = clock_gettime(id);
        let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
        let nanos = u32::try_from(now.tv_nsec).unwrap_or_default();
        ProcessingTime::ZERO + Duration::new(seconds, nanos)
    }
}

/// What was taken of a limit.
struct Turn {
    /// When it may be used.
    ready: ProcessingTime,
    /// The word of the limit behind it.
    taken: ProcessingTime,
    /// How long it takes what was taken to come.
    nanos: u64,
}

/// One limit of a page.
///
/// Its whole state is the word of a [`Gcra`], so there is nothing that a process
/// which is killed could leave half done; it loses at most what it has reserved.
/// Times are those of the [`HostClock`], which a manual clock may stand for in
/// tests.
#[derive(Clone, Debug)]
pub struct HostLimit {
    page: Arc<SharedPage>,
    slot: Slot,
    limit: Gcra,
}

impl HostLimit {
    /// Takes part in the limit that `page` has by this name.
    ///
    /// # Errors
    ///
    /// [`PageError::OtherTerms`] if the name has another rate or burst there, [`PageError::Full`].
    pub fn new(page: Arc<SharedPage>, name: &str, limit: Gcra) -> Result<Self, PageError> {
        let slot = page.slot(number_of(&name), terms_of(limit))?;
        Ok(Self { page, slot, limit })
    }

    /// Takes `cost`, to be used at the time that is returned: now, or when its turn comes.
    ///
    /// Turns come in the order of reservations, of all processes. None is given that
    /// begins later than `horizon` after now, so that a process does not take all that
    /// there will be; then the time is returned at which to ask again. When a turn begins
    /// does not depend on what is taken in it, so a dear call gets its place as soon as a
    /// cheap one.
    ///
    /// # Errors
    ///
    /// The time at which to ask again. Nothing was taken.
    pub fn reserve(
        &self,
        cost: u64,
        now: ProcessingTime,
        horizon: Duration,
    ) -> Result<ProcessingTime, ProcessingTime> {
        self.take_turn(cost, now, horizon).map(|turn| turn.ready)
    }

    fn take_turn(
        &self,
        cost: u64,
        now: ProcessingTime,
        horizon: Duration,
    ) -> Result<Turn, ProcessingTime> {
        let (value, last) = (self.page.value(self.slot), now + horizon);
        let mut word = value.load(Ordering::Relaxed);
        loop {
            let tat = ProcessingTime::from_nanos(word);
            let begins = self.begins(tat);
            if begins > last {
                return Err(ProcessingTime::from_nanos(
                    begins.as_nanos() - (last.as_nanos() - now.as_nanos()),
                ));
            }
            let taken = self.limit.take(tat, cost, now);
            // Only the word itself is shared, so the order of other memory does not matter.
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            match value.compare_exchange_weak(word, taken.as_nanos(), success, failure) {
                Ok(_) => {
                    let ready = self.limit.ready_at(tat, cost).max(now);
                    return Ok(Turn { ready, taken, nanos: taken.nanos_since(tat.max(now)) });
                }
                Err(found) => word = found,
            }
        }
    }

    /// Returns when the next turn begins.
    fn begins(&self, tat: ProcessingTime) -> ProcessingTime {
        self.limit.ready_at(tat, 0)
    }

    fn tat(&self) -> ProcessingTime {
        ProcessingTime::from_nanos(self.page.value(self.slot).load(Ordering::Relaxed))
    }

    /// Takes everything that could be taken now, and `owed` of what comes.
    pub fn drain(&self, owed: u64, now: ProcessingTime) {
        let drained = self.limit.drain(ProcessingTime::ZERO, owed, now).as_nanos();
        self.page.value(self.slot).fetch_max(drained, Ordering::Relaxed);
    }
}

/// How far ahead a permit may be reserved, so that a process does not take all that there will be.
const HORIZON: Duration = Duration::from_millis(100);

/// For how long a process that owes others a turn waits for one of them to take it.
const PATIENCE: Duration = Duration::from_millis(10);

/// The turns of one that takes part in a [`HostLimit`].
///
/// Turns come in the order in which they are asked for, so a process that makes dear calls would
/// have more of the limit than others, who make cheap ones. Therefore a process that has had a turn
/// owes the others as much, as long as some of them take turns. It asks for its next one when they
/// have had that, or when none of them takes the turn that begins. With two that always want more
/// each has half of the permits, whatever their calls cost.
#[derive(Debug)]
pub struct HostTurns {
    limit: HostLimit,
    /// The word of the limit when it was last looked at.
    seen: AtomicU64,
    /// The nanoseconds of the limit that others are to have first, if they want them; less than none
    /// where they have had more, as they may while it waits.
    owed: AtomicI64,
    /// Those of the last turn, which is as much as others can have too much.
    last: AtomicI64,
}

impl HostTurns {
    /// Takes part in `limit`.
    pub const fn new(limit: HostLimit) -> Self {
        let (seen, owed, last) = (AtomicU64::new(0), AtomicI64::new(0), AtomicI64::new(0));
        Self { limit, seen, owed, last }
    }

    /// Takes `cost`, to be used at the time that is returned.
    ///
    /// # Errors
    ///
    /// The time at which to ask again. Nothing was taken.
    pub fn reserve(
        &self,
        cost: u64,
        now: ProcessingTime,
    ) -> Result<ProcessingTime, ProcessingTime> {
        // All of it belongs to one thread, mostly.
        let order = Ordering::Relaxed;
        let tat = self.limit.tat();
        let others = signed(tat.as_nanos().saturating_sub(self.seen.swap(tat.as_nanos(), order)));
        let owed = self.owed.load(order).saturating_sub(others).max(-self.last.load(order));
        self.owed.store(owed, order);
        if owed > 0 && others > 0 {
            return Err(self.limit.begins(tat).max(now) + PATIENCE);
        }
        // So that the others are asked first who takes the next one.
        let horizon = if owed > 0 { Duration::ZERO } else { HORIZON };
        let turn = self.limit.take_turn(cost, now, horizon)?;
        self.seen.store(turn.taken.as_nanos(), order);
        // Nobody else wants what is owed still.
        self.owed.store(owed.min(0).saturating_add(signed(turn.nanos)), order);
        self.last.store(signed(turn.nanos), order);
        Ok(turn.ready)
    }

    /// Corrects the cost of a call that had taken `taken`: what was too much comes back.
    pub fn settle(&self, taken: u64, actual: u64) {
        let (order, limit) = (Ordering::Relaxed, &self.limit);
        let settled = |word| {
            Some(limit.limit.settle(ProcessingTime::from_nanos(word), taken, actual).as_nanos())
        };
        for word in [limit.page.value(limit.slot), &self.seen] {
            // It always has a new value.
            word.fetch_update(order, order, settled).unwrap_or_default();
        }
    }
}

fn signed(nanos: u64) -> i64 {
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

/// The [`HostTurns`] of a task, which has a clock of its own.
#[derive(Debug)]
struct HostPermits(HostTurns);

impl PermitSource for HostPermits {
    fn reserve(&self, cost: u64, now: ProcessingTime) -> Result<ProcessingTime, ProcessingTime> {
        let host_now = HostClock.now();
        let here = |at: ProcessingTime| now + at.saturating_since(host_now);
        self.0.reserve(cost, host_now).map(here).map_err(here)
    }

    fn settle(&self, taken: u64, actual: u64) {
        self.0.settle(taken, actual);
    }

    fn drain(&self, owed: u64, _now: ProcessingTime) {
        self.0.limit.drain(owed, HostClock.now());
    }
}

/// A limit that processes share, as an operator takes part in it.
#[derive(Clone, Debug)]
pub struct SharedTerms {
    /// Those that say the same share it.
    pub name: String,
    /// Of a part, if it is split.
    pub limit: Gcra,
    /// Who takes a part of it, if it is split.
    pub holder: Option<Holder>,
}

/// The limits of an operator that the processes of a host keep together.
#[derive(Debug)]
pub struct HostLimits {
    page: Arc<SharedPage>,
    /// What they are called in the page and their terms, by the number of the limit.
    limits: [Option<(String, Gcra)>; MAX_LIMITS],
    /// What all channels share, and those for which the page has no place.
    whole: [Option<Arc<HostPermits>>; MAX_LIMITS],
    /// The parts that are this process's until its operators are dropped.
    _parts: Vec<HeldPart>,
}

impl HostLimits {
    /// Takes part in limits of the page at `path` by their names.
    ///
    /// Of one that is split it takes the part that this process has, or the first that nobody holds.
    /// The part has what the one before has left of it, so operators that follow one another, or run
    /// in one process, keep to it together.
    ///
    /// # Errors
    ///
    /// As [`SharedPage::open`], [`HostLimit::new`] and [`HeldPart::take`].
    pub fn open(path: &Path, terms: [Option<SharedTerms>; MAX_LIMITS]) -> Result<Self, PageError> {
        let page = Arc::new(SharedPage::open(path)?);
        let mut limits = [const { None }; MAX_LIMITS];
        let mut whole = [const { None }; MAX_LIMITS];
        let mut parts = Vec::new();
        for (index, it) in terms.into_iter().enumerate() {
            let Some(SharedTerms { mut name, limit, holder }) = it else { continue };
            if let Some(holder) = holder {
                let part = HeldPart::take(path, number_of(&name), &holder)?;
                name = format!("{name} of {}, {}", holder.parts, part.number());
                parts.push(part);
            }
            let shared = HostLimit::new(Arc::clone(&page), &name, limit)?;
            whole[index] = Some(Arc::new(HostPermits(HostTurns::new(shared))));
            limits[index] = Some((name, limit));
        }
        Ok(Self { page, limits, whole, _parts: parts })
    }

    fn of_channel(&self, limit: usize, channel: u64) -> Option<HostPermits> {
        let (name, limit) = self.limits.get(limit)?.as_ref()?;
        let name = format!("{name}#{channel:016x}");
        let slot = self.page.spare_slot(number_of(&name), terms_of(*limit)).ok()?;
        let limit = HostLimit { page: Arc::clone(&self.page), slot, limit: *limit };
        Some(HostPermits(HostTurns::new(limit)))
    }
}

impl PermitSources for HostLimits {
    fn open(&self, limit: usize, channel: Option<u64>) -> Option<Arc<dyn PermitSource>> {
        let whole = self.whole.get(limit)?.as_ref()?;
        // Without a place of its own a channel keeps the limit together with others: never above it.
        match channel.and_then(|it| self.of_channel(limit, it)) {
            Some(own) => Some(Arc::new(own)),
            None => Some(Arc::clone(whole) as Arc<dyn PermitSource>),
        }
    }
}
