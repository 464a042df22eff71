// SPDX-License-Identifier: Apache-2.0
//! A limit in time that the processes of a host keep together.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sparkawait_core::ProcessingTime;
use sparkawait_core::policy::{
    Answer, Gcra, Ledger, Ledgers, LimitLeft, MAX_LIMITS, Rate, Renewal,
};

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

/// How the word of changed terms begins: as a time it is far ahead.
const CHANGED: u64 = 1 << 63;

/// Writes into a page what a limit has become: the rate is one word, and the burst its count.
fn set_terms(
    page: &SharedPage,
    name: NonZeroU64,
    limit: Gcra,
    now: ProcessingTime,
) -> Result<(), PageError> {
    let word = word_of(limit.rate()).ok_or(PageError::OddRate)?;
    let slot = page.slot(name, NonZeroU64::MIN)?;
    page.count(&slot).store(limit.burst().get(), Ordering::Release);
    page.change(&slot, now, |_| Some(word)).unwrap_or_default();
    page.note_change();
    Ok(())
}

/// Reads what a limit has become, if it has.
fn terms_in(page: &SharedPage, name: NonZeroU64) -> Option<Gcra> {
    let slot = page.known_slot(name)?;
    let word = page.value(&slot);
    let permits = NonZeroU64::new((word & !CHANGED) >> 32)?;
    let unit = UNITS.get(usize::try_from(word >> 30 & 3).ok()?)?;
    let period = Duration::from_nanos((word & (MOST_UNITS - 1)) * unit);
    let rate = Rate::new(permits, period)?;
    let burst = NonZeroU64::new(page.count(&slot).load(Ordering::Acquire))?;
    Some(Gcra::new(rate, burst))
}

/// What the period of a rate is counted in, in nanoseconds.
const UNITS: [u64; 3] = [1_000, 1_000_000, 1_000_000_000];
/// A period has fewer of them.
const MOST_UNITS: u64 = 1 << 30;
/// And fewer permits.
const MOST_PERMITS: u64 = 1 << 31;

/// Returns a rate as a word, if it is one of whole microseconds, milliseconds or seconds that are not too
/// many.
fn word_of(rate: Rate) -> Option<u64> {
    let (permits, nanos) = (rate.permits().get(), rate.period().get());
    let common = common_divisor(permits, nanos);
    let (permits, nanos) = (permits / common, nanos / common);
    (0_u64..).zip(UNITS).find_map(|(number, unit)| {
        // As many permits in as many times the period, so that it is whole.
        let times = unit / common_divisor(nanos, unit);
        let permits = permits.checked_mul(times).filter(|it| *it < MOST_PERMITS)?;
        let units = Some(nanos.checked_mul(times)? / unit).filter(|it| *it < MOST_UNITS)?;
        Some(CHANGED | permits << 32 | number << 30 | units)
    })
}

const fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// What was taken of a limit.
struct Place {
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
    slot: Arc<Slot>,
    /// What it was made with.
    first: Gcra,
    name: NonZeroU64,
    /// Which change of the page it has followed, and what it is since.
    followed: Arc<Mutex<(u64, Gcra)>>,
}

impl HostLimit {
    /// Takes part in the limit that `page` has by this name.
    ///
    /// # Errors
    ///
    /// [`PageError::OtherTerms`] if the name has another rate or burst there, [`PageError::Full`].
    pub fn new(page: Arc<SharedPage>, name: &str, limit: Gcra) -> Result<Self, PageError> {
        let slot = page.slot(number_of(&name), terms_of(limit))?;
        Ok(Self::of_slot(page, slot, name, limit))
    }

    fn of_slot(page: Arc<SharedPage>, slot: Slot, name: &str, first: Gcra) -> Self {
        let followed = Arc::new(Mutex::new((0, first)));
        Self {
            page,
            slot: Arc::new(slot),
            first,
            name: number_of(&("what it has become", name)),
            followed,
        }
    }

    /// Returns what the limit is now.
    #[inline]
    fn limit(&self) -> Gcra {
        let changes = self.page.changes();
        if changes == 0 { self.first } else { self.follow(changes) }
    }

    /// Looks what it has become, if it did not yet since the page changed last.
    fn follow(&self, changes: u64) -> Gcra {
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        if followed.0 != changes {
            *followed = (changes, terms_in(&self.page, self.name).unwrap_or(self.first));
        }
        followed.1
    }

