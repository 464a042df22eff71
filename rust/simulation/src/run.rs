// SPDX-License-Identifier: Apache-2.0
//! A task from its first batch to its end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use sparkawait_runtime::{DrivenTask, OperatorMetrics, Settled, Turn};
use sparkawait_task::error::TaskError;
use sparkawait_task::saved::SavedOperator;

use crate::account::{account, compare};
use crate::build::{SimulatedDriver, build};
use crate::columns::input_batch;
use crate::known::{KnownRows, at_the_start, with_columns};
use crate::model::{Model, Site};
use crate::order::Order;
use crate::random::Random;
use crate::scenario::{End, Failing, PartsPlan, Scenario};
use crate::trace::{Broken, Event, What};
use crate::world::journal::FAILED;
use crate::world::{Feed, Shared};

mod consumer;
mod output;

use consumer::Consumer;
use output::{Ended, Output};

/// What happened in a scenario.
#[derive(Debug)]
pub struct Report {
    /// What happened.
    pub events: Vec<Event>,
    /// The first rule that was broken.
    pub broken: Option<Broken>,
    /// Rows that left.
    pub rows: usize,
}

/// Runs a scenario. One with a journal is run again, with what was kept, as often as it says.
pub fn run(scenario: &Scenario) -> Report {
    let (mut report, mut known) = run_once(scenario, 0, at_the_start(scenario));
    let again = scenario.journal.map_or(0, |it| it.again);
    for run in 1..=again {
        if report.broken.is_some() {
            break;
        }
        let next = scenario.of_run(run == again);
        let before = std::mem::take(&mut known);
        let (of_run, left) = run_once(&next, run, before);
        known = left;
        report.events.extend(of_run.events);
        report.broken = of_run.broken;
        report.rows += of_run.rows;
    }
    report
}

fn run_once(scenario: &Scenario, run: u64, known: KnownRows) -> (Report, KnownRows) {
    let scenario = Arc::new(scenario.clone());
    let shared = Shared::new(&scenario, run, known.clone());
    let output = Output {
        order: Order::new(&scenario),
        scenario: Arc::clone(&scenario),
        shared: shared.clone(),
        rows: 0,
    };
    let run = Run {
        known,
        shared: shared.clone(),
        next_batch: 0,
        next_row: 0,
        came: 0,
        left_before: 0,
        output: Arc::new(Mutex::new(output)),
        scenario,
    };
    let caught = catch_unwind(AssertUnwindSafe(|| run.whole()));
    let mut world = shared.world();
    let rows = match caught {
        Ok(rows) => rows,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned()));
            world.broken.get_or_insert(Broken::new("no panic", text.unwrap_or_default()));
            0
        }
    };
    // Functions have the world, and the world has their replies.
    world.replies.clear();
    world.caches = None;
    world.feeder = None;
    world.consumer = None;
    let known = world.left_in_journal();
    let report =
        Report { events: std::mem::take(&mut world.events), broken: world.broken.take(), rows };
    (report, known)
}

struct Run {
    known: KnownRows,
    scenario: Arc<Scenario>,
    shared: Shared,
    next_batch: usize,
    next_row: i64,
    /// Rows that the task was given, and rows that had left before it.
    came: usize,
    left_before: usize,
    /// The consumer of a task that is driven has it, too.
    output: Arc<Mutex<Output>>,
}

/// What counts of a stream.
struct Counted {
    saved: Vec<SavedOperator>,
    model: Model,
    order: Order,
    next_batch: usize,
    next_row: i64,
    rows: usize,
}

impl Run {
    fn whole(mut self) -> usize {
        let mut driver = self.start(Vec::new());
        if let Some(parts) = self.scenario.parts {
            match self.stream(driver, parts) {
                Some(last) => driver = last,
                None => return self.output().rows,
            }
        }
        self.put_input(usize::MAX);
        let ends = match self.scenario.end {
            End::InputFails(_) => Feed::Failure,
            End::Input | End::Closed(_) => Feed::End,
        };
        self.shared.world().input.push_back(ends);
        let metrics = driver.metrics_reader();
        if self.scenario.is_driven() {
            let ended = self.driven(driver);
            self.check_end(&metrics.read(), ended);
        } else {
            let ended = self.turns(&mut driver, false);
            if matches!(ended, Ended::Finished) {
                self.check_settled(driver.settled());
            }
            self.check_end(&metrics.read(), ended);
            driver.close();
        }
        self.shared.answer_all();
        self.output().rows
    }

