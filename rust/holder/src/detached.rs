// SPDX-License-Identifier: Apache-2.0
//! A task on a thread of its own, whose input comes in parts.

use std::collections::BTreeMap;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use sparkawait_runtime::{MetricsReader, Patience, Turn, drive};
use sparkawait_task::error::TaskError;
use sparkawait_task::shared;
use sparkawait_task::task::{TaskDriver, TaskFeeder};

use crate::bundles::BundleId;
use crate::idle::Idle;
use crate::ipc;
use crate::part::{Begun, Claim, Parts};
use crate::part_end::{Counts, PartEnd};
use crate::random::random;
use crate::state::{Held, TaskId, write_operators};

type Tasks = Mutex<BTreeMap<[u8; 16], Weak<DetachedTask>>>;

/// What all tasks of this process keep together.
static KEPT: shared::Shared = shared::Shared::new();

/// All tasks of this process that are there.
static TASKS: shared::Shared = shared::Shared::new();

/// Does something with all tasks.
fn with_tasks<T>(act: impl FnOnce(&mut BTreeMap<[u8; 16], Weak<DetachedTask>>) -> T) -> T {
    act(&mut TASKS.of_process::<Tasks>().lock().unwrap_or_else(PoisonError::into_inner))
}

/// A row that was restored so often makes its part wait for it, so that it gets an outcome however
/// soon each of its tasks is lost.
const MOST_RESTARTS: u32 = 3;

/// How often to look whether it has one.
const LOOK: Duration = Duration::from_millis(10);

/// The part that the task is at, and those who wait for it to get on.
#[derive(Debug)]
struct Shared {
    parts: Mutex<Parts>,
    changed: Condvar,
    /// Rows of the batches that were handed over.
    came: AtomicU64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a transition take place, and tells everybody.
    fn change<T>(&self, transition: impl FnOnce(&mut Parts) -> T) -> T {
        let done = transition(&mut self.lock());
        self.changed.notify_all();
        done
    }

    /// Counts rows that were handed over, if they were wanted.
    fn count(&self, rows: usize, are_wanted: bool) -> bool {
        if are_wanted {
            self.came.fetch_add(rows as u64, Ordering::Relaxed);
        }
        are_wanted
    }

    /// Waits as long as `is_awaited`, at most for `timeout`.
    fn wait_while(
        &self,
        timeout: Duration,
        is_awaited: fn(&Parts) -> bool,
    ) -> MutexGuard<'_, Parts> {
        let is_awaited = |parts: &mut Parts| is_awaited(parts);
        let waited = self.changed.wait_timeout_while(self.lock(), timeout, is_awaited);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// A task whose calls go on when a part of its input has ended.
///
/// To be used from one thread at a time, any one. A step that has begun a part has it for itself until
/// that ends: see `part.rs` for what may follow what.
pub struct DetachedTask {
    id: TaskId,
    shared: Arc<Shared>,
    feeder: TaskFeeder,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The process that has the thread; a forked child has a copy of the task, and no part in it.
    process_id: u32,
}

sparkawait_core::opaque_debug!(DetachedTask);

impl DetachedTask {
    /// Starts the thread that drives the task, which [`find`](Self::find) finds from now on.
    ///
    /// `owner` is whose it is, such as a shard's of a query that calls so: others may have other functions
    /// and rows. `gap` is how long ago the part ended whose rows it goes on with; zero if there was
    /// none.
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
        let parts = Mutex::new(Parts::new(owner, Idle::new(gap), KEPT.of_process()));
        let shared = Arc::new(Shared { parts, changed: Condvar::new(), came: AtomicU64::new(0) });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("sparkawait-detached".to_owned())
            .spawn(move || drive_parts(driver, &of_thread))?;
        let id = TaskId(random()?);
        let task = Arc::new(Self {
            id,
            shared,
            feeder,
            thread: Mutex::new(Some(thread)),
            process_id: process::id(),
        });
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
    /// part ends; one that is [`Stale`](Begun::Stale) is given up.
    ///
    /// A part may be begun again, by a step that Spark carries out once more because it did not
    /// count before. Rows of the part that are there are not put again; if all of them are, the
    /// answer is the same.
    pub fn begin(&self, owner: &str, part: u64) -> Begun {
        let begun = self.shared.change(|parts| parts.begin(owner, part, Instant::now()));
        if begun == Begun::Stale {
            self.give_up();
        }
        begun
    }

    /// Does as [`begin`](Self::begin), after waiting for somebody else to end, at most for `timeout`.
    pub fn begin_within(&self, owner: &str, part: u64, timeout: Duration) -> Begun {
        drop(self.shared.wait_while(timeout, Parts::are_brought));
        self.begin(owner, part)
    }

    /// Leaves a part to the step that begins it again.
    pub fn leave(&self) {
        self.shared.change(|parts| parts.leave(Instant::now()));
    }

    /// Tells whether the task has a bundle of the part.
    pub fn claim(&self, bundle: BundleId) -> Claim {
        self.shared.lock().claim(bundle)
    }

    /// Notes that all rows of a new bundle were put.
    pub fn note(&self, bundle: BundleId) {
        self.shared.lock().note(bundle);
    }

    /// Ends the task if nobody has brought a part for `hold`, or for longer if its parts are further
    /// apart than that, or if it has failed; returns whether it is of no use any more.
    pub fn retire(&self, hold: Duration) -> bool {
        self.shared.lock().retire(Instant::now(), hold)
    }

    /// Gives the task up: what it has is not what the state says.
    pub fn abandon(&self) {
        self.shared.change(Parts::abandon);
        self.give_up();
    }

