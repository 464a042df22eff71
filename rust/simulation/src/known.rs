// SPDX-License-Identifier: Apache-2.0
//! What a journal knows of rows before their task begins, in the columns that it has.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeBinaryArray, Float64Array, Int32Array, Int64Array,
    ListArray, RecordBatch, StringArray, StructArray, new_empty_array, new_null_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::concat;
use arrow::datatypes::{
    DataType, Field, FieldRef, Fields, Int32Type, Int64Type, Schema, SchemaRef,
};
use sparkawait_task::journal::{KEY, KEY_WIDTH, KNOWN};

use crate::columns::result_schema;
use crate::model::{Outcome, Why};
use crate::random::Random;
use crate::scenario::{JournalPlan, Scenario};
use crate::trace::choice;

/// Results that no call of a task says.
const OLD: i64 = 1 << 40;

/// What a row came to in an earlier run.
#[derive(Clone, Debug)]
pub struct KnownRow {
    /// Its calls.
    pub attempts: u32,
    /// Its results, or the kind of its failure.
    pub came: Result<StructArray, String>,
}

/// By the positions of rows in the input.
pub type KnownRows = BTreeMap<i64, KnownRow>;

impl KnownRow {
    /// What the model has of it.
    pub fn outcome(&self) -> Outcome {
        let Ok(results) = &self.came else { return Outcome::Failed(Why::Function) };
        let values = results.column(0).as_primitive::<Int64Type>();
        let serial = values.values().first().map_or(0, |it| it / 8);
        Outcome::Results { serial, count: u32::try_from(results.len()).unwrap_or_default() }
    }
}

/// Draws what is known before the first run of a scenario.
pub fn at_the_start(scenario: &Scenario) -> KnownRows {
    let Some(plan) = scenario.journal else { return KnownRows::new() };
    let rows = 0..i64::try_from(scenario.rows()).unwrap_or_default();
    rows.filter_map(|row| Some((row, drawn(scenario, plan, row)?))).collect()
}

fn drawn(scenario: &Scenario, plan: JournalPlan, row: i64) -> Option<KnownRow> {
    let random = &mut Random(choice(scenario.seed, usize::MAX - 2, row.cast_unsigned(), 0));
    if !random.in_a_hundred(plan.known) {
        return None;
    }
    let attempts = 1 + u32::try_from(random.below(3)).unwrap_or_default();
    if plan.keeps_failures && random.in_a_hundred(30) {
        return Some(KnownRow { attempts, came: Err("user-function-failed".to_owned()) });
    }
    let count = [0, 1, 1, 1, 2, 3][random.below(6)];
    let values: Vec<i64> = (0..count).map(|it| (OLD + row) * 8 + it).collect();
    Some(KnownRow { attempts, came: Ok(results(scenario, values)) })
}

fn results(scenario: &Scenario, values: Vec<i64>) -> StructArray {
    let plan = &scenario.operators[0];
    let text = |it: &i64| plan.bytes.map(|of| "x".repeat(of.of_result(scenario.seed, *it)));
    let texts =
        plan.bytes.map(|_| Arc::new(values.iter().map(text).collect::<StringArray>()) as ArrayRef);
    let number = Arc::new(Int64Array::from(values)) as ArrayRef;
    let columns = [number].into_iter().chain(texts).collect();
    StructArray::new(result_schema(plan, 0, 0).fields().clone(), columns, None)
}

/// Reads the entries of a commit.
pub fn entries(commit: &RecordBatch) -> Vec<(i64, KnownRow)> {
    let column = |name: &str| commit.column_by_name(name).expect("an entry has all columns");
    let keys = column("key").as_fixed_size_binary();
    let kinds = column("kind").as_string::<i32>();
    let attempts = column("attempt").as_primitive::<Int32Type>();
    let lists = column("result").as_list::<i32>();
    let read = |at: usize| {
        let key = keys.value(at).first_chunk().copied().expect("a key has a number");
        let came = if kinds.is_null(at) {
            Ok(lists.value(at).as_struct().clone())
        } else {
            Err(kinds.value(at).to_owned())
        };
        let attempts = u32::try_from(attempts.value(at)).unwrap_or_default();
        (i64::from_le_bytes(key), KnownRow { attempts, came })
    };
    (0..commit.num_rows()).map(read).collect()
}