    fn output(&self) -> MutexGuard<'_, Output> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a thread drive the task to its end: this one, on which the consumer looks now and then.
    fn driven(&self, driver: SimulatedDriver) -> Ended {
        let task = Arc::new(DrivenTask::new(driver));
        let consumer = |seed| Consumer {
            task: Arc::clone(&task),
            output: Arc::clone(&self.output),
            shared: self.shared.clone(),
            random: Random(seed),
            pause: self.scenario.consumer_pause,
            away_until: 0,
            waits: false,
        };
        let mut looking = consumer(self.scenario.seed ^ 0x6c6f_6f6b);
        self.shared.world().consumer = Some(Box::new(move || looking.look()));
        self.shared.panics().arm(true);
        task.drive();
        self.shared.panics().arm(false);
        self.shared.world().consumer = None;
        if self.shared.world().broken.is_some() {
            return Ended::Broken;
        }
        match consumer(0).take_rest() {
            Ended::Failed(error) if self.shared.panics().has_happened() => {
                Ended::Panicked(error.to_string())
            }
            Ended::Finished if self.shared.panics().has_happened() => {
                let what = "it ended as if all its rows had left".to_owned();
                self.shared.world().fail("a panic fails the task", what);
                Ended::Broken
            }
            Ended::Finished => {
                self.check_settled(task.settled().unwrap_or_default());
                Ended::Finished
            }
            ended => ended,
        }
    }

    /// Compares what a task has settled with what came and left.
    fn check_settled(&self, settled: Settled) {
        let left = self.output().rows - self.left_before;
        if let Some(mismatch) = settled.mismatch(self.came as u64, left as u64) {
            self.shared.world().fail("what came and left is settled", mismatch);
        }
    }

    fn start(&mut self, saved: Vec<SavedOperator>) -> SimulatedDriver {
        (self.came, self.left_before) = (0, self.output().rows);
        let (driver, feeder) = build(&self.scenario, &self.shared, saved);
        let mut world = self.shared.world();
        (world.feeder, world.fresh_looks) = (Some(feeder), 2);
        drop(world);
        driver
    }

    /// Has so many batches handed over.
    fn put_input(&mut self, most: usize) {
        let most = match self.scenario.end {
            End::InputFails(batches) => most.min(batches),
            End::Input | End::Closed(_) => most,
        };
        let left = self.scenario.batches[self.next_batch..].iter().take(most);
        for rows in left {
            let mut batch = input_batch(&self.scenario, self.shared.panics(), self.next_row, *rows);
            if self.scenario.journal.is_some() {
                batch = with_columns(&self.scenario, &batch, self.next_row, &self.known);
            }
            self.next_row += i64::try_from(*rows).unwrap_or_default();
            self.next_batch += 1;
            self.came += rows;
            self.shared.world().input.push_back(Feed::Batch(batch));
        }
    }

    /// Takes turns until the task has ended, or a part of its input.
    fn turns(&mut self, driver: &mut SimulatedDriver, of_part: bool) -> Ended {
        let mut turns = 0;
        loop {
            if self.shared.world().broken.is_some() {
                return Ended::Broken;
            }
            if self.scenario.end == End::Closed(turns) {
                self.shared.world().model.is_ending = true;
                driver.close();
                return Ended::Closed;
            }
            turns += 1;
            self.shared.pause();
            match driver.take_turn() {
                Ok(Turn::Output(batch)) => self.output().left(&batch),
                Ok(Turn::Paused) => {
                    if of_part && driver.has_part_ended() {
                        return Ended::Finished;
                    }
                }
                Ok(Turn::Finished) => return Ended::Finished,
                Err(error) => return Ended::Failed(error),
            }
        }
    }

    // --- parts ---

    /// Works the input off in parts; returns the last task, which holds nothing.
    fn stream(&mut self, mut driver: SimulatedDriver, plan: PartsPlan) -> Option<SimulatedDriver> {
        let mut random = Random(self.scenario.seed ^ 0x7061_7274);
        let mut counted = self.counted(Vec::new());
        let (mut part, mut again) = (0, 0);
        while self.next_batch < self.scenario.batches.len() || part == 0 {
            self.put_input(plan.batches);
            let is_last = self.next_batch == self.scenario.batches.len();
            let patience = if is_last { u64::MAX } else { plan.linger };
            self.shared.world().input.push_back(Feed::EndOfPart(patience));
            let operators = self.part(&mut driver)?;
            if again < 5 && random.in_a_hundred(plan.again) {
                again += 1;
                self.count_again(&counted);
                driver = self.lose(driver, &counted, part);
                continue;
            }
            counted = self.counted(operators);
            self.shared.world().note(What::PartEnded { part });
            part += 1;
            if random.in_a_hundred(plan.lost) {
                driver = self.lose(driver, &counted, part);
                if plan.moved > 0 && random.in_a_hundred(plan.moved) {
                    (driver, counted) = self.move_on(driver, part)?;
                    part += 1;
                }
            }
        }
        Some(driver)
    }

    fn counted(&self, saved: Vec<SavedOperator>) -> Counted {
        let (next_batch, next_row) = (self.next_batch, self.next_row);
        let model = self.shared.world().model.clone();
        let output = self.output();
        let (rows, order) = (output.rows, output.order.clone());
        drop(output);
        Counted { saved, model, order, next_batch, next_row, rows }
    }

    /// Forgets a part that does not count.
    fn count_again(&mut self, counted: &Counted) {
        (self.next_batch, self.next_row) = (counted.next_batch, counted.next_row);
        let mut output = self.output();
        (output.order, output.rows) = (counted.order.clone(), counted.rows);
        drop(output);
        self.shared.world().model = counted.model.clone();
    }

