// SPDX-License-Identifier: Apache-2.0
//! The operator of one task over record batches.

use sparkawait_core::operator::Config;
use sparkawait_runtime::clock::MonotonicClock;
use sparkawait_runtime::{Driver, DriverConfig, Feeder, Mailbox};

use crate::cache::{CacheSettings, CachedFunction};
use crate::concurrency::Concurrency;
use crate::error::TaskError;
use crate::exchange::{RowConfig, TaskExchange};
use crate::function::{Replies, TaskFunction};
use crate::native::StartError;

/// Drives a task's operator.
pub type TaskDriver = Driver<TaskExchange, TaskFunction>;

/// Takes a task's input.
pub type TaskFeeder = Feeder<TaskExchange>;

/// Everything that a task is told.
#[derive(Clone, Debug)]
pub struct TaskConfig {
    /// What the operator does.
    pub operator: Config,
    /// How output batches are cut.
    pub driver: DriverConfig,
    /// What the rows look like.
    pub rows: RowConfig,
    /// The cache in front of the function, if there is one.
    pub cache: Option<CacheSettings>,
    /// How many calls the function can have on their way; the operator starts no more.
    pub concurrency: Concurrency,
}

/// Builds a task around the function that `function` makes.
///
/// # Errors
///
/// Columns that do not exist, clash, or have an unfit type, or whatever
/// `function` fails with.
pub fn build<E: From<TaskError> + From<StartError>>(
    mut config: TaskConfig,
    function: impl FnOnce(Replies) -> Result<TaskFunction, E>,
) -> Result<(TaskDriver, TaskFeeder), E> {
    config.concurrency.bound(&mut config.operator);
    let mailbox = Mailbox::new();
    let replies = mailbox.reply_sender();
    let function: TaskFunction = match &config.cache {
        None => function(Replies::new(replies))?,
        Some(cache) => {
            let (input, results) = (&config.rows.input, &config.rows.results);
            Box::new(CachedFunction::new(cache, input, results, replies, function)?)
        }
    };
    let exchange = TaskExchange::new(config.rows)?;
    let clock = MonotonicClock::start();
    Ok(Driver::new(mailbox, config.operator, config.driver, exchange, function, clock))
}
