// SPDX-License-Identifier: Apache-2.0
//! A task on a thread of its own, whose input comes in parts.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use sparkawait_runtime::{MetricsReader, OperatorMetrics, Patience, Turn};
use sparkawait_task::error::TaskError;
use sparkawait_task::shared;
use sparkawait_task::task::{TaskDriver, TaskFeeder};

use crate::bundles::{BundleId, Bundles};
use crate::idle::Idle;
use crate::ipc;
use crate::random::random;
use crate::state::{TaskId, count_rows, write_operators};

type Tasks = Mutex<BTreeMap<[u8; 16], Weak<DetachedTask>>>;

/// All tasks of this process that are there.
static TASKS: shared::Shared = shared::Shared::new();

/// Does something with all tasks.
fn with_tasks<T>(act: impl FnOnce(&mut BTreeMap<[u8; 16], Weak<DetachedTask>>) -> T) -> T {
    act(&mut TASKS.of_process::<Tasks>().lock().unwrap_or_else(PoisonError::into_inner))
}

/// A row that was restored so often makes its part wait for it, so that it gets an outcome however
/// soon each of its tasks is lost.
const MOST_RESTARTS: u32 = 3;

/// How often it is looked whether such a row has one.
const LOOK: Duration = Duration::from_millis(10);

/// Bytes of an answer that are kept for whoever brings a part again.
const MOST_KEPT: usize = 64 << 20;

/// What an operator did in a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rows admitted; those that were restored, too.
    pub admitted: u64,
    /// Rows that left, failed ones included.
    pub emitted: u64,
    /// Rows that left without a result although their call returned.
    pub dropped: u64,
    /// Rows that failed for good.
    pub failed: u64,
    /// Attempts started.
    pub attempts: u64,
    /// Attempts after the first one of a row.
    pub retries: u64,
    /// Rows and attempts whose time passed.
    pub timeouts: u64,
    /// Attempts that were ended.
    pub cancelled: u64,
}

impl Counts {
    /// Returns all numbers, in the order of the fields.
    pub fn numbers(&self) -> [u64; 8] {
        let Self { admitted, emitted, dropped, failed, attempts, retries, timeouts, cancelled } =
            *self;
        [admitted, emitted, dropped, failed, attempts, retries, timeouts, cancelled]
    }

    fn of(metrics: &OperatorMetrics) -> Self {
        let operator = metrics.operator;
        Self {
            admitted: operator.admitted,
            emitted: operator.emitted,
            dropped: metrics.dropped,
            failed: operator.failures,
            attempts: operator.attempts,
            retries: operator.retries,
            timeouts: operator.timeouts,
            cancelled: operator.cancelled,
        }
    }

    fn since(&self, before: &Self) -> Self {
        let (now, before) = (self.numbers(), before.numbers());
        Self::from_numbers(std::array::from_fn(|index| now[index].saturating_sub(before[index])))
    }

    /// Makes them of the numbers that [`numbers`](Self::numbers) gave.
    pub fn from_numbers(numbers: [u64; 8]) -> Self {
        let [admitted, emitted, dropped, failed, attempts, retries, timeouts, cancelled] = numbers;
        Self { admitted, emitted, dropped, failed, attempts, retries, timeouts, cancelled }
    }
}

/// What a part of the input came to.
#[derive(Clone, Default)]
pub struct PartEnd {
    /// What was completed since the part before, as Arrow IPC.
    pub outputs: Vec<Vec<u8>>,
    /// Its rows.
    pub output_rows: u64,
    /// What the operators hold, see [`write_operators`].
    pub operators: Vec<u8>,
    /// Rows in flight.
    pub carried: u64,
    /// Rows that are completed and wait for others, as order wants it.
    pub held: u64,
    /// How long the oldest row is held.
    pub oldest: Duration,
    /// What each operator did since the part before.
    pub counts: Vec<Counts>,
}

/// Shows sizes only: row contents do not belong in logs.
impl fmt::Debug for PartEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartEnd")
            .field("output_rows", &self.output_rows)
            .field("carried", &self.carried)
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}

impl PartEnd {
    fn bytes(&self) -> usize {
        self.outputs.iter().map(Vec::len).sum::<usize>() + self.operators.len()
    }
}

