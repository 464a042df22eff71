// SPDX-License-Identifier: Apache-2.0
//! The clock, the functions and the mail of a task in simulation.
//!
//! The world acts when the task looks at the clock or waits, and while its consumer does something
//! else: time passes, and what has come due is put into the mail, in any order and any groups.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow::array::RecordBatch;
use sparkawait_core::operator::AttemptId;
use sparkawait_core::policy::Stock;
use sparkawait_core::time::ProcessingTime;
use sparkawait_runtime::Patience;
use sparkawait_runtime::clock::Clock;
use sparkawait_runtime::parker::Parker;
use sparkawait_task::error::TaskError;
use sparkawait_task::function::{Replies, ReplyGroup};
use sparkawait_task::layer::cache::{CacheMetrics, Caches};
use sparkawait_task::task::TaskFeeder;

use crate::commits::Commits;
use crate::known::KnownRows;
use crate::limits::Bucket;
use crate::model::requests::Requests;
use crate::model::{Cache, Model};
use crate::panics::Panics;
use crate::random::Random;
use crate::scenario::{PanicPlace, Scenario};
use crate::trace::{Broken, Event, Id, Said, What};

mod answering;
pub mod caching;
pub mod journal;
pub mod noting;
mod remarks;
mod requesting;
mod shared_limit;
pub mod sharing;

use shared_limit::{Page, Place, SharedLimit};

/// Most looks at the clock in a row while neither time passes nor the task waits.
const MOST_LOOKS: u32 = 200_000;

/// Most waits of a task in a row with nothing between them; longer ones follow. While its channel
/// is held, a row that was never called has as little time left at each look, sometimes
/// nanoseconds.
const MOST_WAITS: u32 = 1_000;
const LONGER: u64 = 1_000_000;

/// Events of a task, at most.
const MOST_EVENTS: usize = 400_000;

/// An answer that is on its way.
#[derive(Clone, Debug)]
struct Answer {
    site: usize,
    attempt: AttemptId,
    id: Id,
    said: Said,
    /// Whether it comes although its call was cancelled.
    comes_anyway: bool,
}

/// What follows when the request of a call is made: answers, and after how long.
type Answers = Vec<(u64, Answer)>;

/// What the input does next.
#[derive(Debug)]
pub enum Feed {
    /// A batch, of so many rows.
    Batch(RecordBatch),
    /// The end of a part.
    EndOfPart(u64),
    /// The end.
    End,
    /// It fails.
    Failure,
}

/// What to tell the task once the world is not looked at.
enum Letter {
    Replies(Replies, Box<ReplyGroup>),
    Requested(Replies, AttemptId),
    Feed(TaskFeeder, Feed),
}

/// Lets the consumer of a task that a thread drives look at its outlet; returns whether that wakes the
/// thread.
pub type Looking = Box<dyn FnMut() -> bool + Send>;

/// All that is around a task.
pub struct World {
    scenario: Arc<Scenario>,
    /// What is known of the task.
    pub model: Model,
    /// Nanoseconds.
    pub now: u64,
    random: Random,
    /// Answers by the time at which they come.
    answers: BTreeMap<(u64, u64), Answer>,
    next_answer: u64,
    next_serial: i64,
    cancelled: BTreeSet<(usize, AttemptId)>,
    hidden: Vec<Option<Bucket>>,
    /// What is known of the cache of each function.
    cached: Vec<Option<Cache>>,
    cache_metrics: Vec<Arc<CacheMetrics>>,
    /// The caches of the tasks.
    pub caches: Option<Arc<Caches>>,
    requests: Vec<Option<Requests<Answers>>>,
    /// Where limits are that others take from.
    page: Option<Page>,
    /// Those, by function and channel; they outlive a task.
    shared_limits: BTreeMap<Place, SharedLimit>,
    shared_counts: BTreeMap<usize, Bucket>,
    /// Permits that functions have together.
    pools: Vec<Option<Arc<Mutex<Stock>>>>,
    /// What the journal was given, if there is one.
    pub journal: Option<Commits>,
    /// Requests that were made and that the task must hear about.
    requested: Vec<(usize, AttemptId)>,
    /// The ways of replies.
    pub replies: Vec<Option<Replies>>,
    /// What the input does.
    pub input: VecDeque<Feed>,
    feed_at: u64,
    /// Where it goes.
    pub feeder: Option<TaskFeeder>,
    looks: u32,
    /// Waits in a row between which nothing happened.
    waits: u32,
    /// Looks of a new task at the clock in which no time passes.
    pub fresh_looks: u32,
    /// When something happened last.
    moved_at: u64,
    /// What happened.
    pub events: Vec<Event>,
    /// The first rule that was broken.
    pub broken: Option<Broken>,
    /// Whether the task has ended.
    pub has_ended: bool,
    /// Who takes what a thread puts out.
    pub consumer: Option<Looking>,
}