    /// Makes another limit of it, for all processes that take part in it.
    ///
    /// # Errors
    ///
    /// [`PageError::Full`].
    pub fn set(&self, limit: Gcra, now: ProcessingTime) -> Result<(), PageError> {
        let before = self.limit();
        set_terms(&self.page, self.name, limit, now)?;
        // What was saved stays, and no debt does: what was taken before has been allowed.
        let change = |word| {
            let saved = before.calls(ProcessingTime::from_nanos(word), 1, now);
            let saved = saved.min(limit.burst().get());
            Some(limit.lower_to(saved, 0, now).as_nanos())
        };
        self.page.change(&self.slot, now, change).unwrap_or_default();
        Ok(())
    }

    /// Returns what it is, for people.
    pub fn terms(&self) -> Gcra {
        self.limit()
    }

    /// Does so for one of many names that come and go, such as those of channels: where the page has no
    /// place left it takes one that is long idle.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn of_many(
        page: Arc<SharedPage>,
        name: &str,
        limit: Gcra,
        now: ProcessingTime,
    ) -> Result<Self, PageError> {
        let slot = page.spare_slot(number_of(&name), terms_of(limit), now)?;
        Ok(Self::of_slot(page, slot, name, limit))
    }

    /// Takes `cost`, to be used at the time that is returned: now, or when its place comes.
    ///
    /// Places come in the order of reservations, of all processes. None is given that
    /// begins later than `horizon` after now, so that a process does not take all that
    /// there will be; then the time is returned at which to ask again. When a place begins
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
        self.take_place(cost, now, horizon).map(|place| place.ready)
    }

    fn take_place(
        &self,
        cost: u64,
        now: ProcessingTime,
        horizon: Duration,
    ) -> Result<Place, ProcessingTime> {
        let (last, limit) = (now + horizon, self.limit());
        let tat = self.page.change(&self.slot, now, |word| {
            let tat = ProcessingTime::from_nanos(word);
            let may_begin = limit.ready_at(tat, 0) <= last;
            may_begin.then(|| limit.take(tat, cost, now).as_nanos())
        });
        let tat = tat.map_err(|word| {
            let begins = limit.ready_at(ProcessingTime::from_nanos(word), 0);
            ProcessingTime::from_nanos(begins.as_nanos() - (last.as_nanos() - now.as_nanos()))
        })?;
        self.page.count(&self.slot).fetch_add(cost, Ordering::Relaxed);
        let tat = ProcessingTime::from_nanos(tat);
        let taken = limit.take(tat, cost, now);
        let ready = limit.ready_at(tat, cost).max(now);
        Ok(Place { ready, taken, nanos: taken.nanos_since(tat.max(now)) })
    }

    /// Returns when the next place begins.
    fn begins(&self, tat: ProcessingTime) -> ProcessingTime {
        self.limit().ready_at(tat, 0)
    }

    fn tat(&self) -> ProcessingTime {
        ProcessingTime::from_nanos(self.page.value(&self.slot))
    }

    /// Takes everything that could be taken now, and `owed` of what comes.
    pub fn drain(&self, owed: u64, now: ProcessingTime) {
        self.raise(self.limit().drain(ProcessingTime::ZERO, owed, now), now);
    }

    /// Moves the word of the limit to `tat`, if it is not there yet.
    fn raise(&self, tat: ProcessingTime, now: ProcessingTime) {
        let raised = |word| (word < tat.as_nanos()).then_some(tat.as_nanos());
        self.page.change(&self.slot, now, raised).unwrap_or_default();
    }

    /// Corrects the cost of a call that had taken `taken`.
    fn settle(&self, taken: u64, actual: u64) {
        let limit = self.limit();
        self.page.correct(&self.slot, |word| {
            limit.settle(ProcessingTime::from_nanos(word), taken, actual).as_nanos()
        });
        let more = actual.wrapping_sub(taken);
        self.page.count(&self.slot).fetch_add(more, Ordering::Relaxed);
    }

    /// Returns how many permits have been taken so far, by all; the number begins again after its
    /// largest value.
    fn taken(&self) -> u64 {
        self.page.count(&self.slot).load(Ordering::Relaxed)
    }
}

/// When so many permits had been taken.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: ProcessingTime,
    taken: u64,
}

/// How often a mark is set while permits are taken.
const MARKED: Duration = Duration::from_millis(20);

/// Some times in the past at which it was looked how many permits had been taken, the last one first.
///
/// The reply to a call says what is left of a limit. The service had not counted then what was taken
/// after the call had started, by any process. With some marks it is known how much that may be.
#[derive(Debug)]
struct Marks(VecDeque<Mark>);

impl Marks {
    /// Marks of five seconds: what was taken earlier is counted.
    const MOST: usize = 250;