/// Where a task is with its input.
///
/// ```text
///   none --begin, claim, put--> open --put_end--> complete --worked off--> none, and an answer
///    ^                           |                   |                      |
///    |  the bringer is gone: whoever begins the part again goes on from here
/// ```
#[derive(Debug, Default, PartialEq, Eq)]
enum Progress {
    /// Nothing is there of the part behind those that were worked off.
    #[default]
    None,
    /// Some of it may be there.
    Open,
    /// All of it is there.
    Complete,
}

#[derive(Debug, Default)]
struct State {
    /// Whether somebody brings a part.
    is_begun: bool,
    progress: Progress,
    /// What was brought of the part that is under way, or else of the last one.
    bundles: Bundles,
    /// What the last part came to, until the next one begins.
    answer: Option<Arc<PartEnd>>,
    /// Parts that were worked off.
    part: u64,
    /// Completed batches that nobody has taken.
    outputs: Vec<Vec<u8>>,
    output_rows: u64,
    /// What operators had done when the last part ended.
    counted: Vec<Counts>,
    /// Why the task ended.
    error: Option<TaskError>,
    has_ended: bool,
    /// Whether nobody can go on with it.
    is_abandoned: bool,
    /// Since when nobody brings a part.
    idle: Idle,
}

/// What becomes of the beginning of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// It has begun, or begun again: see [`DetachedTask::claim`].
    Yes,
    /// The task is elsewhere: what somebody has gone on with did not count. It is of no use any more.
    Stale,
    /// Others have gone on with the task: it is of use to them, and whoever asks is late.
    Late,
    /// Somebody else brings a part.
    Busy,
}