sparkawait_core::opaque_debug!(World);

/// The world as functions and the clock share it.
#[derive(Clone, Debug)]
pub struct Shared {
    world: Arc<Mutex<World>>,
    panics: Arc<Panics>,
}

impl Shared {
    /// Makes the world of a scenario, of the run of this number, for which this is known.
    pub fn new(scenario: &Arc<Scenario>, run: u64, known: KnownRows) -> Self {
        let plans = scenario.operators.iter().flat_map(|it| &it.calls);
        let hidden = plans.clone().map(|plan| {
            plan.hidden.map(|(period, permits, burst)| Bucket::new(permits, period, burst))
        });
        // Who has used a crowded page did so more than a minute ago.
        let now = if scenario.is_crowded { 61_000_001_000 } else { 1_000 };
        let world = World {
            model: Model::new(scenario),
            now,
            random: Random(scenario.seed ^ run),
            answers: BTreeMap::new(),
            next_answer: 0,
            next_serial: 1,
            cancelled: BTreeSet::new(),
            hidden: hidden.collect(),
            cached: plans.clone().map(Cache::new).collect(),
            cache_metrics: plans.clone().map(|_| Arc::default()).collect(),
            caches: None,
            requests: plans.clone().map(Requests::new).collect(),
            page: None,
            shared_limits: BTreeMap::new(),
            shared_counts: BTreeMap::new(),
            pools: shared_limit::pools(scenario),
            journal: scenario.journal.map(|plan| Commits::new(plan, scenario.seed ^ run, known)),
            requested: Vec::new(),
            replies: vec![None; plans.count()],
            input: VecDeque::new(),
            feed_at: 0,
            feeder: None,
            looks: 0,
            waits: 0,
            fresh_looks: 0,
            moved_at: now,
            events: Vec::new(),
            broken: None,
            has_ended: false,
            consumer: None,
            scenario: Arc::clone(scenario),
        };
        let panics = Arc::new(Panics::new(scenario.panics));
        Self { world: Arc::new(Mutex::new(world)), panics }
    }

    /// What panics on the thread of the task.
    pub fn panics(&self) -> &Arc<Panics> {
        &self.panics
    }

    /// Lets the consumer look, if a thread drives the task; returns whether it wakes the thread.
    fn consume(&self) -> bool {
        // It looks at the world itself. One that panics is gone: the task ends then.
        let Some(mut looking) = self.world().consumer.take() else { return false };
        let wakes = looking();
        self.world().consumer = Some(looking);
        wakes
    }

    /// Looks at the world.
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the consumer do something else.
    pub fn pause(&self) {
        let letters = {
            let mut world = self.world();
            let most = world.scenario.consumer_pause;
            if most > 0 && world.fresh_looks == 0 && world.random.in_a_hundred(30) {
                world.now += world.random.next() % most;
            }
            world.due_letters(70)
        };
        self.post(letters);
    }

    /// Lets all answers come that are left: nobody takes them.
    pub fn answer_all(&self) {
        let mut letters = Vec::new();
        {
            let mut world = self.world();
            world.feeder = None;
            world.requests.iter_mut().flatten().for_each(Requests::restart);
            world.now =
                world.answers.keys().next_back().map_or(world.now, |it| it.0.max(world.now));
            while !world.answers.is_empty() {
                letters.extend(world.due_letters(100));
            }
        }
        self.post(letters);
    }

    /// Tells of requests that were made: at once, before anybody looks at the time.
    pub fn tell_requests(&self) {
        let letters = self.world().requested_letters();
        self.post(letters);
    }

