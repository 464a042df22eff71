// SPDX-License-Identifier: Apache-2.0
use arrow::{
    array::{Array, AsArray, BinaryArray, record_batch},
    datatypes::{DataType, Field, Int64Type},
};

use super::*;
use crate::output_schema::ERROR_COLUMN;

/// An assembler with its tables, for rows `x: int64` and results `y: int64`.
struct Rig {
    inputs: InputRows,
    chunks: ResultChunks,
    assembler: OutputAssembler,
}

impl Rig {
    fn new(output: OutputColumns, on_error: OnError) -> Self {
        let field = |name: &str, nullable| Field::new(name, DataType::Int64, nullable);
        Self::with_schemas(
            Schema::new(vec![field("x", true)]),
            Schema::new(vec![field("y", false)]),
            output,
            on_error,
        )
    }

    fn with_schemas(
        input: Schema,
        result: Schema,
        output: OutputColumns,
        on_error: OnError,
    ) -> Self {
        let assembler =
            OutputAssembler::new(&input, &result, output, on_error, ERROR_COLUMN, None).unwrap();
        let (inputs, chunks) = (InputRows::new(input.into()), ResultChunks::new(result.into()));
        Self { inputs, chunks, assembler }
    }

    fn input(&mut self, count: i64) -> Vec<RowRef> {
        let values: Vec<i64> = (0..count).collect();
        let batch = record_batch!(("x", Int64, values)).unwrap();
        self.inputs.accept(batch).unwrap().collect()
    }

    fn results(&mut self, count: i64) -> ResultRows {
        let values: Vec<i64> = (100..100 + count).collect();
        self.chunks.accept(record_batch!(("y", Int64, values)).unwrap()).unwrap()
    }

    fn push(&mut self, row: RowRef, results: ResultRows) {
        self.assembler.push(&mut self.inputs, row, results);
    }

    fn fail(&mut self, row: RowRef) -> Result<(), RowFailure> {
        self.fail_with(row, "m".to_owned())
    }

    fn fail_with(&mut self, row: RowRef, message: String) -> Result<(), RowFailure> {
        let failure = RowFailure { kind: "k".into(), message, attempts: 1, status: None };
        self.assembler.push_failure(&mut self.inputs, row, failure)
    }

    fn take(&mut self, max_rows: usize) -> Option<RecordBatch> {
        self.take_within(max_rows, usize::MAX)
    }

    fn take_within(&mut self, max_rows: usize, max_bytes: usize) -> Option<RecordBatch> {
        self.take_with(max_rows, max_bytes, &mut |_, _| CallInfo::default())
    }

    fn take_with(
        &mut self,
        max_rows: usize,
        max_bytes: usize,
        calls: TellCalls<'_>,
    ) -> Option<RecordBatch> {
        let Self { inputs, chunks, assembler } = self;
        assembler.take(inputs, chunks, max_rows, max_bytes, calls).unwrap()
    }

    fn is_full(&mut self, max_rows: usize, max_bytes: usize) -> bool {
        self.assembler.is_full(&self.inputs, &self.chunks, max_rows, max_bytes)
    }

    fn held(&self) -> (usize, usize) {
        (self.inputs.held_batches(), self.chunks.held_chunks())
    }
}

fn ints(batch: &RecordBatch, column: usize) -> Vec<Option<i64>> {
    batch.column(column).as_primitive::<Int64Type>().iter().collect()
}

#[test]
fn ordered_rows_of_one_batch_and_one_chunk_are_not_copied() {
    let mut rig = Rig::new(OutputColumns::Append, OnError::Fail);
    let rows = rig.input(6);
    let mut results = rig.results(6);
    let address = |batch: &RecordBatch| batch.column(0).to_data().buffers()[0].as_ptr() as usize;
    let came_in = address(&rig.inputs.batch(rows[0].batch).batch);
    for row in rows {
        rig.push(row, results.split_front(1));
    }
    rig.take(2).unwrap();

    let batch = rig.take(4).unwrap();

    let offset = 2 * size_of::<i64>();
    assert_eq!(address(&batch), came_in + offset);
    assert_eq!(ints(&batch, 1), (102..106).map(Some).collect::<Vec<_>>());
}

#[test]
fn input_row_is_repeated_for_each_of_its_results() {
    let mut rig = Rig::new(OutputColumns::Append, OnError::Fail);
    let rows = rig.input(2);
    let mut results = rig.results(4);
    rig.push(rows[1], results.split_front(3));
    rig.push(rows[0], results.split_front(1));

    let (first, second) = (rig.take(2).unwrap(), rig.take(9).unwrap());

    assert_eq!((ints(&first, 0), ints(&first, 1)), (vec![Some(1); 2], vec![Some(100), Some(101)]));
    assert_eq!(ints(&second, 0), [Some(1), Some(0)]);
    assert_eq!(rig.held(), (0, 0));
}