/// What is to become of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is to be put.
    New,
    /// The task has it, from somebody who brought the part before.
    Known,
    /// The task has other rows of this part: it is of no use to whoever brings these.
    Other,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl State {
    /// Returns whether it is of no use any more: it has ended, and said why, if anybody asks.
    const fn is_retired(&self) -> bool {
        self.is_abandoned || (self.has_ended && self.error.is_none())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task whose calls go on when a part of its input has ended.
///
/// To be used from one thread at a time, any one. Whoever has begun a part has it for himself until
/// that ends.
pub struct DetachedTask {
    id: TaskId,
    /// Whose it is, such as a shard's in a run of a query: others may have other functions and rows.
    owner: String,
    shared: Arc<Shared>,
    feeder: TaskFeeder,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for DetachedTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DetachedTask").finish_non_exhaustive()
    }
}

impl DetachedTask {
    /// Starts the thread that drives the task, which [`find`](Self::find) finds from now on.
    ///
    /// `gap` is how long ago the part ended whose rows it goes on with; zero if there was none.
    ///
    /// # Errors
    ///
    /// No thread can be started.
    pub fn start(
        driver: TaskDriver,
        feeder: TaskFeeder,
        owner: String,
        gap: Duration,
    ) -> std::io::Result<Arc<Self>> {
        let state = State { idle: Idle::new(gap), ..State::default() };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("sparkawait-detached".to_owned())
            .spawn(move || drive(driver, &of_thread))?;
        let id = TaskId(random()?);
        let task = Arc::new(Self { id, owner, shared, feeder, thread: Mutex::new(Some(thread)) });
        with_tasks(|tasks| tasks.insert(id.0, Arc::downgrade(&task)));
        Ok(task)
    }

    /// Returns the task of this process that is called `id`.
    pub fn find(id: TaskId) -> Option<Arc<Self>> {
        with_tasks(|tasks| tasks.get(&id.0)?.upgrade())
    }

    /// Returns what it is called among all tasks of all processes.
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// Begins the part behind `part` others of its owner. A task that has failed says so when the
    /// part ends.
    ///
    /// A part may be begun again, by a step that is carried out once more because it did not count
    /// before: what is there of the part is not put again, and if all of it is, the answer is the
    /// same.
    pub fn begin(&self, owner: &str, part: u64) -> Begun {
        let mut state = self.shared.lock();
        if state.is_begun {
            return Begun::Busy;
        }
        if self.owner != owner || state.is_retired() {
            return Begun::Stale;
        }
        if state.part == part && state.progress == Progress::None {
            // Whoever goes on has what the part before came to.
            state.answer = None;
            state.bundles.clear();
            state.progress = Progress::Open;
        } else if state.part == part || (state.answer.is_some() && state.part == part + 1) {
            state.bundles.begin_again();
        } else {
            // Nobody has gone on with an answer that was too large to be kept, as far as is known.
            let has_gone_on = part + 1 < state.part || state.progress != Progress::None;
            return if part < state.part && has_gone_on { Begun::Late } else { Begun::Stale };
        }
        state.is_begun = true;
        state.idle.begin(Instant::now());
        Begun::Yes
    }

    /// Does as [`begin`](Self::begin), after waiting for somebody else to end, at most for `timeout`.
    pub fn begin_within(&self, owner: &str, part: u64, timeout: Duration) -> Begun {
        let waiting =
            self.shared.changed.wait_timeout_while(self.shared.lock(), timeout, |state| {
                state.is_begun && !state.has_ended
            });
        drop(waiting);
        self.begin(owner, part)
    }

    /// Leaves a part to whoever begins it again.
    pub fn leave(&self) {
        let mut state = self.shared.lock();
        state.is_begun = false;
        state.idle.end(Instant::now());
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Tells what is to become of a bundle of the part.
    pub fn claim(&self, bundle: BundleId) -> Claim {
        let mut state = self.shared.lock();
        if state.bundles.claim(bundle) {
            Claim::Known
        } else if state.progress == Progress::Open {
            Claim::New
        } else {
            Claim::Other
        }
    }

    /// Notes that all rows of a new bundle were put.
    pub fn note(&self, bundle: BundleId) {
        self.shared.lock().bundles.add(bundle);
    }

    /// Ends the task if nobody has brought a part for `hold`, or for longer if its parts are further
    /// apart than that, or if it has failed; returns whether it is of no use any more.
    pub fn retire(&self, hold: Duration) -> bool {
        let mut state = self.shared.lock();
        if !state.is_begun && state.idle.is_over(Instant::now(), hold) {
            state.is_abandoned = true;
        }
        state.is_retired()
    }

    /// Gives the task up: what it has is not what the state says.
    pub fn abandon(&self) {
        let mut state = self.shared.lock();
        (state.is_begun, state.is_abandoned) = (false, true);
        drop(state);
        self.shared.changed.notify_all();
        self.feeder.put_failure(TaskError::Internal("a step was given up".to_owned()));
    }

    /// Hands over a batch of the part, after waiting for a place if need be; returns false once the
    /// task has ended.
    pub fn put(&self, batch: RecordBatch) -> bool {
        self.feeder.put(batch)
    }

    /// Does as [`put`](Self::put), but gives the batch back if there is no place within `timeout`.
    ///
    /// # Errors
    ///
    /// The batch.
    pub fn put_within(&self, batch: RecordBatch, timeout: Duration) -> Result<bool, RecordBatch> {
        self.feeder.put_within(batch, timeout)
    }

    /// Says that the part has no further bundle; returns false if the task has other rows of it, so
    /// that it is of no use.
    #[must_use = "the task may have other rows"]
    pub fn put_end(&self, patience: Patience) -> bool {
        let mut state = self.shared.lock();
        if !state.bundles.are_all_claimed() {
            return false;
        }
        let is_news = state.progress == Progress::Open;
        if is_news {
            state.progress = Progress::Complete;
        }
        drop(state);
        if is_news {
            self.feeder.put_end_of_part(patience);
        }
        true
    }

    /// Waits until the part is worked off, at most for `timeout`; `None` if it is not.
    ///
    /// # Errors
    ///
    /// The failure of the task, which has ended then.
    pub fn wait(&self, timeout: Duration) -> Result<Option<Arc<PartEnd>>, TaskError> {
        let (mut state, _) = self
            .shared
            .changed
            .wait_timeout_while(self.shared.lock(), timeout, |state| {
                // One that was given up ends soon: whoever asks for its rows waits for that.
                let is_awaited = state.is_begun || state.is_abandoned;
                is_awaited && state.answer.is_none() && !state.has_ended
            })
            .unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        if let Some(answer) = state.answer.clone() {
            state.is_begun = false;
            state.idle.end(Instant::now());
            if answer.bytes() > MOST_KEPT {
                state.answer = None;
            }
            self.shared.changed.notify_all();
            return Ok(Some(answer));
        }
        if !state.has_ended {
            return Ok(None);
        }
        // It is told once.
        state.is_begun = false;
        Err(state.error.take().unwrap_or_else(|| {
            TaskError::Internal("a detached task ended without a word".to_owned())
        }))
    }

    /// Returns whether the task has ended, because it failed or was closed.
    pub fn has_ended(&self) -> bool {
        self.shared.lock().has_ended
    }

    /// Fails the task.
    pub fn put_failure(&self, error: TaskError) {
        self.feeder.put_failure(error);
    }

    /// Cancels all calls in flight and ends the thread. Idempotent.
    pub fn close(&self) {
        self.feeder.put_failure(TaskError::Internal("the task was closed".to_owned()));
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            #[expect(
                clippy::let_underscore_must_use,
                reason = "what it had to say is in the state"
            )]
            let _ = thread.join();
        }
    }
}