    /// Puts letters into the mail: outside of the world, which functions look at.
    fn post(&self, letters: Vec<Letter>) {
        for letter in letters {
            match letter {
                Letter::Replies(replies, group) => {
                    let is_open = replies.send(*group);
                    let mut world = self.world();
                    if is_open && world.has_ended {
                        world.fail("no mail after the end", "a reply was taken");
                    }
                }
                Letter::Requested(replies, first) => replies.requested(first),
                Letter::Feed(feeder, feed) => self.feed(&feeder, feed),
            }
        }
    }

    fn feed(&self, feeder: &TaskFeeder, feed: Feed) {
        let refused = match feed {
            Feed::Batch(batch) => {
                let rows = batch.num_rows();
                // Known before the task can see it.
                let now = self.world().now;
                let before = self.world().model.fed.len();
                self.world().model.fed.extend(std::iter::repeat_n(now, rows));
                self.world().note_known(before, rows);
                match feeder.put_within(batch, Duration::ZERO) {
                    Ok(_) => {
                        self.world().note(What::Fed { rows });
                        None
                    }
                    Err(batch) => {
                        let first = i64::try_from(before).unwrap_or_default();
                        self.world().model.fed.truncate(before);
                        self.world().model.forgets((first..).take(rows));
                        Some(Feed::Batch(batch))
                    }
                }
            }
            Feed::EndOfPart(linger) => {
                let patience = match linger {
                    u64::MAX => Patience::Drain,
                    linger => Patience::Linger(Duration::from_nanos(linger)),
                };
                feeder.put_end_of_part(patience);
                None
            }
            Feed::End => {
                feeder.put_end();
                self.world().note(What::InputEnded);
                None
            }
            Feed::Failure => {
                self.world().model.is_ending = true;
                feeder.put_failure(TaskError::Internal("the input fails".to_owned()));
                None
            }
        };
        let mut world = self.world();
        if let Some(feed) = refused {
            world.input.push_front(feed);
        } else {
            let gap = world.scenario.feed_gap.max(1);
            world.feed_at = world.now + world.random.next() % gap;
        }
    }
}

/// The clock of one task, which starts with it.
#[derive(Clone, Debug)]
pub struct TaskClock {
    shared: Shared,
    origin: u64,
}

impl TaskClock {
    /// Starts a clock now.
    pub fn start(shared: &Shared) -> Self {
        Self { shared: shared.clone(), origin: shared.world().now }
    }
}

impl Clock for TaskClock {
    fn now(&self) -> ProcessingTime {
        self.shared.panics.pass(PanicPlace::Clock);
        self.shared.consume();
        let letters = self.shared.world().look();
        self.shared.post(letters);
        ProcessingTime::from_nanos(self.shared.world().now - self.origin)
    }

    fn park(&self, _parker: &Parker, timeout: Duration) {
        // A wake-up is remembered until the next wait.
        if self.shared.consume() {
            return;
        }
        let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let letters = self.shared.world().park(timeout);
        self.shared.post(letters);
    }
}

impl World {
    /// Notes what happened.
    pub fn note(&mut self, what: What) {
        if !matches!(what, What::Parked { .. }) {
            (self.moved_at, self.waits) = (self.now, 0);
        }
        if self.events.len() >= MOST_EVENTS {
            self.fail("a task ends", format!("{MOST_EVENTS} events"));
            return;
        }
        self.events.push(Event { at: self.now, what });
    }

    /// Notes that the task has waited; waits in a row are one.
    fn note_wait(&mut self, waited: u64) {
        if let Some(Event { what: What::Parked { nanos }, .. }) = self.events.last_mut() {
            *nanos += waited;
        } else {
            self.note(What::Parked { nanos: waited });
        }
    }

    /// Keeps the first rule that is broken.
    pub fn breaks<T>(&mut self, checked: Result<T, Broken>) -> Option<T> {
        match checked {
            Ok(value) => Some(value),
            Err(broken) => {
                self.broken.get_or_insert(broken);
                None
            }
        }
    }

    /// Notes that a rule is broken.
    pub fn fail(&mut self, rule: &'static str, what: impl Into<String>) {
        self.broken.get_or_insert_with(|| Broken::new(rule, what));
    }