#[test]
fn calls_of_a_row_are_told_with_each_of_its_results_and_of_its_failure() {
    let mut rig = Rig::new(OutputColumns::Replace, OnError::Null);
    let (input, result) = (rig.inputs.schema(), rig.chunks.schema());
    let (output, on_error) = (OutputColumns::Replace, OnError::Null);
    rig.assembler =
        OutputAssembler::new(input, result, output, on_error, ERROR_COLUMN, Some("call")).unwrap();
    rig.input(5);
    let rows = rig.input(3);
    let mut results = rig.results(4);
    rig.push(rows[2], results.split_front(3));
    rig.fail(rows[0]).unwrap();
    rig.push(rows[1], results.split_front(1));
    let mut asked = Vec::new();
    let mut tell = |row: u64, is_last: bool| {
        asked.push((row, is_last));
        CallInfo { attempts: u32::try_from(row).unwrap(), ..CallInfo::default() }
    };

    let (first, rest) = (rig.take_with(2, usize::MAX, &mut tell), rig.take_with(9, 1, &mut tell));
    let last = rig.take_with(9, usize::MAX, &mut tell);

    let attempts = |batch: Option<RecordBatch>| {
        let batch = batch.unwrap();
        assert_eq!(&batch.schema(), rig.assembler.schema());
        let calls = batch.column_by_name("call").unwrap().as_struct().clone();
        (0..calls.len()).map(|row| CallInfo::read(&calls, row).attempts).collect::<Vec<_>>()
    };
    assert_eq!([first, rest, last].map(attempts), [vec![7, 7], vec![7], vec![5, 6]]);
    assert_eq!(asked, [(7, false), (7, true), (5, true), (6, true)]);
}

#[test]
fn row_without_results_is_left_out_and_released() {
    let mut rig = Rig::new(OutputColumns::Append, OnError::Fail);
    let rows = rig.input(1);

    rig.push(rows[0], ResultRows::EMPTY);

    assert_eq!((rig.assembler.row_count(), rig.held()), (0, (0, 0)));
    assert_eq!(rig.take(10), None);
}

#[test]
fn chunk_is_freed_as_soon_as_its_last_row_is_out() {
    let mut rig = Rig::new(OutputColumns::Append, OnError::Fail);
    for row in rig.input(3) {
        let results = rig.results(1);
        rig.push(row, results);
    }

    rig.take(2).unwrap();

    assert_eq!(rig.held(), (1, 1));
}

#[test]
fn failed_row_has_null_results_with_null() {
    let mut rig = Rig::new(OutputColumns::Append, OnError::Null);
    let rows = rig.input(3);
    let results = rig.results(1);
    rig.fail(rows[2]).unwrap();
    rig.push(rows[0], results);
    rig.fail(rows[1]).unwrap();

    let batch = rig.take(10).unwrap();

    assert_eq!(ints(&batch, 0), [Some(2), Some(0), Some(1)]);
    assert_eq!(ints(&batch, 1), [None, Some(100), None]);
    assert_eq!(rig.held(), (0, 0));
}

#[test]
fn failed_row_is_left_out_with_drop() {
    let mut rig = Rig::new(OutputColumns::Append, OnError::Drop);
    let rows = rig.input(1);

    rig.fail(rows[0]).unwrap();

    assert_eq!((rig.take(10), rig.held()), (None, (0, 0)));
}

#[test]
fn failure_is_handed_back_with_fail() {
    let mut rig = Rig::new(OutputColumns::Append, OnError::Fail);
    let rows = rig.input(1);

    assert_eq!(rig.fail(rows[0]).unwrap_err().message, "m");
}

#[test]
fn captured_failure_stays_with_its_row_across_batches() {
    let mut rig = Rig::new(OutputColumns::Replace, OnError::Capture);
    let rows = rig.input(4);
    let mut results = rig.results(2);
    rig.push(rows[0], results.split_front(1));
    rig.fail(rows[1]).unwrap();
    rig.push(rows[2], results.split_front(1));
    rig.fail(rows[3]).unwrap();

    let batches = [rig.take(3).unwrap(), rig.take(3).unwrap()];

    let errors = batches.each_ref().map(|batch| {
        let column = batch.column_by_name("error").unwrap();
        (0..batch.num_rows()).map(|row| column.is_valid(row)).collect::<Vec<_>>()
    });
    assert_eq!(errors, [vec![false, true, false], vec![true]]);
    assert_eq!(ints(&batches[0], 0), [Some(100), None, Some(101)]);
}

