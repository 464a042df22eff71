// SPDX-License-Identifier: Apache-2.0
//! What rows cost of limits in time, before they are called and after.
//!
//! ```text
//!   input batch --columns, functions--> prices --> the operator charges them
//!   results ------a column of them----> costs ---> the operator settles the difference
//! ```
//!
//! Columns are read once a batch. A row with an invalid price fails, and is not called.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, RecordBatch};
use arrow::compute::cast;
use arrow::compute::kernels::length::length;
use arrow::datatypes::{DataType, Float64Type, Schema, UInt64Type};
use sparkawait_arrow::{InputBatch, NoAmount, RefusedRow, RefusedRows, amount_of, amounts};
use sparkawait_core::operator::AttemptId;
use sparkawait_core::policy::{Costs, MAX_LIMITS};

use crate::error::{StartError, TaskError};
use crate::function::{ResultGroup, SettledCall};
use crate::native::column_index;

/// Bytes that a number or an instant has as a text.
const LONGEST_OF_OTHERS: u64 = 40;

/// Computes what the rows of a batch cost.
///
/// Used by the task thread, once per batch.
pub trait CostFunction: fmt::Debug + Send + Sync {
    /// Returns what each row of `input` costs.
    fn costs(&self, input: &Arc<InputBatch>) -> Vec<Result<u64, RefusedRow>>;
}

/// Where the cost of a row is found.
#[derive(Clone, Debug)]
pub enum CostSource {
    /// In a column of the input, or a hidden one.
    Column(String),
    /// It follows from the bytes that columns have as texts.
    Lengths {
        /// The columns.
        columns: Vec<String>,
        /// What a byte costs.
        weight: f64,
        /// What all rows cost.
        constant: f64,
    },
    /// A function computes it.
    Function(Arc<dyn CostFunction>),
}

/// What rows cost one limit.
#[derive(Clone, Debug)]
pub struct RowCost {
    /// The number of the limit.
    pub limit: usize,
    /// What the limit is called.
    pub label: String,
    /// The most that a call may cost.
    pub most: u64,
    /// How many permits a cost of 1 is.
    pub scale: u64,
    /// Where the cost is found.
    pub source: CostSource,
}

/// Where results say what their call has cost one limit.
#[derive(Clone, Debug)]
pub struct ResultCost {
    /// The number of the limit.
    pub limit: usize,
    /// How many permits a cost of 1 is.
    pub scale: u64,
    /// Columns of the results, with the fields inside of them, and what each is multiplied by before they
    /// are added up.
    pub parts: Vec<(Vec<String>, f64)>,
}

/// What the rows of a task cost, where they do not all cost the same.
#[derive(Clone, Debug, Default)]
pub struct PriceSettings {
    /// What a row costs each limit for which it does not cost something of its own.
    pub usual: Costs,
    /// What each row costs.
    pub rows: Vec<RowCost>,
    /// What calls turn out to have cost.
    pub results: Vec<ResultCost>,
    /// How many permits a cost of 1 is, by the number of the limit; of others 0.
    pub scales: [u64; MAX_LIMITS],
    /// What limits are called, by their numbers.
    pub labels: Vec<String>,
    /// Whether limits count the requests of a function that makes one for many calls.
    pub counts_requests: bool,
}

impl ResultCost {
    /// Tells the log, once a task, of costs that cannot be.
    fn tell_wrong(&self, why: NoAmount, count: usize, of: usize) {
        let columns: Vec<String> = self.parts.iter().map(|(path, _)| path.join(".")).collect();
        let columns = columns.join(" + ");
        tracing::warn!(
            "`result_cost` `{columns}` {why} in the results of {count} of {of} calls; such calls count \
             with their `cost`, and later ones of the task are not told"
        );
    }
}

impl RowCost {
    /// Refuses a row because its cost is invalid.
    pub fn refuse(&self, why: NoAmount) -> RefusedRow {
        RefusedRow::new(no_cost(&self.label, why))
    }

    /// Refuses a row that costs more than a call may.
    fn check(&self, cost: u64) -> Result<u64, RefusedRow> {
        if cost <= self.most {
            return Ok(cost);
        }
        let Self { label, most, .. } = self;
        Err(RefusedRow::new(format!(
            "`cost` of RateLimit `{label}` is above {most} in this row; one call must not take more \
             than comes in an hour, or than the permits of the rate or ten bursts where these are \
             more, since all others would wait for it"
        )))
    }
}

/// Says why a cost is invalid, and what it should be.
pub fn no_cost(label: &str, why: impl fmt::Display) -> String {
    format!(
        "`cost` of RateLimit `{label}` {why} in this row; it must be a number from 0 to 2 to the \
         power of 53"
    )
}

