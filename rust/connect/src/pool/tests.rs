// SPDX-License-Identifier: Apache-2.0
//! Tests of the pool with connections that lead nowhere.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::runtime::Builder;
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::{AbortHandle, yield_now};
use tokio::time::timeout;

use super::idleness::{CAREFUL_IDLE, ONLY_CAREFUL};
use super::state::{MOST_LEFT, PATIENCE, next_beside};
use super::*;
use crate::dial::{HIGHEST_AGE, HIGHEST_IDLE};

/// A connection; `calls` share it, if it says so.
struct Line {
    number: usize,
    calls: Option<Arc<AtomicUsize>>,
    room: usize,
    condition: Condition,
}

impl Line {
    fn whole(number: usize) -> Self {
        Self { number, calls: None, room: 1, condition: Condition::Good }
    }

    fn shared(number: usize) -> Self {
        Self::wide(number, 1)
    }

    fn wide(number: usize, room: usize) -> Self {
        Self { calls: Some(Arc::default()), room, ..Self::whole(number) }
    }
}

/// Room for a call.
struct Call(usize, Arc<AtomicUsize>);

impl Drop for Call {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Connection for Line {
    type Room = Call;

    fn condition(&mut self) -> Condition {
        self.condition
    }

    fn room(&self) -> usize {
        self.room
    }

    fn is_shared(&self) -> bool {
        self.calls.is_some()
    }

    fn enter(&mut self) -> Option<Call> {
        if self.load() >= self.room { None } else { self.squeeze() }
    }

    fn squeeze(&mut self) -> Option<Call> {
        let calls = self.calls.as_ref()?;
        calls.fetch_add(1, Ordering::SeqCst);
        Some(Call(self.number, Arc::clone(calls)))
    }

    fn load(&self) -> usize {
        self.calls.as_ref().map_or(0, |it| it.load(Ordering::SeqCst))
    }

    fn idle_since(&self, kept: Instant) -> Option<Instant> {
        (self.load() == 0).then_some(kept)
    }
}

/// Numbers connections; each needs a permit.
struct Numbered<const IS_BOUNDED: bool> {
    begun: AtomicUsize,
    go: Arc<Semaphore>,
    make: fn(usize) -> Result<Line, usize>,
}

impl<const IS_BOUNDED: bool> Dial for Numbered<IS_BOUNDED> {
    type Connection = Line;
    type Failure = usize;

    const NAME: &'static str = "test";

    const IS_BOUNDED: bool = IS_BOUNDED;

    async fn dial(&self) -> Result<Line, usize> {
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        drop(self.go.acquire().await.map(SemaphorePermit::forget));
        assert_ne!(number, 13, "out of luck");
        (self.make)(number)
    }

