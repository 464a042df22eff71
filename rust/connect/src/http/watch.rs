// SPDX-License-Identifier: Apache-2.0
//! Calls that can be ended from outside, that say when they begin, and one timer for the silence of
//! all of them.
//!
//! A call notes until when its server may be silent; the engine's tick wakes those whose time is up.
//! A timer for each wait would be set and taken back several times for each row.

use std::future::Future;
use std::iter;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::task::AtomicWaker;
use sparkawait_core::operator::AttemptId;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// Ticks in the time that a server may be silent: it is so exact.
const TICKS: u64 = 8;

/// Longest time between two ticks.
const LONGEST_TICK: Duration = Duration::from_secs(1);

/// Not waiting for a server.
const NEVER: u64 = u64::MAX;

/// The ticks of one engine, and how many of them a server may be silent.
#[derive(Debug)]
pub(super) struct Clock {
    now: AtomicU64,
    silence: Option<(Duration, u64)>,
}

impl Clock {
    /// Makes the clock of an engine whose servers may be silent for so long; for ever, if that is
    /// not said.
    pub(super) fn new(silence: Option<Duration>) -> Self {
        let silence = silence.map(|whole| {
            let tick = (whole / 8).clamp(Duration::from_millis(1), LONGEST_TICK);
            let ticks = whole.as_nanos().div_ceil(tick.as_nanos().max(1));
            (tick, u64::try_from(ticks).unwrap_or(NEVER).max(TICKS))
        });
        Self { now: AtomicU64::new(0), silence }
    }

    /// Returns the timer of the ticks, if there are any.
    pub(super) fn interval(&self) -> Option<Interval> {
        let (tick, _) = self.silence?;
        let mut interval = interval_at(Instant::now() + tick, tick);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Some(interval)
    }

    /// Goes on by a tick, and wakes the calls whose servers were silent for too long.
    pub(super) fn tick<'a>(&self, watches: impl Iterator<Item = &'a Arc<Watch>>) {
        let now = self.now.load(Ordering::Relaxed) + 1;
        self.now.store(now, Ordering::Relaxed);
        watches.filter(|it| it.due.load(Ordering::Relaxed) <= now).for_each(|it| it.waker.wake());
    }

    /// Returns the tick at which a server is silent for too long that does something now; `None` if it may be.
    fn due(&self) -> Option<u64> {
        let (_, ticks) = self.silence?;
        // One more: the tick that is under way may end at once.
        Some(self.now.load(Ordering::Relaxed).saturating_add(ticks).saturating_add(1))
    }

    /// Waits for a call that has this clock for itself.
    pub(super) async fn run<T>(&self, call: impl Future<Output = T>) -> T {
        let (mut call, mut ticks) = (pin!(call), self.interval());
        loop {
            // Whatever comes, the call is looked at: nobody has to wake it.
            tokio::select! {
                biased;
                ended = &mut call => return ended,
                () = next_tick(&mut ticks) => self.tick(iter::empty()),
            }
        }
    }
}

/// Waits for the next tick; for ever if there are none.
pub(super) async fn next_tick(interval: &mut Option<Interval>) {
    match interval {
        Some(interval) => drop(interval.tick().await),
        None => std::future::pending().await,
    }
}

/// Calls that are about to begin.
///
/// A call begins when it has its connection, and whom it calls as, or could get none. It waits until its task
/// was told, and is not made if that has ended: what is made is what is counted. Calls that are polled together
/// are told of together.
#[derive(Debug, Default)]
pub(super) struct Begun(Mutex<Beginning>);

#[derive(Debug, Default)]
struct Beginning {
    calls: Vec<AttemptId>,
    wakers: Vec<Waker>,
    /// How many its task has heard of.
    told: u64,
}