/// Finds the prices of rows, batch by batch.
#[derive(Debug, Default)]
pub(crate) struct RowPrices {
    usual: Costs,
    rows: Vec<(RowCost, Vec<usize>)>,
    results: Vec<ResultCost>,
    scales: [u64; MAX_LIMITS],
    /// Whether a cost that cannot be was told.
    is_told: Cell<bool>,
}

impl RowPrices {
    /// Looks the columns up in those of the batches that come.
    ///
    /// # Errors
    ///
    /// A column that does not exist.
    pub(crate) fn new(settings: &PriceSettings, columns: &Schema) -> Result<Self, StartError> {
        let rows = settings.rows.iter().map(|cost| {
            let names = match &cost.source {
                CostSource::Column(name) => std::slice::from_ref(name),
                CostSource::Lengths { columns, .. } => columns.as_slice(),
                CostSource::Function(_) => &[],
            };
            let positions = names.iter().map(|name| column_index(columns, name, "cost"));
            Ok((cost.clone(), positions.collect::<Result<_, _>>()?))
        });
        let rows = rows.collect::<Result<_, StartError>>()?;
        let (usual, scales) = (settings.usual, settings.scales);
        let (results, is_told) = (settings.results.clone(), Cell::new(false));
        Ok(Self { usual, rows, results, scales, is_told })
    }

    /// Returns the price of each row; none if all cost the usual. Rows that have no price are
    /// refused.
    ///
    /// # Errors
    ///
    /// The column does not hold numbers; the driver has ruled that out.
    pub(crate) fn read(&self, input: &Arc<InputBatch>) -> Result<Vec<Costs>, TaskError> {
        if self.rows.is_empty() {
            return Ok(Vec::new());
        }
        let mut prices = vec![self.usual; input.batch.num_rows()];
        let mut refused = RefusedRows::new();
        for (cost, positions) in &self.rows {
            let costs = match &cost.source {
                CostSource::Function(function) => function.costs(input),
                CostSource::Lengths { weight, constant, .. } => {
                    let bytes = bytes_of(input, positions);
                    #[expect(
                        clippy::cast_precision_loss,
                        reason = "far less than 2 to the power of 53"
                    )]
                    let cost_of =
                        |it: u64| amount_of((it as f64).mul_add(*weight, *constant), cost.scale);
                    bytes
                        .into_iter()
                        .map(|it| cost_of(it).map_err(|why| cost.refuse(why)))
                        .collect()
                }
                CostSource::Column(name) => {
                    let column = input.column(positions.first().copied().unwrap_or_default());
                    let amounts = amounts(column, cost.scale).ok_or_else(|| no_numbers(name))?;
                    amounts.into_iter().map(|it| it.map_err(|why| cost.refuse(why))).collect()
                }
            };
            for ((row, price), found) in (0..).zip(&mut prices).zip(costs) {
                match found.and_then(|amount| cost.check(amount)) {
                    Ok(amount) => *price = price.with(cost.limit, amount),
                    Err(why) => {
                        refused.entry(row).or_insert(why);
                    }
                }
            }
        }
        for row in refused.keys() {
            // It fails as soon as its turn comes.
            prices[*row as usize] = Costs::NONE;
        }
        if !refused.is_empty() {
            #[expect(clippy::let_underscore_must_use, reason = "nobody else refuses rows")]
            let _ = input.refused.set(refused);
        }
        Ok(prices)
    }

    /// Returns what calls have cost, as far as their results say so: the first row of each.
    pub(crate) fn settle(&self, group: &ResultGroup) -> Vec<SettledCall> {
        let mut settled = Vec::new();
        for cost in &self.results {
            let column = match cost.parts.as_slice() {
                [(path, weight)] if weight.to_bits() == 1.0_f64.to_bits() => {
                    column_at(&group.rows, path)
                }
                parts => sum_of(&group.rows, parts).map(|it| (it, Vec::new())),
            };
            let Some((column, parents)) = column else { continue };
            let Some(amounts) = amounts(&column, cost.scale) else { continue };
            let of_row = |row: usize| {
                let is_there = parents.iter().all(|it| it.is_valid(row));
                amounts.get(row).copied().filter(|_| is_there)
            };
            let mut wrong: Option<(NoAmount, usize)> = None;
            for (attempt, row) in first_rows(group) {
                match of_row(row) {
                    Some(Ok(cost_of_call)) => {
                        settled.push(SettledCall {
                            attempt,
                            limit: cost.limit,
                            cost: cost_of_call,
                        });
                    }
                    // Many services do not say it with each reply.
                    Some(Err(NoAmount::Null)) | None => {}
                    Some(Err(why)) => wrong = Some((why, wrong.map_or(1, |it| it.1 + 1))),
                }
            }
            if let Some((why, count)) = wrong
                && !self.is_told.replace(true)
            {
                cost.tell_wrong(why, count, group.attempts.len());
            }
        }
        settled
    }

    /// Returns what each of so many rows costs, of a batch whose rows cost so much; nothing there if all
    /// cost the usual.
    pub(crate) fn of_rows<'a>(
        &self,
        rows: usize,
        costs: &'a [Costs],
    ) -> impl Iterator<Item = Costs> + use<'a> {
        let usual = self.usual;
        (0..rows).map(move |row| costs.get(row).copied().unwrap_or(usual))
    }

    /// Returns the limit whose cost is told of each row, and how many permits a cost of 1 is: one of
    /// money, or else the first one for which calls do not all cost 1.
    pub(crate) fn told(&self) -> Option<(usize, u64)> {
        let is_priced = |limit: &usize| {
            self.usual.of(*limit) > 1
                || self.rows.iter().any(|(it, _)| it.limit == *limit)
                || self.results.iter().any(|it| it.limit == *limit)
        };
        let priced =
            (0..MAX_LIMITS).filter(is_priced).map(|limit| (limit, self.scales[limit].max(1)));
        // Of money there are millionths, and the first of equals is the last of the reverse.
        priced.rev().max_by_key(|(_, scale)| *scale)
    }

    /// Returns whether rows may have other prices than the usual one.
    pub(crate) fn are_of_rows(&self) -> bool {
        !self.rows.is_empty()
    }

    /// Returns whether results must be looked at.
    pub(crate) fn are_in_results(&self) -> bool {
        !self.results.is_empty()
    }
}