    fn note(&mut self, taken: u64, now: ProcessingTime) {
        if self.0.front().is_none_or(|it| now >= it.at + MARKED) {
            self.0.truncate(Self::MOST - 1);
            self.0.push_front(Mark { at: now, taken });
        }
    }

    /// Returns what was taken from `since` on at most, or in the last seconds, of `taken` in all.
    fn taken_since(&self, since: ProcessingTime, taken: u64) -> u64 {
        let mark = self.0.iter().find(|it| it.at <= since).or(self.0.back());
        let more = taken.wrapping_sub(mark.map_or(taken, |it| it.taken));
        // Where more came back than was taken it is less than none.
        if i64::try_from(more).is_ok() { more } else { 0 }
    }
}

/// How far ahead a permit may be reserved, so that a process does not take all that there will be.
const HORIZON: Duration = Duration::from_millis(100);

/// For how long a process that owes others a place waits for one of them to take it.
const PATIENCE: Duration = Duration::from_millis(10);

/// A service is believed for so long that it has nothing left.
const LONGEST: Duration = Duration::from_secs(3600);

/// The places of one that takes part in a [`HostLimit`].
///
/// Places come in the order in which they are asked for, so a process that makes dear calls would
/// have more of the limit than others, who make cheap ones. Therefore a process that has had a place
/// owes the others as much, as long as some of them take places. It asks for its next one when they
/// have had that, or when none of them takes the place that begins. With two that always want more
/// each has half of the permits, whatever their calls cost.
#[derive(Debug)]
pub struct HostPlaces {
    limit: HostLimit,
    /// The word of the limit when it was last looked at.
    seen: AtomicU64,
    /// The nanoseconds of the limit that others are to have first, if they want them; less than none
    /// where they have had more, as they may while it waits.
    owed: AtomicI64,
    /// Those of the last place, which is as much as others can have too much.
    last: AtomicI64,
    marks: Mutex<Marks>,
    /// When the last mark was set.
    marked_at: AtomicU64,
}

impl HostPlaces {
    /// Takes part in `limit`.
    pub const fn new(limit: HostLimit) -> Self {
        Self {
            limit,
            seen: AtomicU64::new(0),
            owed: AtomicI64::new(0),
            last: AtomicI64::new(0),
            marks: Mutex::new(Marks(VecDeque::new())),
            marked_at: AtomicU64::new(0),
        }
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
        if now >= ProcessingTime::from_nanos(self.marked_at.load(order)) + MARKED {
            self.marked_at.store(now.as_nanos(), order);
            self.marks().note(self.limit.taken(), now);
        }
        let tat = self.limit.tat();
        let others = signed(tat.as_nanos().saturating_sub(self.seen.swap(tat.as_nanos(), order)));
        let owed = self.owed.load(order).saturating_sub(others).max(-self.last.load(order));
        self.owed.store(owed, order);
        if owed > 0 && others > 0 {
            return Err(self.limit.begins(tat).max(now) + PATIENCE);
        }
        // So that the others are asked first who takes the next one.
        let horizon = if owed > 0 { Duration::ZERO } else { HORIZON };
        let place = self.limit.take_place(cost, now, horizon)?;
        self.seen.store(place.taken.as_nanos(), order);
        // Nobody else wants what is owed still.
        self.owed.store(owed.min(0).saturating_add(signed(place.nanos)), order);
        self.last.store(signed(place.nanos), order);
        Ok(place.ready)
    }

    /// Corrects the cost of a call that had taken `taken`: what was too much comes back, and the others
    /// are owed what it has really cost.
    pub fn settle(&self, taken: u64, actual: u64) {
        let (order, gcra) = (Ordering::Relaxed, self.limit.limit());
        self.limit.settle(taken, actual);
        let zero = ProcessingTime::ZERO;
        let nanos = |cost| signed(gcra.take(zero, cost, zero).as_nanos());
        self.owed.fetch_add(nanos(actual).saturating_sub(nanos(taken)), order);
        let settled =
            |seen| Some(gcra.settle(ProcessingTime::from_nanos(seen), taken, actual).as_nanos());
        // It always has a new value.
        self.seen.fetch_update(order, order, settled).unwrap_or_default();
    }