    /// Loses a task; another one goes on with what counts.
    fn lose(&mut self, lost: SimulatedDriver, counted: &Counted, part: usize) -> SimulatedDriver {
        drop(lost);
        {
            let mut world = self.shared.world();
            world.forget_calls();
            let now = world.now;
            world.model.restored(now);
            world.note(What::Lost { part });
        }
        match counted.saved.iter().map(written_and_read).collect() {
            Ok(saved) => self.start(saved),
            Err(error) => {
                self.shared.world().fail("what was saved is written and read", error.to_string());
                self.start(Vec::new())
            }
        }
    }

    /// Lets a task end what it holds; another one, which held nothing, gets the rest of the input.
    fn move_on(
        &mut self,
        mut driver: SimulatedDriver,
        part: usize,
    ) -> Option<(SimulatedDriver, Counted)> {
        self.shared.world().input.push_back(Feed::EndOfPart(u64::MAX));
        let operators = self.part(&mut driver)?;
        let held: usize = operators.iter().map(SavedOperator::rows).sum();
        if held > 0 {
            let what = format!("{held} rows");
            self.shared.world().fail("what gets no more input comes to its end", what);
            return None;
        }
        let counted = self.counted(Vec::new());
        Some((self.lose(driver, &counted, part), counted))
    }

    /// Works a part off.
    fn part(&mut self, driver: &mut SimulatedDriver) -> Option<Vec<SavedOperator>> {
        match self.turns(driver, true) {
            Ended::Finished => {}
            Ended::Failed(error) => {
                self.check_failure(&error);
                return None;
            }
            Ended::Closed | Ended::Panicked(_) | Ended::Broken => return None,
        }
        match driver.carry() {
            Ok(carry) => {
                carry.outputs.iter().for_each(|batch| self.output().left(batch));
                self.check_settled(carry.settled);
                Some(carry.operators)
            }
            Err(error) => {
                self.check_failure(&error);
                None
            }
        }
    }

    // --- the end ---

    fn check_end(&self, metrics: &[OperatorMetrics], ended: Ended) {
        match ended {
            Ended::Finished => {
                let mut world = self.shared.world();
                if self.scenario.end == End::Input && !world.model.is_ending {
                    let checked = account(&self.scenario, &world.model, world.now);
                    let checked =
                        checked.and_then(|()| compare(&self.scenario, &world.model, metrics));
                    world.breaks(checked);
                    world.compare_caches();
                    world.compare_requests(metrics);
                    world.check_pools();
                    world.check_entered();
                    world.check_kept_back();
                } else if world.model.is_ending {
                    let what = "it ended as if nothing had failed";
                    world.fail("a failure ends the task", what);
                }
                world.note(What::Ended { error: None });
            }
            Ended::Failed(error) => {
                self.check_failure(&error);
                self.shared.world().check_kept_back();
            }
            Ended::Closed => self.shared.world().check_kept_back(),
            Ended::Panicked(error) => {
                let mut world = self.shared.world();
                world.note(What::Ended { error: Some(error) });
                (world.model.is_ending, world.has_ended) = (true, true);
                return;
            }
            Ended::Broken => return,
        }
        let mut world = self.shared.world();
        world.model.is_ending = true;
        world.has_ended = true;
        let closed = world.model.sites.iter().filter(|it| it.is_closed).count();
        if closed != world.model.sites.len() {
            let what = format!("{closed} of {}", world.model.sites.len());
            world.fail("functions are closed at the end", what);
        }
    }

    fn check_failure(&self, error: &TaskError) {
        let mut world = self.shared.world();
        let fails = |it: &Site| it.plan.on_error == Failing::Fail;
        let refuses = |it: &Site| fails(it) && it.plan.pause.is_some_and(|it| it.refuses);
        let may = match error {
            // One that was refused was not called.
            TaskError::Row { .. } => {
                let is_vague = |it: &Site| it.has_vague_tries() || it.may_be_spent;
                let may_end = |it: &Site| refuses(it) || fails(it) && is_vague(it);
                world.model.is_ending || world.model.sites.iter().any(may_end)
            }
            // A row that timed out before it was called was not seen.
            TaskError::TimedOut { .. } => world.model.sites.iter().any(fails),
            TaskError::Internal(text) if text == FAILED => {
                world.journal.as_ref().is_some_and(|it| it.has_told_failure)
            }
            TaskError::Internal(text) => text == "the input fails",
            _ => false,
        };
        if !may {
            let what = format!("{error}");
            world.fail("a task fails for a reason", what);
        }
        world.note(What::Ended { error: Some(error.to_string()) });
    }
}

/// Returns what was saved as the state of a stream gives it back.
fn written_and_read(saved: &SavedOperator) -> Result<SavedOperator, ArrowError> {
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new(&mut bytes, saved.batch().schema_ref())?;
    writer.write(saved.batch())?;
    writer.finish()?;
    drop(writer);
    let mut batches = StreamReader::try_new(bytes.as_slice(), None)?;
    let batch =
        batches.next().unwrap_or_else(|| Ok(RecordBatch::new_empty(saved.batch().schema())));
    SavedOperator::read(batch?).map_err(|error| ArrowError::ExternalError(Box::new(error)))
}