    fn panicked() -> usize {
        13
    }
}

/// Where as many connections are made as calls need.
type Open = Numbered<false>;

fn pool(make: fn(usize) -> Result<Line, usize>) -> (Arc<Pool<Numbered<true>>>, Arc<Semaphore>) {
    let go = Arc::new(Semaphore::new(0));
    let dial = Numbered { begun: AtomicUsize::new(0), go: Arc::clone(&go), make };
    (Pool::new(dial, Some(1)), go)
}

/// Lets tasks do what they can.
async fn settle() {
    for _ in 0..23 {
        yield_now().await;
    }
}

fn begun(pool: &Pool<Numbered<true>>) -> usize {
    pool.dial().begun.load(Ordering::SeqCst)
}

fn number(lease: &Lease<Line>) -> usize {
    match lease {
        Lease::Whole(kept) => kept.connection.number,
        Lease::Room(call) => call.0,
    }
}

const OLD: Wish = Wish { is_new: false, careful: false };
const CAREFUL: Wish = Wish { is_new: false, careful: true };
const NEW: Wish = Wish { is_new: true, careful: false };

#[tokio::test]
async fn what_calls_leave_behind_is_for_those_that_come_later() {
    let (pool, go) = pool(|number| Ok(Line::whole(number)));
    for _ in 0..3 {
        let mut calls: Vec<_> = (0..4).map(|_| Box::pin(pool.take(OLD))).collect();
        assert!(calls.iter_mut().all(|it| it.now_or_never().is_none()));
        settle().await;
        assert_eq!(begun(&pool), 4, "as many as there are calls at a time");
    }
    let mut last = Box::pin(pool.take(OLD));
    assert!((&mut last).now_or_never().is_none());

    go.add_permits(4);
    let Ok(Lease::Whole(kept)) = last.await else { panic!("no connection") };
    assert_eq!(kept.age.idle_since(), None);
    settle().await;
    let others: Vec<_> = (0..3).map(|_| pool.take(OLD).now_or_never().unwrap().unwrap()).collect();
    let Lease::Whole(left) = &others[0] else { panic!("it is shared") };
    assert!(left.age.idle_since().is_some(), "it was not made for this call");
    assert!(pool.take(OLD).now_or_never().is_none(), "each is had by one");

    let (taken, mut wanted) = (kept.connection.number, Box::pin(pool.take(OLD)));
    assert!((&mut wanted).now_or_never().is_none());
    pool.keep(kept);
    assert_eq!(number(&wanted.await.unwrap()), taken, "whatever comes first");
}

#[tokio::test]
async fn each_failure_is_told_to_one_call_and_to_none_that_came_later() {
    let (pool, go) = pool(Err);
    let mut calls: Vec<_> = (0..3).map(|_| Box::pin(pool.take(OLD))).collect();
    assert!(calls.iter_mut().all(|it| it.now_or_never().is_none()));
    settle().await;
    drop(calls.pop());
    go.add_permits(3);
    settle().await;

    let mut told: Vec<_> = Vec::new();
    for call in calls {
        told.push(call.await.err());
    }
    assert_eq!(told, [Some(1), Some(2)]);
    assert!(pool.take(OLD).now_or_never().is_none());
    assert!(pool.state().backoff.rest(Instant::now()).is_some());
}

#[tokio::test]
async fn a_panic_is_a_failure() {
    let (pool, go) = pool(|number| Ok(Line::whole(number)));
    pool.dial().begun.store(12, Ordering::SeqCst);
    go.add_permits(1);

    assert_eq!(pool.take(OLD).await.err(), Some(13));
}

#[tokio::test]
async fn where_a_server_allows_no_more_connections_calls_share_those_that_there_are() {
    let (pool, go) = pool(|number| if number < 3 { Ok(Line::shared(number)) } else { Err(number) });
    go.add_permits(23);
    let mut calls = Vec::new();
    for _ in 0..4 {
        calls.push(pool.take(OLD).await.unwrap());
    }
    let mut numbers: Vec<_> = calls.iter().map(number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 1, 2, 2]);
}

/// A state without connections, and a time.
fn state() -> (State<Numbered<true>>, Instant) {
    (State::new(Some(1)), Instant::now())
}

/// Begins a connection; returns its number.
fn begin<D: Dial>(state: &mut State<D>, now: Instant) -> u64 {
    let number = state.number();
    state.begin(number, spawn_aside(&Handle::current(), "test", pending()), now);
    number
}

/// Has connections made.
fn make<D>(state: &mut State<D>, lines: impl IntoIterator<Item = Line>, now: Instant)
where
    D: Dial<Connection = Line>,
{
    for line in lines {
        let number = begin(state, now);
        state.end(number, Ok(line), now);
    }
}

/// What a call does, as a word.
fn word<D: Dial>(state: &mut State<D>, now: Instant, wish: Wish, caller: Caller) -> &'static str {
    match state.next(now, wish, caller) {
        Next::Take(_) => "take",
        Next::Fail(_) => "fail",
        Next::Dial => "dial",
        Next::Wait(_) => "wait",
    }
}

#[tokio::test]
async fn failures_at_the_same_time_are_one_and_further_ones_wait_longer() {
    let (mut state, start) = state();
    let mut rests = Vec::new();
    let mut now = start;
    for _ in 0..3 {
        let numbers: Vec<_> = (0..4).map(|_| begin(&mut state, now)).collect();
        now += Duration::from_millis(7);
        for number in numbers {
            state.end(number, Err(0), now);
        }
        let rest = state.backoff.rest(now).unwrap();
        rests.push(rest.as_millis());
        now += rest;
    }
    assert_eq!(rests, [50, 100, 200]);

    make(&mut state, [Line::whole(1)], now);
    assert_eq!(state.backoff.rest(now), None);
}

#[tokio::test]
async fn a_connection_is_left_alone_that_its_server_may_close_at_any_moment() {
    let (mut state, start) = state();
    make(&mut state, (1..=3).map(Line::whole), start);

    let soon = start + CAREFUL_IDLE - Duration::from_millis(1);
    assert_eq!(word(&mut state, soon, OLD, Caller::New), "take");
    assert_eq!(word(&mut state, soon, CAREFUL, Caller::New), "take");
    let late = start + CAREFUL_IDLE;
    assert_eq!(word(&mut state, late, CAREFUL, Caller::New), "dial", "it is left to others");
    assert_eq!(word(&mut state, late, OLD, Caller::New), "take");

    // One of many streams, too: not each server says by a GOAWAY that it closes one.
    let (mut state, start) = self::state();
    make(&mut state, [Line::shared(1)], start);
    assert_eq!(word(&mut state, start + CAREFUL_IDLE, CAREFUL, Caller::New), "dial");
}