impl Begun {
    /// Waits until a call was told of.
    async fn announce(&self, attempt: AttemptId) {
        let mut place = None;
        std::future::poll_fn(|context| {
            let mut beginning = self.lock();
            let place = *place.get_or_insert_with(|| {
                beginning.calls.push(attempt);
                beginning.wakers.push(context.waker().clone());
                beginning.told + beginning.calls.len() as u64
            });
            if beginning.told >= place { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Tells of the calls that are about to begin, and lets them; returns whether there are any.
    fn tell(&self, tell: impl FnOnce(&[AttemptId]) -> bool) -> bool {
        let mut beginning = self.lock();
        let calls = std::mem::take(&mut beginning.calls);
        let wakers = std::mem::take(&mut beginning.wakers);
        if calls.is_empty() || !tell(&calls) {
            return false;
        }
        beginning.told += calls.len() as u64;
        drop(beginning);
        wakers.into_iter().for_each(Waker::wake);
        true
    }

    /// Waits for calls, and tells of those that begin.
    pub(super) async fn telling<T>(
        &self,
        tell: impl Fn(&[AttemptId]) -> bool,
        calls: impl Future<Output = T>,
    ) -> T {
        let mut calls = pin!(calls);
        std::future::poll_fn(|context| {
            loop {
                let polled = calls.as_mut().poll(context);
                if !self.tell(&tell) || polled.is_ready() {
                    return polled;
                }
            }
        })
        .await
    }

    fn lock(&self) -> MutexGuard<'_, Beginning> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the engine and one of its calls tell one another.
#[derive(Debug)]
pub(super) struct Watch {
    clock: Arc<Clock>,
    waker: AtomicWaker,
    is_ended: AtomicBool,
    has_begun: AtomicBool,
    /// Where it says that it begins, if anybody wants to know.
    begun: Option<(Arc<Begun>, AttemptId)>,
    /// The tick at which its server was silent for too long.
    due: AtomicU64,
}

/// A server was silent for too long.
#[derive(Debug)]
pub(super) struct Silent;

impl Watch {
    pub(super) fn new(clock: &Arc<Clock>) -> Arc<Self> {
        Self::saying(clock, None)
    }

    /// Makes that of a call which says when it begins.
    pub(super) fn saying(clock: &Arc<Clock>, begun: Option<(Arc<Begun>, AttemptId)>) -> Arc<Self> {
        Arc::new(Self {
            clock: Arc::clone(clock),
            waker: AtomicWaker::new(),
            is_ended: AtomicBool::new(false),
            has_begun: AtomicBool::new(false),
            begun,
            due: AtomicU64::new(NEVER),
        })
    }

    /// Says that the call begins, if it has not said so, and waits until its task has heard it.
    pub(super) async fn begin(&self) {
        if let Some((begun, attempt)) = &self.begun
            && !self.has_begun.swap(true, Ordering::Relaxed)
        {
            begun.announce(*attempt).await;
        }
    }

    /// Notes that something of the call has left: its server is not silent.
    pub(super) fn moved(&self) {
        if let Some(due) = self.clock.due() {
            // `NEVER` stays: a wait may have ended meanwhile.
            self.due.fetch_max(due, Ordering::Relaxed);
        }
    }

    /// Whether it waits for its server.
    #[cfg(test)]
    pub(super) fn is_waiting(&self) -> bool {
        self.due.load(Ordering::Relaxed) != NEVER
    }

    /// Ends the call: nobody waits for it any more.
    pub(super) fn end(&self) {
        self.is_ended.store(true, Ordering::Relaxed);
        self.waker.wake();
    }

    /// Waits for what a server does next, as long as it may be silent.
    pub(super) async fn wait<T>(&self, what: impl Future<Output = T>) -> Result<T, Silent> {
        self.wait_while(|| 0, what).await
    }

    /// The same of what comes bit by bit: where `count` has changed, the server was not silent.
    pub(super) async fn wait_while<T>(
        &self,
        count: impl Fn() -> u64,
        what: impl Future<Output = T>,
    ) -> Result<T, Silent> {
        let clock = &*self.clock;
        let Some(due) = clock.due() else { return Ok(what.await) };
        self.due.store(due, Ordering::Relaxed);
        let (mut what, mut counted) = (pin!(what), count());
        let ended = std::future::poll_fn(|context| {
            if let Poll::Ready(value) = what.as_mut().poll(context) {
                return Poll::Ready(Ok(value));
            }
            let now = count();
            if now != counted {
                counted = now;
                self.moved();
            }
            let is_due = clock.now.load(Ordering::Relaxed) >= self.due.load(Ordering::Relaxed);
            if is_due { Poll::Ready(Err(Silent)) } else { Poll::Pending }
        })
        .await;
        self.due.store(NEVER, Ordering::Relaxed);
        ended
    }
}

/// A call that its watch may end; `None` then.
pub(super) struct Watched<T> {
    watch: Arc<Watch>,
    call: BoxFuture<'static, T>,
}

impl<T> Watched<T> {
    pub(super) fn new(watch: Arc<Watch>, call: BoxFuture<'static, T>) -> Self {
        Self { watch, call }
    }
}

impl<T> Future for Watched<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.watch.waker.register(context.waker());
        if self.watch.is_ended.load(Ordering::Relaxed) {
            return Poll::Ready(None);
        }
        self.call.as_mut().poll(context).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures_util::FutureExt;
    use sparkawait_core::queue::EntryId;

    use super::*;

    #[test]
    fn only_the_silence_of_a_server_is_counted_and_from_its_last_word() {
        let clock = Arc::new(Clock::new(Some(Duration::from_millis(700))));
        let watch = Watch::new(&clock);
        let ticks = |many: u64| (0..many).for_each(|_| clock.tick([&watch].into_iter()));
        let mut wait = Box::pin(watch.wait(pending::<()>()));

        assert!(wait.as_mut().now_or_never().is_none());
        ticks(TICKS);
        assert!(wait.as_mut().now_or_never().is_none());
        ticks(1);
        assert!(matches!(wait.as_mut().now_or_never(), Some(Err(Silent))));
        drop(wait);

        ticks(100);
        let mut next = Box::pin(watch.wait(pending::<()>()));
        assert!(next.as_mut().now_or_never().is_none(), "it begins anew");
    }

    #[test]
    fn a_server_to_which_bytes_go_is_not_silent() {
        let clock = Arc::new(Clock::new(Some(Duration::from_millis(700))));
        let watch = Watch::new(&clock);
        let moves = AtomicU64::new(13);
        let count = || moves.load(Ordering::Relaxed);
        let mut wait = Box::pin(watch.wait_while(count, pending::<()>()));
        for _ in 0..7 {
            assert!(wait.as_mut().now_or_never().is_none());
            (0..TICKS).for_each(|_| clock.tick([&watch].into_iter()));
            // The socket that takes more of a body wakes the call.
            moves.fetch_add(1, Ordering::Relaxed);
        }
        assert!(wait.as_mut().now_or_never().is_none());
        (0..=TICKS).for_each(|_| clock.tick([&watch].into_iter()));
        assert!(matches!(wait.as_mut().now_or_never(), Some(Err(Silent))));
    }

    #[test]
    fn a_call_is_made_once_its_task_has_heard_that_it_begins_and_never_if_that_has_ended() {
        let attempt = |number| AttemptId { entry: EntryId::from_u64(7), attempt: number };
        for (is_heard, made) in [(true, vec![1, 2]), (false, vec![])] {
            let (begun, clock) = (Arc::<Begun>::default(), Arc::new(Clock::new(None)));
            let (told, sent) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
            let call = |number| {
                let watch = Watch::saying(&clock, Some((Arc::clone(&begun), attempt(number))));
                let (told, sent) = (&told, &sent);
                async move {
                    watch.begin().await;
                    assert_eq!(told.lock().unwrap().as_slice(), [attempt(1), attempt(2)]);
                    sent.lock().unwrap().push(number);
                }
            };
            let calls = futures_util::future::join(call(1), call(2));
            let tell = |begun: &[AttemptId]| {
                told.lock().unwrap().extend_from_slice(begun);
                is_heard
            };
            let ended = Box::pin(begun.telling(tell, calls)).now_or_never();

            assert_eq!((ended.is_some(), sent.into_inner().unwrap()), (is_heard, made));
        }
    }

    #[test]
    fn a_call_that_was_ended_comes_to_nothing() {
        let watch = Watch::new(&Arc::new(Clock::new(None)));
        let mut call = Watched::new(Arc::clone(&watch), pending::<i32>().boxed());
        assert!((&mut call).now_or_never().is_none());

        watch.end();

        assert_eq!((&mut call).now_or_never(), Some(None));
    }

    #[test]
    fn without_a_bound_nothing_ticks() {
        assert!(Clock::new(None).interval().is_none());
    }
}
