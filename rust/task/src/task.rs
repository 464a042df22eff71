// SPDX-License-Identifier: Apache-2.0
//! The operator of one task over record batches.

use std::collections::VecDeque;
use std::sync::Arc;

use sparkawait_core::operator::{AttemptId, Begins, Config, Recall};
use sparkawait_runtime::clock::{Clock, MonotonicClock};
use sparkawait_runtime::{
    AsyncFunction, Carry, ChainedOperator, DrivenTask, Driver, DriverConfig, Feeder, Mailbox,
    OperatorChain,
};

use crate::call_share::CallShare;
use crate::concurrency::Concurrency;
use crate::error::TaskError;
use crate::fan_out::{FanOutCalls, RowFanOut};
use crate::function::{Calls, Replies, TaskFunction, Wants};
use crate::layer::{Inner, Layer, MakeFunction, stack};
use crate::row_check::RowCheck;
use crate::row_config::RowConfig;
use crate::saved::SavedOperator;
use crate::task_codec::TaskCodec;

/// Drives a task's operator.
pub type TaskDriver = Driver<TaskCodec, TaskFunction>;

/// A task that one thread drives, and whose output another one takes.
pub type TaskThread = DrivenTask<TaskCodec, TaskFunction>;

/// Takes a task's input.
pub type TaskFeeder = Feeder<TaskCodec>;

/// What there is of a task at the end of a part of its input.
pub type TaskCarry = Carry<TaskCodec>;

/// Everything that a task is told.
#[derive(Clone, Debug)]
pub struct TaskConfig {
    /// What the operator does.
    pub operator: Config,
    /// How output batches are cut.
    pub driver: DriverConfig,
    /// What the rows look like.
    pub rows: RowConfig,
    /// What stands between the operator and the function; the first one is next to the operator.
    pub layers: Vec<Arc<dyn Layer>>,
    /// How many calls the function can have on their way; the operator starts no more.
    pub concurrency: Concurrency,
}

/// Builds a task around the function that `function` makes.
///
/// # Errors
///
/// Columns that do not exist, clash, or have an unfit type, or whatever a layer
/// or `function` fails with.
pub fn build(
    config: TaskConfig,
    function: impl FnOnce(Replies) -> Result<TaskFunction, TaskError>,
) -> Result<(TaskDriver, TaskFeeder), TaskError> {
    Ok(TaskBuilder::new(config, function)?.build())
}

/// Builds a task of one operator or several; each gets what the one before it puts out.
#[derive(Debug)]
pub struct TaskBuilder {
    mailbox: Mailbox<TaskCodec>,
    chain: OperatorChain<TaskCodec, TaskFunction>,
    /// Operators so far.
    operators: usize,
    /// What further operators go on with.
    saved: VecDeque<SavedOperator>,
}

impl TaskBuilder {
    /// Begins with the operator of the function that `function` makes.
    ///
    /// # Errors
    ///
    /// Columns that do not exist, clash, or have an unfit type, or whatever a
    /// layer or `function` fails with.
    pub fn new(
        config: TaskConfig,
        function: impl FnOnce(Replies) -> Result<TaskFunction, TaskError>,
    ) -> Result<Self, TaskError> {
        Self::restored(VecDeque::new(), config, function)
    }

    /// Does as [`new`](Self::new) for a task that goes on with what another one `saved`, an entry
    /// for each operator.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new), or what was saved does not fit.
    pub fn restored(
        mut saved: VecDeque<SavedOperator>,
        config: TaskConfig,
        function: impl FnOnce(Replies) -> Result<TaskFunction, TaskError>,
    ) -> Result<Self, TaskError> {
        let mailbox = Mailbox::new();
        let head = operator(&mailbox, 0, config, saved.pop_front(), function)?;
        Ok(Self { mailbox, chain: OperatorChain::new(head), operators: 1, saved })
    }