#[test]
fn batch_of_failures_only_is_built() {
    for on_error in [OnError::Null, OnError::Capture] {
        let mut rig = Rig::new(OutputColumns::Append, on_error);
        for row in rig.input(3) {
            rig.fail(row).unwrap();
        }

        assert_eq!(ints(&rig.take(9).unwrap(), 1), [None; 3]);
    }
}

#[test]
fn rows_without_columns_are_counted() {
    let mut rig =
        Rig::with_schemas(Schema::empty(), Schema::empty(), OutputColumns::Append, OnError::Fail);
    let of_rows = |count| {
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        RecordBatch::try_new_with_options(Schema::empty().into(), vec![], &options).unwrap()
    };
    let rows: Vec<_> = rig.inputs.accept(of_rows(3)).unwrap().collect();
    let mut results = rig.chunks.accept(of_rows(4)).unwrap();
    rig.push(rows[2], results.split_front(2));
    rig.push(rows[0], results.split_front(1));
    rig.push(rows[1], results.split_front(1));

    let counts = [rig.take(3), rig.take(3), rig.take(3)].map(|b| b.map(|b| b.num_rows()));

    assert_eq!(counts, [Some(3), Some(1), None]);
}

#[test]
fn assembler_is_full_from_the_given_row_count_on() {
    let mut rig = Rig::new(OutputColumns::Append, OnError::Null);
    let rows = rig.input(2);
    rig.fail(rows[0]).unwrap();

    assert_eq!((rig.is_full(1, usize::MAX), rig.is_full(2, usize::MAX)), (true, false));
}

#[test]
fn assembler_is_full_from_the_given_bytes_on() {
    let mut rig = Rig::new(OutputColumns::Append, OnError::Fail);
    let rows = rig.input(100);
    let mut results = rig.results(100);
    for row in &rows[..3] {
        rig.push(*row, results.split_front(1));
    }

    assert!(rig.is_full(1000, 3 * 16));
    assert!(!rig.is_full(1000, 3 * 16 + 1), "what is held and does not wait is not counted");
}

#[test]
fn batch_ends_before_the_row_that_would_pass_the_bytes() {
    let mut rig = Rig::new(OutputColumns::Append, OnError::Fail);
    let rows = rig.input(3);
    let mut results = rig.results(7);
    for (row, count) in rows.into_iter().zip([1, 5, 1]) {
        rig.push(row, results.split_front(count));
    }

    let counts = [3 * 16 + 15, 1, 16, 1000, 1000]
        .map(|max_bytes| rig.take_within(100, max_bytes).map(|batch| batch.num_rows()));

    assert_eq!(counts, [Some(3), Some(1), Some(1), Some(2), None]);
    assert_eq!(rig.held(), (0, 0));
}

#[test]
fn one_input_row_of_many_results_leaves_in_batches_within_the_bytes() {
    let fields = |name: &str, data_type| Schema::new(vec![Field::new(name, data_type, true)]);
    let (input, result) = (fields("x", DataType::Utf8), fields("y", DataType::Int64));
    let mut rig = Rig::with_schemas(input, result, OutputColumns::Append, OnError::Fail);
    let text = "x".repeat(1000);
    let batch = record_batch!(("x", Utf8, [text])).unwrap();
    let row = rig.inputs.accept(batch).unwrap().next().unwrap();
    let results = rig.results(5);
    rig.push(row, results);

    let rows = [2100, 2100, 2100].map(|bytes| rig.take_within(100, bytes).unwrap().num_rows());

    assert_eq!(rows, [2, 2, 1]);
}

#[test]
fn taking_no_rows_takes_nothing() {
    let mut rig = Rig::new(OutputColumns::Append, OnError::Null);
    let rows = rig.input(1);
    rig.fail(rows[0]).unwrap();

    assert_eq!(rig.take(0), None);
    assert_eq!(rig.assembler.row_count(), 1);
}

