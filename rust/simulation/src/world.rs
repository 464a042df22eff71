// SPDX-License-Identifier: Apache-2.0
//! The clock, the functions and the mail of a task in simulation.
//!
//! The world acts when the task looks at the clock or waits, and while its consumer does something
//! else: time passes, and what has come due is put into the mail, in any order and any groups.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow::array::{Int64Array, RecordBatch};
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::{AttemptId, Retry};
use sparkawait_core::policy::CallSign;
use sparkawait_core::time::ProcessingTime;
use sparkawait_runtime::Patience;
use sparkawait_runtime::clock::Clock;
use sparkawait_runtime::parker::Parker;
use sparkawait_task::error::{CallFailure, TaskError};
use sparkawait_task::function::{FailedCall, Known, Replies, ReplyGroup, ResultGroup};
use sparkawait_task::task::TaskFeeder;

use crate::columns::{numbers, result_name};
use crate::limits::Bucket;
use crate::model::Model;
use crate::random::Random;
use crate::scenario::Scenario;
use crate::trace::{Broken, Event, Id, Path, Said, What, choice};

pub mod noting;

/// Looks at the clock between two of which time passes or the task waits, at most.
const MOST_LOOKS: u32 = 200_000;

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

/// What is to be told to the task once the world is not looked at.
enum Letter {
    Replies(Replies, Box<ReplyGroup>),
    Feed(TaskFeeder, Feed),
}

/// All that is around a task.
#[derive(Debug)]
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
    /// The ways of replies.
    pub replies: Vec<Option<Replies>>,
    /// What the input does.
    pub input: VecDeque<Feed>,
    feed_at: u64,
    /// Where it goes.
    pub feeder: Option<TaskFeeder>,
    looks: u32,
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
}

/// The world as functions and the clock share it.
#[derive(Clone, Debug)]
pub struct Shared(Arc<Mutex<World>>);

impl Shared {
    /// Makes the world of a scenario.
    pub fn new(scenario: &Arc<Scenario>) -> Self {
        let plans = scenario.operators.iter().flat_map(|it| &it.calls);
        let hidden = plans.clone().map(|plan| {
            plan.hidden.map(|(period, permits, burst)| Bucket::new(permits, period, burst))
        });
        let world = World {
            model: Model::new(scenario),
            now: 1_000,
            random: Random(scenario.seed),
            answers: BTreeMap::new(),
            next_answer: 0,
            next_serial: 1,
            cancelled: BTreeSet::new(),
            hidden: hidden.collect(),
            replies: vec![None; plans.count()],
            input: VecDeque::new(),
            feed_at: 0,
            feeder: None,
            looks: 0,
            fresh_looks: 0,
            moved_at: 0,
            events: Vec::new(),
            broken: None,
            has_ended: false,
            scenario: Arc::clone(scenario),
        };
        Self(Arc::new(Mutex::new(world)))
    }

    /// Looks at the world.
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
            world.now =
                world.answers.keys().next_back().map_or(world.now, |it| it.0.max(world.now));
            while !world.answers.is_empty() {
                letters.extend(world.due_letters(100));
            }
        }
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
                match feeder.put_within(batch, Duration::ZERO) {
                    Ok(_) => {
                        self.world().note(What::Fed { rows });
                        None
                    }
                    Err(batch) => {
                        self.world().model.fed.truncate(before);
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
        let letters = self.shared.world().look();
        self.shared.post(letters);
        ProcessingTime::from_nanos(self.shared.world().now - self.origin)
    }

    fn park(&self, _parker: &Parker, timeout: Duration) {
        let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let letters = self.shared.world().park(timeout);
        self.shared.post(letters);
    }
}