#[tokio::test]
async fn connections_of_those_who_write_are_not_kept_for_nobody() {
    let (mut state, start) = state();
    make(&mut state, [Line::shared(1), Line::shared(2)], start);
    assert_eq!(word(&mut state, start, OLD, Caller::New), "take");
    let late = start + CAREFUL_IDLE;
    state.sweep(late);
    assert_eq!(word(&mut state, late, OLD, Caller::New), "take");

    let late = late + ONLY_CAREFUL;
    make(&mut state, [Line::shared(3)], late);
    state.sweep(late + CAREFUL_IDLE);
    assert_eq!(word(&mut state, late + CAREFUL_IDLE, OLD, Caller::New), "dial");
}

#[tokio::test]
async fn what_a_server_closes_is_a_lesson_and_what_we_give_up_is_none() {
    for (condition, expected) in [(Condition::Closed, "dial"), (Condition::Spent, "take")] {
        let (mut state, start) = state();
        let over = Line { condition, ..Line::whole(1) };
        make(&mut state, [over], start);
        let closed = start + Duration::from_secs(7);
        state.sweep(closed);
        assert_eq!(word(&mut state, closed, OLD, Caller::New), "dial");

        make(&mut state, [Line::whole(2)], closed);
        let later = closed + Duration::from_millis(5_001);
        assert_eq!(word(&mut state, later, OLD, Caller::New), expected, "{condition:?}");
    }
}

#[tokio::test]
async fn connections_end_at_their_highest_age_and_not_all_at_once() {
    let (mut state, start) = state();
    make(&mut state, (0..4).map(Line::whole), start);
    let mut taken = Vec::new();
    while let Next::Take(Lease::Whole(kept)) = state.next(start, OLD, Caller::New) {
        taken.push(kept);
    }
    let ages: Vec<_> = taken.iter().map(|it| it.age.until - start).collect();
    assert!(ages.is_sorted() && ages[0] < ages[3], "{ages:?}");
    assert!(ages[0] > HIGHEST_AGE * 9 / 10 && ages[3] < HIGHEST_AGE);

    let now = taken[1].age.until;
    for it in taken {
        state.keep(it, now);
    }
    assert_eq!(word(&mut state, now, OLD, Caller::New), "take");
    assert_eq!(word(&mut state, now, OLD, Caller::New), "take");
    assert_eq!(word(&mut state, now, OLD, Caller::New), "dial");
}

#[tokio::test]
async fn a_connection_that_somebody_has_is_not_idle() {
    let (mut state, start) = state();
    make(&mut state, [Line::shared(1)], start);
    let Next::Take(call) = state.next(start, OLD, Caller::New) else { panic!("it is there") };
    state.sweep(start + HIGHEST_IDLE * 2);
    drop(call);
    assert_eq!(word(&mut state, start + HIGHEST_IDLE / 2, OLD, Caller::New), "take");

    state.sweep(start + HIGHEST_IDLE * 2);
    assert_eq!(word(&mut state, start, OLD, Caller::New), "dial");
}

#[tokio::test]
async fn after_a_lost_one_a_call_gets_one_that_nobody_had() {
    let (mut state, start) = state();
    make(&mut state, [Line::whole(1), Line::whole(2)], start);
    state.lacking = 1;
    assert_eq!(word(&mut state, start, NEW, tired(start)), "dial");
    let Next::Take(Lease::Whole(kept)) = state.next(start, OLD, Caller::New) else {
        panic!("none")
    };
    state.close_before(kept.age.idle_since().unwrap());
    assert_eq!(word(&mut state, start, OLD, Caller::New), "dial", "the other one was as old");

    make(&mut state, [Line::whole(3)], start);
    assert_eq!(word(&mut state, start, NEW, tired(start)), "take");
}

/// Has calls come that must not be sent twice, all at a time; returns how many connections stay.
fn calls(state: &mut State<Open>, now: Instant) -> usize {
    let mut taken = Vec::new();
    while taken.len() < 13 {
        match state.next(now, CAREFUL, Caller::New) {
            Next::Take(Lease::Whole(kept)) => taken.push(kept),
            _ => make(state, [Line::whole(0)], now),
        }
    }
    for it in taken {
        state.keep(it, now);
    }
    state.idle_since().count()
}

