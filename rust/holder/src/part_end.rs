// SPDX-License-Identifier: Apache-2.0
//! What a part of a task's input came to.

use std::time::Duration;

use sparkawait_core::policy::MAX_LIMITS;
use sparkawait_runtime::OperatorMetrics;

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
    /// Permits taken of each limit, by its number; below 0 where more came back than was taken.
    pub permits: [i64; MAX_LIMITS],
}

/// How many numbers an operator has.
pub const NUMBERS: usize = 8 + MAX_LIMITS;

impl Counts {
    /// Returns all numbers, in the order of the fields.
    pub fn numbers(&self) -> [i64; NUMBERS] {
        let Self {
            admitted,
            emitted,
            dropped,
            failed,
            attempts,
            retries,
            timeouts,
            cancelled,
            permits,
        } = *self;
        let rows = [admitted, emitted, dropped, failed, attempts, retries, timeouts, cancelled];
        let mut all = rows.map(u64::cast_signed).into_iter().chain(permits);
        std::array::from_fn(|_| all.next().unwrap_or(0))
    }

    pub(crate) fn of(metrics: &OperatorMetrics) -> Self {
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
            permits: metrics
                .limits
                .as_ref()
                .map_or([0; MAX_LIMITS], |it| it.permits.map(u64::cast_signed)),
        }
    }

    pub(crate) fn since(&self, before: &Self) -> Self {
        let (now, before) = (self.numbers(), before.numbers());
        Self::from_numbers(std::array::from_fn(|index| now[index].saturating_sub(before[index])))
    }

    /// Makes them of the numbers that [`numbers`](Self::numbers) gave.
    pub fn from_numbers(numbers: [i64; NUMBERS]) -> Self {
        let [
            admitted,
            emitted,
            dropped,
            failed,
            attempts,
            retries,
            timeouts,
            cancelled,
            permits @ ..,
        ] = numbers;
        let [admitted, emitted, dropped, failed, attempts, retries, timeouts, cancelled] =
            [admitted, emitted, dropped, failed, attempts, retries, timeouts, cancelled]
                .map(|it| u64::try_from(it).unwrap_or(0));
        Self { admitted, emitted, dropped, failed, attempts, retries, timeouts, cancelled, permits }
    }
}

/// What a part of the input came to.
#[derive(Clone, Default)]
pub struct PartEnd {
    /// What was completed since the part before, as Arrow IPC.
    pub outputs: Vec<Vec<u8>>,
    /// Its rows.
    pub output_rows: u64,
    /// What each operator holds, see [`write_operators`](crate::state::write_operators).
    pub operators: Vec<Vec<u8>>,
    /// Rows in flight.
    pub carried: u64,
    /// Rows that are completed and wait for others, as order wants it.
    pub held: u64,
    /// Rows of the input that the first operator holds.
    pub input: u64,
    /// How long the oldest row is held, in all tasks that have held it.
    pub oldest: Duration,
    /// What each operator did since the part before.
    pub counts: Vec<Counts>,
}

// Shows sizes only: row contents do not belong in logs.
sparkawait_core::opaque_debug!(PartEnd, output_rows: output_rows, carried: carried, held: held);

impl PartEnd {
    pub(crate) fn bytes(&self) -> usize {
        self.outputs.iter().chain(&self.operators).map(Vec::len).sum()
    }
}