#[test]
fn texts_that_are_not_utf8_leave_beside_others_as_they_came() {
    let texts = record_batch!(("x", Utf8, ["a", "b"])).unwrap();
    let bytes: ArrayRef = Arc::new(BinaryArray::from(vec![b"\xFFA".as_slice(), b"c"]));
    let bytes = RecordBatch::try_from_iter_with_nullable([("x", bytes, true)]).unwrap();
    let results = record_batch!(("y", Int64, [0, 1, 2, 3])).unwrap();
    let (input, output) = (OutputColumns::Append, OnError::Fail);
    let new = || {
        OutputAssembler::new(texts.schema_ref(), results.schema_ref(), input, output, "e", None)
            .unwrap()
    };
    // Neighbours, and rows of two batches by turns.
    for order in [[0, 1, 2, 3], [0, 2, 1, 3]] {
        let mut inputs = InputRows::new(texts.schema());
        let mut chunks = ResultChunks::new(results.schema());
        let mut assembler = new();
        let mut rows: Vec<RowRef> = inputs.accept(texts.clone()).unwrap().collect();
        rows.extend(inputs.accept(bytes.clone()).unwrap());
        let mut rest = chunks.accept(results.clone()).unwrap();
        for row in order {
            assembler.push(&mut inputs, rows[row], rest.split_front(1));
        }

        let mut tell = |_: u64, _: bool| CallInfo::default();
        let whole =
            assembler.take(&mut inputs, &mut chunks, 8, usize::MAX, &mut tell).unwrap().unwrap();

        let came = [b"a".as_slice(), b"b", b"\xFFA", b"c"];
        let found: Vec<_> = whole.column(0).as_binary::<i32>().iter().flatten().collect();
        assert_eq!(found, order.map(|row| came[row]));
        assert_eq!(whole.schema().field(0).data_type(), &DataType::Binary);
    }
}

#[test]
fn rows_that_left_are_counted_once_by_what_became_of_them() {
    for (on_error, failed, dropped) in
        [(OnError::Drop, 0, 13), (OnError::Null, 13, 0), (OnError::Capture, 13, 0)]
    {
        let mut rig = Rig::new(OutputColumns::Replace, on_error);
        let (mut rows, others) = (rig.input(61), rig.input(3));
        rows.splice(7..7, others);
        // 13 fail; of the other 51 each has 0 to 4 results, so 11 have none.
        for (index, row) in (0..).zip(&rows) {
            if index < 13 {
                rig.fail(*row).unwrap();
            } else {
                let mut results = rig.results(4);
                rig.push(*row, results.split_front((index - 13) % 5));
                rig.chunks.discard(results);
            }
            if index % 17 == 0 {
                rig.take(11);
            }
            assert!(!rig.assembler.left().are(rig.inputs.tally()), "row {index}");
        }
        while rig.take(7).is_some() {}

        let left = rig.assembler.left();
        assert_eq!((left.put_out, left.without_result, left.dropped), (failed + 40, 11, dropped));
        assert!(left.are(rig.inputs.tally()), "{on_error:?}");
        assert_eq!(rig.held(), (0, 0));
    }
}

#[test]
fn a_row_that_left_twice_does_not_stand_for_one_that_never_did() {
    let mut rig = Rig::new(OutputColumns::Append, OnError::Fail);
    let rows = rig.input(3);
    let mut results = rig.results(3);
    for row in [rows[0], rows[2], rows[2]] {
        rig.push(row, results.split_front(1));
    }
    rig.take(3);

    assert_eq!((rig.assembler.left().put_out, rig.held()), (3, (0, 0)));
    assert!(!rig.assembler.left().are(rig.inputs.tally()));
}

#[test]
fn captured_failures_have_bytes() {
    for (output, results) in [(OutputColumns::Replace, 0), (OutputColumns::Append, 5)] {
        let mut rig = Rig::new(output, OnError::Capture);
        let rows = rig.input(61);
        let mut of_rows = rig.results(results);
        for (index, row) in rows.iter().enumerate() {
            if index < usize::try_from(results).unwrap() {
                rig.push(*row, of_rows.split_front(1));
            } else {
                rig.fail_with(*row, "m".repeat(100 + 7 * index)).unwrap();
            }
        }
        assert!(rig.is_full(usize::MAX, 15_000) && !rig.is_full(usize::MAX, 25_000));
        let mut batches = Vec::new();
        while let Some(batch) = rig.take_within(usize::MAX, 1_500) {
            let failures = batch.columns().last().unwrap();
            let messages = failures.as_struct().column(1).as_string::<i32>();
            assert!(messages.value_data().len() <= 1_500 || batch.num_rows() == 1);
            batches.push(batch.num_rows());
        }

        assert_eq!(batches.iter().sum::<usize>(), 61);
        assert!(batches.iter().skip(1).all(|rows| *rows <= 10), "{batches:?}");
        assert_eq!((rig.assembler.bytes_of_failures(), rig.held()), (0, (0, 0)));
    }
}

#[test]
fn short_failures_leave_one_by_one_where_a_batch_has_one_byte() {
    let mut rig = Rig::new(OutputColumns::Replace, OnError::Capture);
    for row in rig.input(3) {
        rig.fail(row).unwrap();
        assert!(rig.is_full(usize::MAX, 1));
    }

    let batches = std::iter::from_fn(|| rig.take_within(usize::MAX, 1));

    assert_eq!(batches.map(|it| it.num_rows()).collect::<Vec<_>>(), [1, 1, 1]);
}