    /// The task looks at the clock.
    fn look(&mut self) -> Vec<Letter> {
        self.looks += 1;
        if self.looks > MOST_LOOKS {
            self.fail("a task waits for something", "it looks at the clock for ever");
        }
        if self.broken.is_some() {
            // So that its turn ends.
            self.now += 1_000_000_000;
            return Vec::new();
        }
        // What is restored starts when its task is made, so that begins at once.
        let is_fresh = self.fresh_looks > 0;
        self.fresh_looks = self.fresh_looks.saturating_sub(1);
        if !is_fresh && self.scenario.jitter > 0 && self.random.in_a_hundred(20) {
            self.now += self.random.next() % self.scenario.jitter;
            self.looks = 0;
        }
        if self.random.in_a_hundred(15) { self.due_letters(50) } else { Vec::new() }
    }

    /// The task waits.
    fn park(&mut self, timeout: u64) -> Vec<Letter> {
        if self.broken.is_some() {
            self.now += 1_000_000_000;
            return Vec::new();
        }
        if timeout > 0 {
            self.looks = 0;
        }
        let (now, checked) = (self.now, self.model.parked(self.now));
        self.breaks(checked);
        self.check_due_commits();
        self.check_told();
        self.requests.iter_mut().flatten().for_each(Requests::parked);
        let checked = self.cached.iter().flatten().try_for_each(Cache::parked);
        self.breaks(checked);
        let due = self.next_due().filter(|it| *it <= now);
        if due.is_none() {
            let timeout = if self.waits > MOST_WAITS { timeout.max(LONGER) } else { timeout };
            let next = self.next_due().unwrap_or(u64::MAX);
            let until = (now.saturating_add(timeout)).min(next);
            self.now = until.max(now);
            if self.scenario.jitter > 0 && self.random.in_a_hundred(10) {
                self.now += self.random.next() % self.scenario.jitter;
            }
        }
        self.note_wait(self.now - now);
        self.waits += 1;
        let longest = self.scenario.longest();
        if self.now - self.moved_at > longest && self.answers.is_empty() {
            let what = format!(
                "nothing happened for {longest} ns, {} calls in flight",
                self.model.in_flight()
            );
            self.fail("progress", what);
        }
        self.due_letters(80)
    }

    /// When something comes.
    fn next_due(&self) -> Option<u64> {
        let answer = self.answers.keys().next().map(|it| it.0);
        // What is refused is tried again whenever something happens.
        let feed = (self.feeder.is_some() && !self.input.is_empty() && self.feed_at > self.now)
            .then_some(self.feed_at);
        let commit = self.journal.as_ref().and_then(|it| it.next_end(self.now));
        [answer, feed, commit, self.next_request()].into_iter().flatten().min()
    }

    /// Returns most of what is due, of a hundred letters so many; at least one.
    fn due_letters(&mut self, most: usize) -> Vec<Letter> {
        let mut letters = self.requested_letters();
        if let Some(feeder) = self.feeder.clone()
            && self.feed_at <= self.now
            && let Some(feed) = self.input.pop_front()
        {
            letters.push(Letter::Feed(feeder, feed));
        }
        let due: Vec<(u64, u64)> =
            self.answers.range(..=(self.now, u64::MAX)).map(|it| *it.0).collect();
        let mut groups: BTreeMap<usize, Vec<Answer>> = BTreeMap::new();
        for at in due {
            if !letters.is_empty() && !self.random.in_a_hundred(most) {
                continue;
            }
            let Some(answer) = self.answers.remove(&at) else { continue };
            let site = answer.site;
            groups.entry(site).or_default().push(answer);
            if self.random.in_a_hundred(40) {
                let group = groups.remove(&site).unwrap_or_default();
                letters.extend(self.letter(site, group));
            }
            if letters.is_empty() && self.random.in_a_hundred(10) {
                break;
            }
        }
        let mut groups: Vec<(usize, Vec<Answer>)> = groups.into_iter().collect();
        if self.random.in_a_hundred(50) {
            groups.reverse();
        }
        for (site, group) in groups {
            letters.extend(self.letter(site, group));
        }
        letters
    }
}