#[tokio::test]
async fn calls_that_must_not_be_sent_twice_do_not_gather_connections() {
    let mut state = State::new(Some(1));
    let start = Instant::now();
    let every = Duration::from_millis(4_700);
    for round in 0..10 {
        assert_eq!(calls(&mut state, start + every * round), 13, "round {round}");
    }
    let now = start + every * 9;
    assert_eq!(word(&mut state, now, OLD, Caller::New), "take");
    let kept = calls(&mut state, now + every);
    assert_eq!(kept, 13 + 12, "others may use the old ones, and have used one");

    assert!(state.sweep(now + every * 2));
    assert_eq!(state.idle_since().count(), 25);
    let later = now + ONLY_CAREFUL;
    assert_eq!(calls(&mut state, later), 13);
    assert!(!state.sweep(later + CAREFUL_IDLE));
}

/// A call that has waited for what others have begun as long as it does.
fn tired(now: Instant) -> Caller {
    Caller::Waits(now.checked_sub(PATIENCE).unwrap())
}

/// Has calls wait, and connections be made for them; returns how many.
fn dials(state: &mut State<Open>, calls: usize, now: Instant) -> usize {
    let mut dials = 0;
    for _ in 0..calls {
        state.lacking += 1;
        if word(state, now, OLD, tired(now)) == "dial" {
            begin(state, now);
            dials += 1;
        }
    }
    dials
}

#[tokio::test]
async fn one_call_makes_the_first_connection_and_the_others_wait() {
    let (mut state, now) = (State::new(None), Instant::now());
    assert_eq!(dials(&mut state, 23, now), 1);

    assert!(state.end(1, Ok(Line::whole(1)), now), "all look again");
    assert_eq!(word(&mut state, now, OLD, tired(now)), "take");
    state.leave();
    for _ in 0..22 {
        assert_eq!(word(&mut state, now, OLD, tired(now)), "dial", "each has its own");
        begin(&mut state, now);
    }
    assert_eq!(word(&mut state, now, OLD, tired(now)), "wait");
    assert!(!state.end(2, Ok(Line::whole(2)), now), "one of them has it");
}

#[tokio::test]
async fn as_many_connections_are_made_at_a_time_as_the_waiting_calls_need() {
    let (mut state, now) = (State::new(Some(7)), Instant::now());
    assert_eq!(dials(&mut state, 23, now), 4);
}

#[tokio::test]
async fn a_call_has_one_connection_made_beside_those_that_stall_and_waits_for_that() {
    let (mut state, start) = (State::new(Some(1)), Instant::now());
    assert_eq!(dials(&mut state, 1, start), 1);
    state.leave();
    let soon = start + PATIENCE / 2;
    let Next::Wait(Some(until)) = state.next(soon, OLD, Caller::New) else { panic!("no wait") };
    assert_eq!(until, soon + PATIENCE);
    state.lacking = 1;
    assert_eq!(word(&mut state, until, OLD, Caller::Waits(soon)), "dial");
    begin(&mut state, until);
    let late = until + PATIENCE * 3;
    assert!(matches!(state.next(late, OLD, Caller::HasDialled), Next::Wait(None)));

    let Next::Wait(Some(until)) = state.next(late, OLD, Caller::New) else { panic!("no wait") };
    assert_eq!(until, late + PATIENCE, "two are under way for two, and may be there soon");
    state.lacking = 2;
    assert_eq!(word(&mut state, until, OLD, Caller::Waits(late)), "dial");
}

#[tokio::test]
async fn after_connections_that_stall_or_fail_more_are_made_at_a_time() {
    let (mut state, mut now) = (State::new(None), Instant::now());
    for expected in [1, 2, 4, 8] {
        assert_eq!(dials(&mut state, 100, now), expected);
        state.lacking = 0;
        now += PATIENCE;
    }
    state.end(1, Err(1), now);
    assert_eq!(dials(&mut state, 100, now), 32, "all have stalled, and one has failed");
    state.end(2, Ok(Line::wide(2, 0)), now);
    state.lacking = 0;
    now += PATIENCE;
    assert_eq!(dials(&mut state, 1, now), 0, "it takes no call for the moment");
}