/// Adds the columns that a journal needs to a batch, whose rows begin with `first`.
pub fn with_columns(
    scenario: &Scenario,
    batch: &RecordBatch,
    first: i64,
    known: &KnownRows,
) -> RecordBatch {
    let rows: Vec<i64> = (first..).take(batch.num_rows()).collect();
    let keys = rows.iter().flat_map(|row| [row.to_le_bytes(), [0; 8]].concat()).collect();
    let keys = FixedSizeBinaryArray::new(KEY_WIDTH, keys, None);
    let rows: Vec<Option<&KnownRow>> = rows.iter().map(|row| known.get(row)).collect();
    let known = known_column(&result_schema(&scenario.operators[0], 0, 0), &rows);
    let more = [
        Field::new(KEY, DataType::FixedSizeBinary(KEY_WIDTH), false),
        Field::new(KNOWN, known.data_type().clone(), true),
    ];
    let schema = batch.schema();
    let fields = schema.fields().iter().cloned().chain(more.map(Arc::new));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let columns = batch.columns().iter().cloned().chain([Arc::new(keys) as ArrayRef, known]);
    RecordBatch::try_new(schema, columns.collect()).expect("the columns fit")
}

fn known_column(schema: &SchemaRef, rows: &[Option<&KnownRow>]) -> ArrayRef {
    let results = DataType::Struct(schema.fields().clone());
    let item: FieldRef = Arc::new(Field::new("item", results.clone(), true));
    let fields = Fields::from(vec![
        Field::new("kind", DataType::Utf8, true),
        Field::new("message", DataType::Utf8, true),
        Field::new("attempt", DataType::Int32, true),
        Field::new("status", DataType::Int32, true),
        Field::new("cost", DataType::Float64, true),
        Field::new("result", DataType::List(Arc::clone(&item)), true),
    ]);
    if rows.iter().all(Option::is_none) {
        return new_null_array(&DataType::Struct(fields), rows.len());
    }
    let came = |it: Option<&KnownRow>| it.and_then(|it| it.came.as_ref().ok()).cloned();
    let kinds = rows.iter().map(|it| it.and_then(|it| it.came.as_ref().err()).cloned());
    let kinds: StringArray = kinds.collect();
    let attempts = rows.iter().map(|it| it.and_then(|it| i32::try_from(it.attempts).ok()));
    let attempts: Int32Array = attempts.collect();
    let pieces: Vec<StructArray> = rows.iter().copied().filter_map(came).collect();
    let lengths = rows.iter().map(|it| came(*it).map_or(0, |it| it.len()));
    let offsets = OffsetBuffer::from_lengths(lengths);
    let pieces: Vec<&dyn Array> = pieces.iter().map(|it| it as &dyn Array).collect();
    let values = if pieces.is_empty() { new_empty_array(&results) } else { joined(&pieces) };
    let lists = ListArray::new(item, offsets, values, None);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(kinds.clone()),
        Arc::new(kinds),
        Arc::new(attempts),
        new_null_array(&DataType::Int32, rows.len()),
        Arc::new(Float64Array::new_null(rows.len())),
        Arc::new(lists),
    ];
    let is_known: NullBuffer = rows.iter().map(Option::is_some).collect::<Vec<_>>().into();
    Arc::new(StructArray::new(fields, columns, Some(is_known)))
}

fn joined(pieces: &[&dyn Array]) -> ArrayRef {
    concat(pieces).expect("all have the columns of one function")
}