    /// Learns from the reply to a call that started at `started` what is `left` for all; of that the service
    /// had not counted `in_flight` yet, or what all have taken since that start, which is returned.
    ///
    /// It lowers the limit for all, and never raises it.
    pub fn lower_to(
        &self,
        left: &LimitLeft,
        in_flight: u64,
        started: ProcessingTime,
        now: ProcessingTime,
    ) -> u64 {
        let gcra = self.limit.limit();
        let most = gcra.rate().permits_in(now.saturating_since(started)).get();
        let most = most.saturating_add(gcra.burst().get());
        let taken = self.marks().taken_since(started, self.limit.taken());
        let uncounted = taken.min(most).max(in_flight);
        let tat = if left.remaining == 0 && left.renewal == Renewal::AtOnce {
            gcra.lower_to(0, 0, now + left.renewed_in.min(LONGEST))
        } else {
            // Where nothing may be left the next replies say so, and nobody calls before.
            let latency = now.saturating_since(started);
            let wait = if left.remaining > uncounted { Duration::ZERO } else { latency };
            gcra.lower_to(left.remaining, uncounted, now + wait)
        };
        self.limit.raise(tat, now);
        uncounted
    }

    fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn signed(nanos: u64) -> i64 {
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

/// Who waits looks so often whether the limit has become another one.
const LOOKS: Duration = Duration::from_millis(200);

/// The [`HostPlaces`] of a task, which has a clock of its own.
#[derive(Debug)]
struct HostPermits {
    places: HostPlaces,
    /// A place that lies far ahead, of the call that asks for it.
    ahead: Mutex<Option<Ahead>>,
}

/// What was taken for it, when it comes, and how often the page had changed.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    cost: u64,
    ready: ProcessingTime,
    changes: u64,
}

impl HostPermits {
    fn new(limit: HostLimit) -> Self {
        Self { places: HostPlaces::new(limit), ahead: Mutex::new(None) }
    }

    fn ahead(&self) -> MutexGuard<'_, Option<Ahead>> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `cost`, to be used now or soon.
    fn reserve(&self, cost: u64, now: ProcessingTime) -> Result<ProcessingTime, ProcessingTime> {
        let changes = self.places.limit.page.changes();
        let mut ahead = self.ahead();
        if let Some(it) = ahead.take() {
            // Nor may a place be used long after it came, when its call was given up meanwhile.
            if it.cost == cost && it.changes == changes && now <= it.ready + LOOKS {
                if it.ready <= now + LOOKS {
                    return Ok(it.ready);
                }
                *ahead = Some(it);
                return Err(now + LOOKS);
            }
            // Another call asks, or the line has another length.
            self.places.settle(it.cost, 0);
        }
        let ready = self.places.reserve(cost, now).map_err(|at| at.min(now + LOOKS))?;
        if ready > now + LOOKS {
            *ahead = Some(Ahead { cost, ready, changes });
            return Err(now + LOOKS);
        }
        Ok(ready)
    }
}

impl Drop for HostPermits {
    fn drop(&mut self) {
        if let Some(it) = self.ahead().take() {
            self.places.settle(it.cost, 0);
        }
    }
}

impl Ledger for HostPermits {
    fn ask(&self, cost: u64, now: ProcessingTime) -> Answer {
        let host_now = HostClock.now();
        let here = |at: ProcessingTime| now + at.saturating_since(host_now);
        let place = self.reserve(cost, host_now).map(here).map_err(here);
        place.map_or_else(Answer::At, Answer::Ticket)
    }

    fn settle(&self, taken: u64, actual: u64) {
        self.places.settle(taken, actual);
    }

    fn lower_to(
        &self,
        left: &LimitLeft,
        in_flight: u64,
        started: ProcessingTime,
        now: ProcessingTime,
    ) -> u64 {
        let host_now = HostClock.now();
        let since = host_now.as_nanos().saturating_sub(now.nanos_since(started));
        self.places.lower_to(left, in_flight, ProcessingTime::from_nanos(since), host_now)
    }

    fn drain(&self, owed: u64, _now: ProcessingTime) {
        self.places.limit.drain(owed, HostClock.now());
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
            whole[index] = Some(Arc::new(HostPermits::new(shared)));
            limits[index] = Some((name, limit));
        }
        Ok(Self { page, limits, whole, _parts: parts })
    }

    fn of_channel(&self, limit: usize, channel: u64) -> Option<HostPermits> {
        let (name, limit) = self.limits.get(limit)?.as_ref()?;
        let name = format!("{name}#{channel:016x}");
        let limit = HostLimit::of_many(Arc::clone(&self.page), &name, *limit, HostClock.now());
        Some(HostPermits::new(limit.ok()?))
    }
}

impl Ledgers for HostLimits {
    fn open(&self, limit: usize, channel: Option<u64>) -> Option<Arc<dyn Ledger>> {
        let whole = self.whole.get(limit)?.as_ref()?;
        // Without a place of its own a channel keeps the limit together with others: never above it.
        match channel.and_then(|it| self.of_channel(limit, it)) {
            Some(own) => Some(Arc::new(own)),
            None => Some(Arc::clone(whole) as Arc<dyn Ledger>),
        }
    }
}