#[tokio::test]
async fn what_is_made_for_calls_that_gave_up_is_bounded() {
    let (mut state, mut now) = (State::<Open>::new(Some(1)), Instant::now());
    for _ in 0..MOST_LEFT + 7 {
        assert_eq!(dials(&mut state, 1, now), 1);
        state.leave();
        now += PATIENCE;
    }
    assert!(!state.is_empty());
    assert_eq!(state.dials(), MOST_LEFT + 1, "and the one that a call waited for");
}

#[test]
fn a_server_that_takes_no_request_for_the_moment_gets_few_connections() {
    let start = Instant::now();
    let mut made: Vec<Instant> = Vec::new();
    for millisecond in 0..63_000 {
        let now = start + Duration::from_millis(millisecond);
        if next_beside(made.iter().copied()).is_none_or(|it| it <= now) {
            made.push(now);
        }
    }
    let seconds: Vec<u64> = made.iter().map(|it| (*it - start).as_secs()).collect();
    assert_eq!(seconds, [0, 1, 3, 7, 15, 31]);
}

#[tokio::test]
async fn calls_over_a_connection_that_takes_none_look_again_and_do_not_make_others_at_once() {
    let (mut state, start) = (State::<Open>::new(None), Instant::now());
    make(&mut state, [Line::wide(1, 0)], start);
    let soon = start + Duration::from_millis(999);
    let Next::Wait(Some(until)) = state.next(soon, OLD, Caller::New) else { panic!("no wait") };
    assert_eq!(until, start + Duration::from_secs(1));
    assert_eq!(word(&mut state, until, OLD, Caller::New), "dial");
}

/// What a call came to, by its number.
type Ended = (usize, Result<Lease<Line>, usize>);

/// Has calls come, give up, end, and connections be made, as `steps` say, and then has all of them end that
/// have not given up: none waits for ever.
async fn play<const IS_BOUNDED: bool>(
    steps: Vec<u8>,
    room: Option<usize>,
    make: fn(usize) -> Result<Line, usize>,
) {
    let go = Arc::new(Semaphore::new(0));
    let dial = Numbered::<IS_BOUNDED> { begun: AtomicUsize::new(20), go: Arc::clone(&go), make };
    let pool = Pool::new(dial, room);
    let (tell, mut told) = unbounded_channel::<Ended>();
    let (mut waiting, mut held) = (BTreeMap::new(), Vec::new());
    let give_back = |lease| match lease {
        Lease::Whole(kept) => pool.keep(kept),
        Lease::Room(call) => {
            drop(call);
            pool.has_room();
        }
    };
    for (number, step) in steps.into_iter().enumerate() {
        match step % 8 {
            0..=2 => {
                let (pool, tell) = (Arc::clone(&pool), tell.clone());
                let wish = [OLD, CAREFUL, NEW][usize::from(step / 8) % 3];
                let call = spawn_aside(&Handle::current(), "test", async move {
                    let ended = pool.take(wish).await;
                    assert!(tell.send((number, ended)).is_ok());
                });
                waiting.insert(number, call);
            }
            3 => {
                let given_up = waiting.keys().nth(usize::from(step / 8)).copied();
                let call = given_up.and_then(|it| waiting.remove(&it));
                call.inspect(AbortHandle::abort);
            }
            4 | 5 => go.add_permits(1),
            _ => held.pop().into_iter().for_each(give_back),
        }
        if step % 3 > 0 {
            settle().await;
        }
        while let Ok((number, ended)) = told.try_recv() {
            waiting.remove(&number);
            held.extend(ended);
        }
    }
    held.into_iter().for_each(give_back);
    go.add_permits(1000);
    while !waiting.is_empty() {
        let Ok(Some((number, ended))) = timeout(Duration::from_secs(20), told.recv()).await else {
            panic!("{} calls wait for ever", waiting.len())
        };
        waiting.remove(&number);
        ended.into_iter().for_each(give_back);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_call_waits_for_ever(steps in vec(any::<u8>(), 0..97)) {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let some_fail = |it: usize| if it.is_multiple_of(5) { Err(it) } else { Ok(Line::whole(it)) };
        let wide = |it: usize| if it.is_multiple_of(5) { Err(it) } else { Ok(Line::wide(it, 3)) };
        runtime.block_on(play::<true>(steps.clone(), Some(1), |it| Ok(Line::whole(it))));
        runtime.block_on(play::<true>(steps.clone(), Some(1), |it| Ok(Line::shared(it))));
        runtime.block_on(play::<false>(steps.clone(), Some(1), some_fail));
        runtime.block_on(play::<false>(steps.clone(), None, some_fail));
        runtime.block_on(play::<false>(steps, None, wide));
    }
}
