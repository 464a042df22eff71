// SPDX-License-Identifier: Apache-2.0
//! A task from its first batch to its end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use sparkawait_core::mailbox::{Demand, Outlet, Taken};
use sparkawait_runtime::Turn;
use sparkawait_runtime::driver::Handed;
use sparkawait_task::error::TaskError;
use sparkawait_task::saved::SavedOperator;
use sparkawait_task::task_codec::TaskCodec;

use crate::account::{account, compare};
use crate::build::{SimulatedDriver, build};
use crate::columns::{Reader, bytes_of_texts, captured, error_name, info_name, input_batch, told};
use crate::model::{Model, Outcome, Site, Why};
use crate::order::Order;
use crate::random::Random;
use crate::rules::RULES;
use crate::scenario::{End, Failing, PartsPlan, Scenario};
use crate::trace::{Broken, Event, Path, What, child_id, head_id};
use crate::world::{Feed, Shared};

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

/// Runs a scenario.
pub fn run(scenario: &Scenario) -> Report {
    let scenario = Arc::new(scenario.clone());
    let shared = Shared::new(&scenario);
    let run = Run {
        order: Order::new(&scenario),
        shared: shared.clone(),
        next_batch: 0,
        next_row: 0,
        rows: 0,
        outlet: None,
        looks: Random(scenario.seed ^ 0x6c6f_6f6b),
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
    Report { events: std::mem::take(&mut world.events), broken: world.broken.take(), rows }
}

/// How a task ended.
enum Ended {
    Finished,
    Failed(TaskError),
    Closed,
    /// A rule was broken.
    Broken,
}

struct Run {
    scenario: Arc<Scenario>,
    shared: Shared,
    order: Order,
    next_batch: usize,
    next_row: i64,
    rows: usize,
    /// Where the consumer takes the output while turns go on, in one of three scenarios.
    outlet: Option<Arc<Outlet<Handed<TaskCodec>>>>,
    /// When it looks.
    looks: Random,
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
        // A stream has the outputs of its parts.
        if self.scenario.parts.is_none() && self.scenario.seed.is_multiple_of(3) {
            self.outlet = Some(driver.connect(Waker::noop().clone()));
        }
        if let Some(parts) = self.scenario.parts {
            match self.stream(driver, parts) {
                Some(last) => driver = last,
                None => return self.rows,
            }
        }
        self.put_input(usize::MAX);
        let ends = match self.scenario.end {
            End::InputFails(_) => Feed::Failure,
            End::Input | End::Closed(_) => Feed::End,
        };
        self.shared.world().input.push_back(ends);
        let ended = self.turns(&mut driver, false);
        self.check_end(&mut driver, ended);
        self.rows
    }

    fn start(&self, saved: Vec<SavedOperator>) -> SimulatedDriver {
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
            let batch = input_batch(&self.scenario, self.next_row, *rows);
            self.next_row += i64::try_from(*rows).unwrap_or_default();
            self.next_batch += 1;
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
            self.consume(driver.is_open());
            match driver.take_turn() {
                Ok(Turn::Output(batch)) => self.hand_over(batch),
                Ok(Turn::Paused) => {
                    if of_part && driver.has_part_ended() {
                        return Ended::Finished;
                    }
                }
                Ok(Turn::Finished) => return self.taken_all(Ended::Finished),
                Err(error) => return self.taken_all(Ended::Failed(error)),
            }
        }
    }

    /// Checks that the end of a task is told behind all its batches.
    fn taken_all(&self, ended: Ended) -> Ended {
        if let Some(outlet) = &self.outlet
            && let Taken::Output(_) = outlet.take()
        {
            let what = "a batch was not taken".to_owned();
            self.shared.world().fail("the end comes behind all batches", what);
        }
        ended
    }

    /// Lets the consumer look at the outlet, or do something else. A task of few calls goes on only
    /// while it waits.
    fn consume(&mut self, is_open: bool) {
        let Some(outlet) = self.outlet.clone() else { return };
        while self.looks.in_a_hundred(60) || (!is_open && outlet.demand() != Demand::Any) {
            match outlet.take() {
                Taken::Output(Ok(Some(batch))) => self.left(&batch),
                Taken::Nothing => return,
                other => {
                    let what = format!("{other:?}");
                    return self.shared.world().fail("batches alone are handed over here", what);
                }
            }
        }
    }

    /// A turn has a batch, which somebody wants.
    fn hand_over(&mut self, batch: RecordBatch) {
        let Some(outlet) = &self.outlet else { return self.left(&batch) };
        if outlet.put(Ok(Some(batch))).is_err() {
            let what = "its place is taken".to_owned();
            self.shared.world().fail("a batch is made when it is wanted", what);
        }
    }

    /// A batch is in the output.
    fn left(&mut self, batch: &RecordBatch) {
        let scenario = Arc::clone(&self.scenario);
        let mut world = self.shared.world();
        let last = scenario.operators.len() - 1;
        let most = scenario.operators[last].max_rows_per_batch;
        if batch.num_rows() > most {
            let what = format!("{} of {most}", batch.num_rows());
            world.fail("no more rows in a batch than said", what);
        }
        let (bytes, bound) = (bytes_of_texts(&scenario, batch), scenario.operators[last].bytes);
        if let Some(bound) = bound.filter(|it| batch.num_rows() > 1 && bytes > it.max_per_batch) {
            let what = format!("{bytes} of {} in {} rows", bound.max_per_batch, batch.num_rows());
            world.fail("no more bytes in a batch than said", what);
        }
        let reader = Reader::new(&scenario, batch, last + 1);
        let paths: Vec<_> = (0..batch.num_rows()).map(|it| reader.path(it)).collect();
        world.note(What::Left { rows: paths.iter().map(|it| it.row).collect() });
        for (index, path) in paths.iter().enumerate() {
            if world.broken.is_some() {
                return;
            }
            let now = world.now;
            let seen = world.model.put_out(path, now);
            let seen = seen.and_then(|()| self.order.left(path));
            let seen = seen.and_then(|()| check_captured(&world.model, batch, index, path));
            let seen = seen.and_then(|()| check_told(&world.model, batch, index, path, now));
            world.breaks(seen);
            self.rows += 1;
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
        let (next_batch, next_row, rows) = (self.next_batch, self.next_row, self.rows);
        let (model, order) = (self.shared.world().model.clone(), self.order.clone());
        Counted { saved, model, order, next_batch, next_row, rows }
    }

    /// Forgets a part that does not count.
    fn count_again(&mut self, counted: &Counted) {
        (self.next_batch, self.next_row) = (counted.next_batch, counted.next_row);
        (self.order, self.rows) = (counted.order.clone(), counted.rows);
        self.shared.world().model = counted.model.clone();
    }

    /// Loses a task; another one goes on with what counts.
    fn lose(&self, lost: SimulatedDriver, counted: &Counted, part: usize) -> SimulatedDriver {
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
            Ended::Closed | Ended::Broken => return None,
        }
        match driver.carry() {
            Ok(carry) => {
                carry.outputs.iter().for_each(|batch| self.left(batch));
                Some(carry.operators)
            }
            Err(error) => {
                self.check_failure(&error);
                None
            }
        }
    }

    // --- the end ---

    fn check_end(&mut self, driver: &mut SimulatedDriver, ended: Ended) {
        let metrics = driver.metrics_reader().read();
        match ended {
            Ended::Finished => {
                let mut world = self.shared.world();
                if self.scenario.end == End::Input && !world.model.is_ending {
                    let checked = account(&self.scenario, &world.model, world.now);
                    let checked =
                        checked.and_then(|()| compare(&self.scenario, &world.model, &metrics));
                    world.breaks(checked);
                    world.compare_caches();
                    world.compare_requests(&metrics);
                } else if world.model.is_ending {
                    let what = "it ended as if nothing had failed";
                    world.fail("a failure ends the task", what);
                }
                world.note(What::Ended { error: None });
            }
            Ended::Failed(error) => self.check_failure(&error),
            Ended::Closed => {}
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
        drop(world);
        driver.close();
        self.shared.answer_all();
    }

    fn check_failure(&self, error: &TaskError) {
        let mut world = self.shared.world();
        let fails = |it: &Site| it.plan.on_error == Failing::Fail;
        let refuses = |it: &Site| fails(it) && it.plan.pause.is_some_and(|it| it.refuses);
        let may = match error {
            // One that was refused was not called.
            TaskError::Row { .. } => world.model.is_ending || world.model.sites.iter().any(refuses),
            // A row that timed out before it was called was not seen.
            TaskError::TimedOut { .. } => world.model.sites.iter().any(fails),
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

/// What is told of the calls of a row is what was called. Less is known where a cache answers, or tasks
/// get lost.
fn check_told(
    model: &Model,
    batch: &RecordBatch,
    index: usize,
    path: &Path,
    now: u64,
) -> Result<(), Broken> {
    let mut id = head_id(path.row);
    for (operator, values) in path.values.iter().enumerate() {
        for (branch, site) in model.sites_of(operator).enumerate() {
            let here = &model.sites[site];
            let is_cached = here.plan.cache.is_some();
            let known = here.rows.get(&id).filter(|_| !model.has_parts());
            let found = told(batch, &info_name(operator, branch), index);
            let (Some(row), Some(found)) = (known, found) else { continue };
            let (called, ends) = (row.first_call, row.first_call.map(|_| now));
            let are_times_right = is_within(found.seconds, called.unwrap_or_default(), ends)
                && is_within(found.waited, row.at, called)
                && !found.cached;
            let is_right = (found.attempts, found.hedged) == (row.made, row.hedged)
                && (is_cached || are_times_right);
            if !is_right {
                let what = format!("row {} at function {site}: {found:?}, {row:?}", path.row);
                return Err(Broken::new("what is told of calls is what was called", what));
            }
        }
        id = child_id(id, values);
    }
    Ok(())
}

/// Whether a time is there if its end is, and is no longer than what lies between.
fn is_within(time: Option<Duration>, since: u64, until: Option<u64>) -> bool {
    let most = until.map(|it| Duration::from_nanos(it.saturating_sub(since)));
    time.is_some() == most.is_some() && time <= most
}

/// What is captured of a failure is what was seen of it.
fn check_captured(
    model: &Model,
    batch: &RecordBatch,
    index: usize,
    path: &Path,
) -> Result<(), Broken> {
    let mut id = head_id(path.row);
    for (operator, values) in path.values.iter().enumerate() {
        for (branch, site) in model.sites_of(operator).enumerate() {
            let here = &model.sites[site];
            if here.plan.on_error != Failing::Capture {
                continue;
            }
            let found = captured(batch, &error_name(operator, branch), index);
            let Some(row) = here.rows.get(&id) else { continue };
            let is_right = match (row.state(), &found) {
                (Some(Outcome::Results { .. }), None) => true,
                (Some(Outcome::Failed(why)), Some((kind, attempts))) => {
                    let kinds: &[&str] = match why {
                        Why::Function => &["user-function-failed", "retries-exhausted"],
                        Why::Time => {
                            &["element-timed-out", "destination-paused", "destination-unavailable"]
                        }
                        Why::Several => &["result-schema-mismatch"],
                    };
                    // One that began when its time had passed already was not made; what the function
                    // says of the row then may be a failure of its own.
                    let has_passed = why == Why::Time || here.plan.asks_on_timeout;
                    let vain = u32::from(has_passed && RULES.a_call_in_vain_counts);
                    let made = row.attempts..=row.attempts + vain;
                    kinds.contains(&kind.as_str()) && made.contains(attempts)
                }
                _ => false,
            };
            if !is_right {
                let what = format!("row {} at function {site}: {found:?}, {row:?}", path.row);
                return Err(Broken::new("what is captured is what happened", what));
            }
        }
        id = child_id(id, values);
    }
    Ok(())
}
