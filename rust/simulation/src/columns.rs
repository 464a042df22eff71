// SPDX-License-Identifier: Apache-2.0
//! Rows of the simulation as columns, and back.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::buffer::{Buffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Int32Type, Int64Type, Schema, SchemaRef};
use bytes::Bytes;
use sparkawait_arrow::CallInfo;

use crate::panics::Panics;
use crate::random::Random;
use crate::scenario::{OperatorPlan, PanicPlace, Scenario};
use crate::trace::{Path, choice};

/// The name of what a function returns.
pub fn result_name(operator: usize, branch: usize) -> String {
    format!("r{operator}b{branch}")
}

/// The name of the text that a function returns beside its number.
pub fn text_name(operator: usize, branch: usize) -> String {
    format!("t{operator}b{branch}")
}

/// The schema of what a function returns.
pub fn result_schema(plan: &OperatorPlan, operator: usize, branch: usize) -> SchemaRef {
    let number = Field::new(result_name(operator, branch), DataType::Int64, true);
    let text = plan.bytes.map(|_| Field::new(text_name(operator, branch), DataType::Utf8, true));
    Arc::new(Schema::new([number].into_iter().chain(text).collect::<Vec<_>>()))
}

/// The bytes of all texts in a batch of the output: of results, and of failures that are captured.
pub fn bytes_of_texts(scenario: &Scenario, batch: &RecordBatch) -> usize {
    let plans = scenario.operators.iter().enumerate();
    let functions = plans
        .flat_map(|(operator, plan)| (0..plan.calls.len()).map(move |branch| (operator, branch)));
    let text = |column: &ArrayRef| column.as_string::<i32>().iter().flatten().map(str::len).sum();
    let bytes = |(operator, branch): (usize, usize)| {
        let results = batch.column_by_name(&text_name(operator, branch)).map_or(0, text);
        let errors = batch.column_by_name(&error_name(operator, branch));
        let messages = errors.and_then(|it| it.as_struct().column_by_name("message"));
        results + messages.map_or(0, text)
    };
    functions.map(bytes).sum()
}

/// The name of the column that its failures are captured in.
pub fn error_name(operator: usize, branch: usize) -> String {
    format!("e{operator}b{branch}")
}

/// The schema of nullable numbers.
pub fn numbers(names: &[&str]) -> SchemaRef {
    let fields = names.iter().map(|name| Field::new(*name, DataType::Int64, true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The columns of the input.
pub fn input_schema() -> SchemaRef {
    numbers(&["row", "key", "channel", "cost", "time"])
}

/// What is drawn for one row of the input: key, channel, cost, event time in microseconds.
pub fn cells(scenario: &Scenario, row: i64) -> (Option<i64>, Option<i64>, i64, i64) {
    let random = &mut Random(choice(scenario.seed, usize::MAX, row.cast_unsigned(), 0));
    let below = |random: &mut Random, most: u64| i64::try_from(random.next() % most).ok();
    let key = below(random, scenario.keys).filter(|_| !random.in_a_hundred(14));
    let channel = below(random, scenario.channels).filter(|_| !random.in_a_hundred(14));
    let cost = i64::try_from(random.next() % 8).unwrap_or_default();
    let late = i64::try_from(random.next() % 2_003).unwrap_or_default();
    (key, channel, cost, row * 1_009 - late)
}

/// Makes a batch of the input.
pub fn input_batch(
    scenario: &Scenario,
    panics: &Arc<Panics>,
    first: i64,
    rows: usize,
) -> RecordBatch {
    let rows: Vec<i64> = (first..).take(rows).collect();
    let cells: Vec<_> = rows.iter().map(|row| cells(scenario, *row)).collect();
    let columns = [
        Int64Array::new(watched(panics, rows), None),
        cells.iter().map(|it| it.0).collect(),
        cells.iter().map(|it| it.1).collect(),
        Int64Array::from_iter_values(cells.iter().map(|it| it.2)),
        Int64Array::from_iter_values(cells.iter().map(|it| it.3)),
    ];
    let columns = columns.map(|it| Arc::new(it) as _).to_vec();
    RecordBatch::try_new(input_schema(), columns).expect("the columns fit")
}

/// Values that panic when they are let go of, if the scenario says so.
struct Watched {
    values: Buffer,
    panics: Arc<Panics>,
}

impl AsRef<[u8]> for Watched {
    fn as_ref(&self) -> &[u8] {
        &self.values
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.panics.pass(PanicPlace::Codec);
    }
}

fn watched(panics: &Arc<Panics>, values: Vec<i64>) -> ScalarBuffer<i64> {
    let watched = Watched { values: Buffer::from_vec(values), panics: Arc::clone(panics) };
    ScalarBuffer::from(Buffer::from(Bytes::from_owner(watched)))
}

/// Reads rows of batches that have what operators up to one made of them.
#[derive(Debug)]
pub struct Reader<'a> {
    row: &'a Int64Array,
    scenario: &'a Scenario,
    /// Of each operator, of each of its functions.
    values: Vec<Vec<&'a Int64Array>>,
}

impl<'a> Reader<'a> {
    /// Finds the columns of what `operators` have made.
    pub fn new(scenario: &'a Scenario, batch: &'a RecordBatch, operators: usize) -> Self {
        let column = |name: &str| {
            let column = batch.column_by_name(name);
            column.expect("all columns are there").as_primitive::<Int64Type>()
        };
        let of = |operator: usize| {
            let functions = scenario.operators[operator].calls.len();
            (0..functions).map(|it| column(&result_name(operator, it))).collect()
        };
        Self { row: column("row"), scenario, values: (0..operators).map(of).collect() }
    }

    /// Reads one row.
    pub fn path(&self, index: usize) -> Path {
        let row = self.row.value(index);
        let (key, channel, cost, _) = cells(self.scenario, row);
        let value = |it: &&Int64Array| it.is_valid(index).then(|| it.value(index));
        let values = self.values.iter().map(|it| it.iter().map(value).collect()).collect();
        Path { row, key, channel, cost: cost.cast_unsigned(), values }
    }
}

/// The name of the column that tells of its calls.
pub fn info_name(operator: usize, branch: usize) -> String {
    format!("i{operator}b{branch}")
}

/// Reads what is told of the calls of a row, if anything is.
pub fn told(batch: &RecordBatch, name: &str, index: usize) -> Option<CallInfo> {
    batch.column_by_name(name).map(|it| CallInfo::read(it.as_struct(), index))
}

/// Reads what was captured: kind and attempts, where a row failed.
pub fn captured(batch: &RecordBatch, name: &str, index: usize) -> Option<(String, u32)> {
    let errors = batch.column_by_name(name)?.as_struct();
    if errors.is_null(index) {
        return None;
    }
    let kinds: &StringArray = errors.column_by_name("kind")?.as_string();
    let attempts = errors.column_by_name("attempts")?.as_primitive::<Int32Type>();
    Some((kinds.value(index).to_owned(), attempts.value(index).cast_unsigned()))
}