/// Returns each call that has result rows, with the position of the first of them.
fn first_rows(group: &ResultGroup) -> impl Iterator<Item = (AttemptId, usize)> {
    let mut next = 0;
    group.attempts.iter().enumerate().filter_map(move |(index, attempt)| {
        let counts = group.counts.as_ref();
        let count = counts.map_or(1, |it| it.get(index).copied().unwrap_or_default()) as usize;
        let first = next;
        next += count;
        (count > 0).then_some((*attempt, first))
    })
}

/// Returns a column, or a field inside of one, and the structs around it.
fn column_at(rows: &RecordBatch, path: &[String]) -> Option<(ArrayRef, Vec<ArrayRef>)> {
    let (first, fields) = path.split_first()?;
    let mut column = ArrayRef::clone(rows.column_by_name(first)?);
    let mut parents = Vec::new();
    for field in fields {
        let inner = ArrayRef::clone(column.as_struct_opt()?.column_by_name(field)?);
        parents.push(std::mem::replace(&mut column, inner));
    }
    Some((column, parents))
}

/// Returns the bytes that some columns of each row have together as texts.
fn bytes_of(input: &Arc<InputBatch>, positions: &[usize]) -> Vec<u64> {
    let mut bytes = vec![0; input.batch.num_rows()];
    for position in positions {
        let column = input.column(*position);
        let lengths = length(&**column).and_then(|it| cast(&it, &DataType::UInt64)).ok();
        for (row, sum) in bytes.iter_mut().enumerate() {
            let of_text = lengths.as_ref().map(AsArray::as_primitive::<UInt64Type>);
            *sum += of_text
                .map_or(LONGEST_OF_OTHERS, |it| if it.is_valid(row) { it.value(row) } else { 0 });
        }
    }
    bytes
}

/// Returns the weighted sum of columns of numbers: null where all of them are.
fn sum_of(rows: &RecordBatch, parts: &[(Vec<String>, f64)]) -> Option<ArrayRef> {
    let mut sums: Vec<Option<f64>> = vec![None; rows.num_rows()];
    for (path, weight) in parts {
        let (column, parents) = column_at(rows, path)?;
        let column = cast(&column, &DataType::Float64).ok()?;
        for (row, sum) in sums.iter_mut().enumerate() {
            if column.is_valid(row) && parents.iter().all(|it| it.is_valid(row)) {
                let value = column.as_primitive::<Float64Type>().value(row);
                *sum = Some(value.mul_add(*weight, sum.unwrap_or(0.0)));
            }
        }
    }
    Some(Arc::new(Float64Array::from(sums)))
}

fn no_numbers(column: &str) -> TaskError {
    TaskError::Internal(format!("`cost` names column `{column}`, which has no numbers"))
}