impl World {
    /// Notes what happened.
    pub fn note(&mut self, what: What) {
        if !matches!(what, What::Parked { .. }) {
            self.moved_at = self.now;
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
        let due = self.next_due().filter(|it| *it <= now);
        if due.is_none() {
            let next = self.next_due().unwrap_or(u64::MAX);
            let until = (now.saturating_add(timeout)).min(next);
            self.now = until.max(now);
            if self.scenario.jitter > 0 && self.random.in_a_hundred(10) {
                self.now += self.random.next() % self.scenario.jitter;
            }
        }
        self.note_wait(self.now - now);
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
        [answer, feed].into_iter().flatten().min()
    }

    /// Returns most of what is due, of a hundred letters so many; at least one.
    fn due_letters(&mut self, most: usize) -> Vec<Letter> {
        let mut letters = Vec::new();
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

    /// Makes one letter of answers of one function.
    fn letter(&mut self, site: usize, answers: Vec<Answer>) -> Option<Letter> {
        let (mut attempts, mut counts, mut retries) = (Vec::new(), Vec::new(), Vec::new());
        let (mut values, mut failures) = (Vec::new(), Vec::new());
        // As a task takes them: results first.
        let (results, failed): (Vec<_>, Vec<_>) =
            answers.into_iter().partition(|it| matches!(it.said, Said::Results { .. }));
        for Answer { attempt, id, said, comes_anyway, .. } in results.into_iter().chain(failed) {
            if self.cancelled.contains(&(site, attempt)) && !comes_anyway {
                continue;
            }
            self.note(What::Replied { site, attempt, said });
            self.model.replied(site, attempt, id, said, self.now);
            match said {
                Said::Results { serial, count, retry } => {
                    attempts.push(attempt);
                    counts.push(count);
                    retries.push(retry);
                    values.extend((0..i64::from(count)).map(|it| serial * 8 + it));
                }
                Said::Failure { retry, after, pause } => {
                    failures.push(failed_call(attempt, retry, after, pause));
                }
            }
        }
        let here = &self.model.sites[site];
        let branch = self.model.sites_of(here.operator).position(|it| it == site)?;
        let schema = numbers(&[&result_name(here.operator, branch)]);
        let column = Arc::new(Int64Array::from(values)) as _;
        let rows = RecordBatch::try_new(schema, vec![column]).ok()?;
        let is_one_each = counts.iter().all(|it| *it == 1) && !retries.contains(&true);
        let results = ResultGroup {
            attempts,
            counts: (!is_one_each).then_some(counts),
            retries: (!is_one_each).then_some(retries),
            misses: None,
            known: Known::None,
            rows,
        };
        let group = ReplyGroup { results: Some(results), failures, ..ReplyGroup::default() };
        Some(Letter::Replies(self.replies[site].clone()?, Box::new(group)))
    }

    /// A call is made; decides what becomes of it.
    fn invoked(&mut self, site: usize, attempt: AttemptId, path: &Path) {
        let checked = self.model.invoked(site, attempt, path, self.now);
        let Some(id) = self.breaks(checked) else { return };
        self.note(What::Invoked { site, attempt, row: path.row, id });
        let script = self.model.sites[site].plan.script;
        let drawn = choice(self.scenario.seed, site, id, attempt.attempt);
        let random = &mut Random(drawn);
        let spread = (script.most - script.least).max(1);
        let mut takes = script.least + random.next() % spread;
        if random.in_a_hundred(script.late) {
            takes *= 17;
        }
        let (never, twice) = (random.in_a_hundred(script.never), random.in_a_hundred(script.twice));
        let comes_anyway = random.in_a_hundred(script.after_cancel);
        let said = self.say(site, random);
        if never {
            return;
        }
        self.answer(takes, Answer { site, attempt, id, said, comes_anyway });
        if twice {
            let again = self.say(site, random);
            self.answer(
                takes + random.next() % spread,
                Answer { site, attempt, id, said: again, comes_anyway },
            );
        }
    }

    /// Decides what a call says.
    fn say(&mut self, site: usize, random: &mut Random) -> Said {
        let script = self.model.sites[site].plan.script;
        let now = self.now;
        if let Some(bucket) = &mut self.hidden[site]
            && !bucket.try_take(now)
        {
            let wait = self.model.sites[site].plan.hidden.map_or(1, |it| it.0 / it.1);
            return Said::Failure { retry: true, after: Some(wait), pause: Some(wait) };
        }
        let mut rest = random.below(100);
        let mut is = |cases: usize| {
            let found = rest < cases;
            rest = if found { usize::MAX } else { rest - cases };
            found
        };
        let failure = |retry, after, pause| Said::Failure { retry, after, pause };
        if is(script.fails) {
            return failure(false, None, None);
        }
        if is(script.retries) {
            return failure(true, None, None);
        }
        if is(script.says_when) {
            return failure(true, Some(random.next() % (script.most + 1)), None);
        }
        if is(script.pauses) {
            let pause = random.next() % 333_333_333;
            return failure(true, Some(pause), Some(pause));
        }
        let retry = is(script.returns_retry);
        let count = if random.in_a_hundred(script.nothing) {
            0
        } else if random.in_a_hundred(script.several) {
            2 + u32::try_from(random.below(2)).unwrap_or_default()
        } else {
            1
        };
        self.next_serial += 1;
        Said::Results { serial: self.next_serial, count, retry }
    }

    fn answer(&mut self, takes: u64, answer: Answer) {
        self.next_answer += 1;
        self.answers.insert((self.now + takes, self.next_answer), answer);
    }

    /// A function is asked what a row puts out.
    fn asked(&mut self, site: usize, attempt: AttemptId, path: &Path) {
        let checked = self.model.asked(site, path, self.now);
        let Some(id) = self.breaks(checked) else { return };
        self.note(What::Asked { site, row: path.row, id });
        let random = &mut Random(choice(self.scenario.seed, site, id, attempt.attempt));
        let fails = random.in_a_hundred(30);
        self.next_serial += 1;
        let said = if fails {
            Said::Failure { retry: false, after: None, pause: None }
        } else {
            Said::Results { serial: self.next_serial, count: 1, retry: false }
        };
        self.answer(random.next() % 1_000, Answer { site, attempt, id, said, comes_anyway: true });
    }

    fn cancelled(&mut self, site: usize, attempt: AttemptId) {
        let checked = self.model.cancelled(site, attempt, self.now);
        self.breaks(checked);
        self.note(What::Cancelled { site, attempt });
        self.cancelled.insert((site, attempt));
    }

    /// Forgets calls of a task that is gone.
    pub fn forget_calls(&mut self) {
        self.answers.clear();
        self.cancelled.clear();
        self.replies.iter_mut().for_each(|it| *it = None);
    }
}

fn failed_call(
    attempt: AttemptId,
    retry: bool,
    after: Option<u64>,
    pause: Option<u64>,
) -> FailedCall {
    let failure = Box::new(CallFailure {
        kind: ErrorKind::UserFunctionFailed,
        message: "is down".to_owned(),
        summary: "is down".to_owned(),
        cause: None,
    });
    let retry = match after {
        _ if !retry => Retry::No,
        None => Retry::Yes,
        Some(nanos) => Retry::After(Duration::from_nanos(nanos)),
    };
    let sign = if pause.is_some() { CallSign::Overloaded } else { retry.sign() };
    let pause = pause.map(Duration::from_nanos);
    FailedCall { attempt, failure, retry, sign, pause }
}