impl Drop for DetachedTask {
    fn drop(&mut self) {
        with_tasks(|tasks| tasks.remove(&self.id.0));
        self.feeder.put_failure(TaskError::Internal("the task was dropped".to_owned()));
    }
}

/// The thread of a task.
fn drive(mut driver: TaskDriver, shared: &Shared) {
    let metrics = driver.metrics_reader();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        loop {
            if let Err(error) = turn(&mut driver, &metrics, shared) {
                break error;
            }
        }
    }));
    driver.close();
    let error = panicked.unwrap_or_else(|_| TaskError::Internal("a panic".to_owned()));
    let mut state = shared.lock();
    (state.error, state.has_ended) = (Some(error), true);
    drop(state);
    shared.changed.notify_all();
}

fn turn(
    driver: &mut TaskDriver,
    metrics: &MetricsReader,
    shared: &Shared,
) -> Result<(), TaskError> {
    match driver.take_turn()? {
        Turn::Output(batch) => keep(shared, &[batch]),
        Turn::Finished => Err(TaskError::Internal("the input of a stream has ended".to_owned())),
        Turn::Paused if !driver.has_part_ended() => Ok(()),
        Turn::Paused if driver.holds_restored(MOST_RESTARTS) => {
            driver.resume_part(Patience::Linger(LOOK));
            Ok(())
        }
        Turn::Paused => end_part(driver, metrics, shared),
    }
}

/// Keeps completed batches until the part ends.
fn keep(shared: &Shared, batches: &[RecordBatch]) -> Result<(), TaskError> {
    for batch in batches {
        let bytes = ipc::write(batch).map_err(not_written)?;
        let mut state = shared.lock();
        state.outputs.push(bytes);
        state.output_rows += batch.num_rows() as u64;
    }
    Ok(())
}

fn end_part(
    driver: &mut TaskDriver,
    metrics: &MetricsReader,
    shared: &Shared,
) -> Result<(), TaskError> {
    let carry = driver.carry()?;
    keep(shared, &carry.outputs)?;
    let operators = write_operators(&carry.operators).map_err(not_written)?;
    let (carried, held) = count_rows(&carry.operators);
    let metrics = metrics.read();
    let counts: Vec<Counts> = metrics.iter().map(Counts::of).collect();
    let oldest = metrics.iter().map(|it| it.operator.oldest_age).max().unwrap_or_default();
    let mut state = shared.lock();
    let before = std::mem::replace(&mut state.counted, counts.clone());
    let before = before.into_iter().chain(std::iter::repeat(Counts::default()));
    state.part += 1;
    state.idle.end(Instant::now());
    state.progress = Progress::None;
    state.answer = Some(Arc::new(PartEnd {
        outputs: std::mem::take(&mut state.outputs),
        output_rows: std::mem::take(&mut state.output_rows),
        operators,
        carried: carried as u64,
        held: held as u64,
        oldest,
        counts: counts.iter().zip(before).map(|(now, before)| now.since(&before)).collect(),
    }));
    drop(state);
    shared.changed.notify_all();
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn not_written(error: arrow::error::ArrowError) -> TaskError {
    TaskError::Internal(format!("rows cannot be written: {error}"))
}