    /// Ends the thread of a task that was given up.
    fn give_up(&self) {
        self.feeder.put_failure(TaskError::Internal("a task was given up".to_owned()));
    }

    /// Hands over a batch of the part, after waiting for a place if need be; returns false once the
    /// task has ended.
    pub fn put(&self, batch: RecordBatch) -> bool {
        let rows = batch.num_rows();
        let is_wanted = self.feeder.put(batch);
        self.shared.count(rows, is_wanted)
    }

    /// Does as [`put`](Self::put), but gives the batch back if there is no place within `timeout`.
    ///
    /// # Errors
    ///
    /// The batch.
    pub fn put_within(&self, batch: RecordBatch, timeout: Duration) -> Result<bool, RecordBatch> {
        let rows = batch.num_rows();
        let is_wanted = self.feeder.put_within(batch, timeout)?;
        Ok(self.shared.count(rows, is_wanted))
    }

    /// Says that the part has no further bundle; returns false if the task has other rows of it, so
    /// that it is of no use.
    #[must_use = "the task may have other rows"]
    pub fn put_end(&self, patience: Patience) -> bool {
        let put = self.shared.lock().put_end();
        if put == Claim::New {
            self.feeder.put_end_of_part(patience);
        }
        put != Claim::Other
    }

    /// Waits until the part is worked off, at most for `timeout`; `None` if it is not.
    ///
    /// # Errors
    ///
    /// The failure of the task, which has ended then.
    pub fn wait(&self, timeout: Duration) -> Result<Option<Arc<PartEnd>>, TaskError> {
        let taken = self.shared.wait_while(timeout, Parts::are_under_way).take(Instant::now());
        self.shared.changed.notify_all();
        taken
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
        if self.process_id != process::id() {
            // Its locks may be held for ever by threads that do not exist here.
            return;
        }
        with_tasks(|tasks| tasks.remove(&self.id.0));
        self.feeder.put_failure(TaskError::Internal("the task was dropped".to_owned()));
    }
}

/// What the thread has of the part that is under way.
#[derive(Default)]
struct Done {
    /// Completed batches, as Arrow IPC.
    outputs: Vec<Vec<u8>>,
    output_rows: u64,
    /// Rows of the batches of all parts.
    left: u64,
    /// What operators had done when the last part ended.
    counted: Vec<Counts>,
}

/// The thread of a task. The step that brings a part is told how it has ended.
fn drive_parts(driver: TaskDriver, shared: &Shared) {
    let (metrics, mut done) = (driver.metrics_reader(), Done::default());
    let turns = |driver: &mut TaskDriver| {
        loop {
            match driver.take_turn()? {
                Turn::Output(batch) => done.keep(&batch)?,
                Turn::Paused => {
                    driver.check_room();
                    if let Some(end) = done.look_for_end(driver, &metrics, shared)? {
                        shared.change(|parts| parts.work_off(end, Instant::now()));
                    }
                }
                Turn::Finished => return Ok(()),
            }
        }
    };
    drive(driver, turns, |end| {
        let has_ended = || TaskError::Internal("the input of a stream has ended".to_owned());
        let error = end.err().unwrap_or_else(has_ended);
        shared.change(|parts| parts.end(error));
    });
}

impl Done {
    /// Keeps a completed batch until the part ends.
    fn keep(&mut self, batch: &RecordBatch) -> Result<(), TaskError> {
        self.outputs.push(ipc::write(batch).map_err(not_written)?);
        self.output_rows += batch.num_rows() as u64;
        self.left += batch.num_rows() as u64;
        Ok(())
    }

    /// Returns what the part came to, if it has ended.
    fn look_for_end(
        &mut self,
        driver: &mut TaskDriver,
        metrics: &MetricsReader,
        shared: &Shared,
    ) -> Result<Option<PartEnd>, TaskError> {
        if !driver.has_part_ended() {
            return Ok(None);
        }
        if driver.holds_restored(MOST_RESTARTS) {
            driver.resume_part(Patience::Linger(LOOK));
            return Ok(None);
        }
        self.end_part(driver, metrics, shared.came.load(Ordering::Relaxed)).map(Some)
    }

    fn end_part(
        &mut self,
        driver: &mut TaskDriver,
        metrics: &MetricsReader,
        came: u64,
    ) -> Result<PartEnd, TaskError> {
        let carry = driver.carry()?;
        carry.outputs.iter().try_for_each(|batch| self.keep(batch))?;
        if let Some(mismatch) = carry.settled.mismatch(came, self.left) {
            return Err(TaskError::Internal(mismatch));
        }
        let operators = write_operators(&carry.operators).map_err(not_written)?;
        let held = Held::by(&carry.operators);
        let metrics = metrics.read();
        let counts: Vec<Counts> = metrics.iter().map(Counts::of).collect();
        let oldest = metrics.iter().map(|it| it.operator.oldest_age).max().unwrap_or_default();
        let before = std::mem::replace(&mut self.counted, counts.clone());
        let before = before.into_iter().chain(std::iter::repeat(Counts::default()));
        Ok(PartEnd {
            outputs: std::mem::take(&mut self.outputs),
            output_rows: std::mem::take(&mut self.output_rows),
            operators,
            carried: held.pending,
            held: held.completed,
            input: held.input,
            oldest,
            counts: counts.iter().zip(before).map(|(now, before)| now.since(&before)).collect(),
        })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn not_written(error: arrow::error::ArrowError) -> TaskError {
    TaskError::Internal(format!("rows cannot be written: {error}"))
}