    /// Appends an operator, whose input is what the last one puts out.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn then(
        self,
        config: TaskConfig,
        function: impl FnOnce(Replies) -> Result<TaskFunction, TaskError>,
    ) -> Result<Self, TaskError> {
        let Self { mailbox, chain, operators, mut saved } = self;
        let next = operator(&mailbox, operators, config, saved.pop_front(), function)?;
        Ok(Self { mailbox, chain: chain.then(next), operators: operators + 1, saved })
    }

    /// Appends an operator that calls several functions side by side; an operator of its own makes
    /// the calls of each, see `branches`.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn fan_out(
        builder: Option<Self>,
        config: TaskConfig,
        branches: Vec<(TaskConfig, MakeFunction<'_>)>,
    ) -> Result<Self, TaskError> {
        let (rows, calls) = (config.rows.clone(), FanOutCalls::default());
        let of_branches: Vec<RowConfig> = branches.iter().map(|(it, _)| it.rows.clone()).collect();
        let fan_out = RowFanOut::new(&rows, calls.clone(), &of_branches);
        let function = |_| Ok(Box::new(calls) as TaskFunction);
        let Self { mailbox, chain, mut operators, saved } = match builder {
            None => Self::new(config, function)?,
            Some(builder) => builder.then(config, function)?,
        };
        let mut made = Vec::with_capacity(branches.len());
        for (config, function) in branches {
            made.push(operator(&mailbox, operators, config, None, function)?);
            operators += 1;
        }
        let chain = chain.fan_out(made, Box::new(fan_out));
        Ok(Self { mailbox, chain, operators, saved })
    }

    /// Builds the task.
    pub fn build(self) -> (TaskDriver, TaskFeeder) {
        self.build_on(MonotonicClock::start())
    }

    /// Builds the task on a clock of its own, such as one that is moved by hand.
    pub fn build_on<C: Clock>(self, clock: C) -> (Driver<TaskCodec, TaskFunction, C>, TaskFeeder) {
        debug_assert!(self.saved.is_empty(), "all that was saved is of an operator");
        Driver::new(self.mailbox, self.chain, clock)
    }
}

/// A function as its operator calls it: not for some rows, and with a share of the connections.
struct OperatorFunction {
    function: TaskFunction,
    check: Option<RowCheck>,
    /// Until it is closed.
    share: Option<CallShare>,
}

impl AsyncFunction<Calls> for OperatorFunction {
    fn invoke(&mut self, calls: Calls) {
        let calls = match &self.check {
            Some(check) => check.callable(calls),
            None => calls,
        };
        if !calls.calls.is_empty() {
            self.function.invoke(calls);
        }
    }

    fn ask_timeout(&mut self, calls: Calls) {
        self.function.ask_timeout(calls);
    }

    fn cancel(&mut self, attempts: Vec<AttemptId>) {
        self.function.cancel(attempts);
    }

    fn recall(&self) -> Option<Arc<dyn Recall>> {
        self.function.recall()
    }

    fn close(&mut self) {
        self.function.close();
        self.share = None;
    }
}

/// Returns when the calls of the function of a task begin, as far as anybody looks at that: to say it
/// costs a message a burst.
fn begins_of_function(config: &TaskConfig) -> Begins {
    let TaskConfig { operator, rows, layers, concurrency, .. } = config;
    let is_looked_at = operator.attempt_timeout.is_some()
        || operator.channels.is_some()
        || operator.hedge.is_some()
        || rows.tells_calls()
        || !layers.is_empty();
    if is_looked_at { concurrency.begins() } else { Begins::AtOnce }
}

/// Makes the operator at `position` of a task.
fn operator(
    mailbox: &Mailbox<TaskCodec>,
    position: usize,
    mut config: TaskConfig,
    saved: Option<SavedOperator>,
    function: impl FnOnce(Replies) -> Result<TaskFunction, TaskError>,
) -> Result<ChainedOperator<TaskCodec, TaskFunction>, TaskError> {
    config.concurrency.bound(&mut config.operator);
    let of_function = begins_of_function(&config);
    let begins = config.layers.iter().rev().fold(of_function, |inner, it| it.begins(inner));
    config.operator.begins = begins;
    let policy = config.operator.channels.as_ref().map(|it| &it.policy);
    let limits = policy.is_some_and(|it| it.limits.iter().flatten().any(|it| it.counted.is_some()));
    let requests = config.rows.prices.counts_requests;
    let statuses = config.rows.tells_calls();
    let wants = Wants { begins, limits, requests, statuses };
    let replies = Replies::to(mailbox.reply_sender(position)).wanting(wants);
    let function = Inner { make: Box::new(function), begins: of_function };
    let function = stack(&config.layers, function, replies.clone(), &config.rows)?;
    let check = RowCheck::new(replies, &config.rows)?;
    let share = config.concurrency.shared().map(|(connections, calls)| {
        CallShare::of(connections, calls, mailbox.reply_sender(position))
    });
    let function: TaskFunction = if check.is_some() || share.is_some() {
        Box::new(OperatorFunction { function, check, share })
    } else {
        function
    };
    config.operator.recall = function.recall();
    if let Some(journal) = &config.rows.journal {
        journal.journal.connect(mailbox.waker());
    }
    // What a branch gets has the types of the operator that has it.
    let is_chained = position > 0 && !config.rows.is_branch;
    let codec = TaskCodec::new(config.rows, begins)?;
    let codec = if is_chained { codec.chained() } else { codec };
    let Some(saved) = saved else {
        return Ok(ChainedOperator::new(config.operator, config.driver, codec, function));
    };
    ChainedOperator::restored(config.operator, config.driver, codec, function, saved)
}
