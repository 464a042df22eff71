// SPDX-License-Identifier: Apache-2.0
//! Rows whose outcome is known are not called; others leave when the journal has them.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeBinaryArray, Float64Array, Int32Array, Int64Array,
    ListArray, RecordBatch, StringArray, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{Field, Int32Type, Int64Type, Schema};
use proptest::prelude::*;
use sparkawait_arrow::OnError;
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::OutputMode;
use sparkawait_runtime::Turn;
use sparkawait_task::error::TaskError;
use sparkawait_task::journal::{Journal, JournalConfig, KEY, KNOWN};
use sparkawait_task::task::TaskConfig;

use crate::support::{Answers, TestTask, column, input, task_config, with_on_error};

/// What a row came to: the values of its results, or the kind of its failure.
type Outcome = Result<Vec<i64>, String>;

#[derive(Debug, Default)]
struct State {
    entries: Vec<RecordBatch>,
    committed: u64,
    /// Whether a commit is done at once.
    is_quick: bool,
    is_broken: bool,
}

/// A journal that is written by hand.
#[derive(Debug, Default)]
struct Kept(Mutex<State>);

impl Kept {
    fn quick() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { is_quick: true, ..State::default() })))
    }

    /// All that was handed over, by the rows' numbers, which their keys have.
    fn outcomes(&self) -> Vec<(i64, Outcome)> {
        self.0.lock().unwrap().entries.iter().flat_map(outcomes_of).collect()
    }

    fn commit(&self) {
        let mut state = self.0.lock().unwrap();
        state.committed = state.entries.len() as u64;
    }
}

fn outcomes_of(entries: &RecordBatch) -> Vec<(i64, Outcome)> {
    let of = |name: &str| entries.column_by_name(name).unwrap();
    let keys: &FixedSizeBinaryArray = of("key").as_fixed_size_binary();
    let kinds: &StringArray = of("kind").as_string();
    let results: &ListArray = of("result").as_list();
    let outcome = |entry: usize| {
        let row = i64::from_le_bytes(keys.value(entry)[..8].try_into().unwrap());
        if kinds.is_valid(entry) {
            assert!(results.is_null(entry));
            return (row, Err(kinds.value(entry).to_owned()));
        }
        let rows = results.value(entry);
        let values = rows.as_struct().column(0).as_primitive::<Int64Type>();
        (row, Ok(values.values().to_vec()))
    };
    (0..entries.num_rows()).map(outcome).collect()
}

impl Journal for Kept {
    fn append(&self, number: u64, entries: RecordBatch) {
        let mut state = self.0.lock().unwrap();
        state.entries.push(entries);
        assert_eq!(number, state.entries.len() as u64);
        if state.is_quick {
            state.committed = number;
        }
    }

    fn committed(&self) -> Result<u64, TaskError> {
        let state = self.0.lock().unwrap();
        if state.is_broken {
            return Err(TaskError::Internal("the disk is full".to_owned()));
        }
        Ok(state.committed)
    }

    fn connect(&self, _waker: Waker) {}
}

fn with_journal(mut config: TaskConfig, journal: &Arc<Kept>) -> TaskConfig {
    config.rows.journal = Some(JournalConfig {
        journal: Arc::clone(journal) as Arc<dyn Journal>,
        interval: Duration::from_nanos(7),
        max_bytes: 1 << 20,
        keeps_input: true,
    });
    config
}

/// Rows with their keys, and what is known of them.
fn batch(rows: std::ops::Range<i64>, known: &BTreeMap<i64, Outcome>) -> RecordBatch {
    let plain = input(rows.clone());
    let keys = rows.clone().map(|row| [row.to_le_bytes(), [7; 8]].concat());
    let keys = FixedSizeBinaryArray::try_new(16, keys.flatten().collect(), None).unwrap();
    let known: Vec<Option<&Outcome>> = rows.map(|row| known.get(&row)).collect();
    let results = known.iter().map(|it| it.and_then(|it| it.as_ref().ok()));
    let lengths = results.clone().map(|it| it.map_or(0, Vec::len));
    let values = Int64Array::from_iter_values(results.flatten().flatten().copied());
    let field = Field::new("result", values.data_type().clone(), true);
    let values = StructArray::new(vec![field].into(), vec![Arc::new(values)], None);
    let item = Arc::new(Field::new("item", values.data_type().clone(), true));
    let lists = ListArray::new(item, OffsetBuffer::from_lengths(lengths), Arc::new(values), None);
    let kinds = known.iter().map(|it| it.and_then(|it| it.as_ref().err().cloned()));
    let kinds: StringArray = kinds.collect();
    let nothing = Int32Array::new_null(known.len());
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("kind", Arc::new(kinds.clone())),
        ("message", Arc::new(kinds)),
        ("attempt", Arc::new(Int32Array::from(vec![3; known.len()]))),
        ("status", Arc::new(nothing)),
        ("cost", Arc::new(Float64Array::new_null(known.len()))),
        ("result", Arc::new(lists)),
    ];
    let fields = columns.iter().map(|(name, it)| Field::new(*name, it.data_type().clone(), true));
    let fields: Vec<Field> = fields.collect();
    let valid: NullBuffer = known.iter().map(Option::is_some).collect::<Vec<_>>().into();
    let columns = columns.into_iter().map(|(_, it)| it).collect();
    let known = StructArray::new(fields.into(), columns, Some(valid));
    let schema = plain.schema();
    let more = [
        Field::new(KEY, keys.data_type().clone(), false),
        Field::new(KNOWN, known.data_type().clone(), true),
    ];
    let fields = schema.fields().iter().map(|it| it.as_ref().clone()).chain(more);
    let columns = plain.columns().iter().cloned();
    let columns = columns.chain([Arc::new(keys) as ArrayRef, Arc::new(known)]).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields.collect::<Vec<_>>())), columns).unwrap()
}

fn modes() -> impl Strategy<Value = OutputMode> {
    prop::sample::select(vec![OutputMode::Ordered, OutputMode::Unordered, OutputMode::KeyOrdered])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn known_rows_are_not_called_and_all_others_are_entered_once(
        mode in modes(),
        capacity in 1_usize..9,
        rows in 0_i64..41,
        known in prop::collection::btree_map(0_i64..41, prop::option::of(0_usize..4), 0..30),
        failing in prop::option::of(0_i64..41),
    ) {
        let known: BTreeMap<i64, Outcome> = known
            .into_iter()
            .filter(|(row, _)| *row < rows)
            .map(|(row, count)| match count {
                None => (row, Err(ErrorKind::ResultSchemaMismatch.as_str().to_owned())),
                Some(count) => (row, Ok(vec![-row - 1; count])),
            })
            .collect();
        let journal = Kept::quick();
        let config = with_on_error(task_config(mode, capacity), OnError::Drop);
        let count = |row: i64| u32::try_from(row % 3).unwrap();
        let answers = Answers { count, failing, gives_up_at: 1, ..Answers::default() };
        let given = Arc::clone(&answers.given);
        let mut task = TestTask::answered(with_journal(config, &journal), answers);

        let middle = rows / 3;
        let batches = vec![batch(0..middle, &known), batch(middle..rows, &known)];
        let output = task.run(batches).unwrap();

        // What each row comes to, and is entered with if it was called.
        let fresh = |row: i64| match failing {
            Some(failing) if failing == row => Err("user-function-failed".to_owned()),
            _ => Ok(vec![row; count(row) as usize]),
        };
        let mut entered = journal.outcomes();
        entered.sort();
        let called: Vec<i64> = (0..rows).filter(|row| !known.contains_key(row)).collect();
        let wanted: Vec<(i64, Outcome)> = called.iter().map(|&row| (row, fresh(row))).collect();
        prop_assert_eq!(entered, wanted);
        let calls = given.lock().unwrap().iter().flatten().flatten().collect::<Vec<i64>>();
        prop_assert!(calls.iter().all(|row| !known.contains_key(row)));
        // Rows in, rows out, each with what is its own.
        let pairs = output.iter().flat_map(|it| column(it, "row").into_iter().zip(column(it, "result")));
        let mut found: Vec<(i64, i64)> = pairs.collect();
        let outcome = |row: i64| known.get(&row).cloned().unwrap_or_else(|| fresh(row));
        let wanted = (0..rows).flat_map(|row| outcome(row).unwrap_or_default().into_iter().map(move |it| (row, it)));
        let wanted: Vec<(i64, i64)> = wanted.collect();
        if mode != OutputMode::Ordered {
            found.sort_by_key(|(row, _)| *row);
        }
        prop_assert_eq!(found, wanted);
        let settled = task.driver.settled();
        prop_assert_eq!(settled.input, u64::try_from(rows).unwrap());
    }
}

/// Takes turns until there is a batch, or nothing happens any more.
fn next(task: &mut TestTask) -> Option<RecordBatch> {
    for _ in 0..3 {
        match task.driver.take_turn().unwrap() {
            Turn::Output(batch) => return Some(batch),
            Turn::Paused => {}
            Turn::Finished => return None,
        }
    }
    None
}

#[test]
fn rows_leave_when_they_are_committed_and_hold_no_slot_before() {
    let journal = Arc::<Kept>::default();
    let mut config = with_journal(task_config(OutputMode::Ordered, 5), &journal);
    if let Some(it) = &mut config.rows.journal {
        it.interval = Duration::from_secs(3600);
    }
    let mut task = TestTask::answered(config, Answers::default());
    assert!(task.feeder.put(batch(0..13, &BTreeMap::new())));
    task.feeder.put_end();

    assert!(next(&mut task).is_none());

    // All were called, with five slots, although none has left.
    let handed: Vec<i64> = journal.outcomes().into_iter().map(|(row, _)| row).collect();
    assert_eq!(handed, (0..13).collect::<Vec<_>>());
    journal.commit();
    assert_eq!(column(&next(&mut task).unwrap(), "row"), handed);
    assert!(matches!(task.driver.take_turn(), Ok(Turn::Finished)));
}

#[test]
fn a_commit_that_fails_fails_the_task_and_its_rows_do_not_leave() {
    let journal = Arc::<Kept>::default();
    let config = with_journal(task_config(OutputMode::Unordered, 5), &journal);
    let mut task = TestTask::answered(config, Answers::default());
    assert!(task.feeder.put(batch(0..13, &BTreeMap::new())));
    assert!(next(&mut task).is_none());

    journal.0.lock().unwrap().is_broken = true;

    let error = task.driver.take_turn().unwrap_err();
    assert_eq!(error.to_string(), "the disk is full; please report this");
}

#[test]
fn what_is_completed_is_handed_over_when_a_task_is_closed() {
    let journal = Arc::<Kept>::default();
    let mut config = with_journal(task_config(OutputMode::Ordered, 29), &journal);
    config.operator.max_concurrency = NonZeroUsize::new(29).unwrap();
    if let Some(it) = &mut config.rows.journal {
        it.interval = Duration::from_secs(3600);
    }
    // The first row is never answered, so that no other one leaves.
    let answers = Answers { failing: Some(0), hangs_at: 1, ..Answers::default() };
    let mut task = TestTask::answered(config, answers);
    assert!(task.feeder.put(batch(0..17, &BTreeMap::new())));
    assert!(next(&mut task).is_none());
    assert_eq!(journal.outcomes(), []);

    task.driver.close();

    let wanted: Vec<(i64, Outcome)> = (1..17).map(|row| (row, Ok(vec![row]))).collect();
    assert_eq!(journal.outcomes(), wanted);
}

#[test]
fn a_task_that_fails_has_its_other_rows_in_the_journal() {
    let journal = Kept::quick();
    let config = with_journal(task_config(OutputMode::Ordered, 29), &journal);
    let answers = Answers { failing: Some(3), gives_up_at: 1, ..Answers::default() };
    let mut task = TestTask::answered(config, answers);

    let error = task.run(vec![batch(0..17, &BTreeMap::new())]).unwrap_err();

    assert_eq!(error.kind(), ErrorKind::UserFunctionFailed);
    let rows: Vec<i64> = journal.outcomes().into_iter().map(|(row, _)| row).collect();
    assert_eq!(rows, (0..17).filter(|row| *row != 3).collect::<Vec<_>>());
}

#[test]
fn rows_are_entered_with_what_was_asked_and_how_often() {
    let journal = Kept::quick();
    let config = with_on_error(task_config(OutputMode::Unordered, 4), OnError::Capture);
    let answers = Answers { failing: Some(2), gives_up_at: 1, ..Answers::default() };
    let mut task = TestTask::answered(with_journal(config, &journal), answers);

    let output = task.run(vec![batch(0..6, &BTreeMap::new())]).unwrap();

    assert_eq!(output.iter().map(RecordBatch::num_rows).sum::<usize>(), 6);
    let entries = std::mem::take(&mut journal.0.lock().unwrap().entries);
    for entries in entries {
        let asked = entries.column_by_name("input").unwrap().as_struct();
        let rows: Vec<i64> = outcomes_of(&entries).into_iter().map(|(row, _)| row).collect();
        assert_eq!(asked.column(0).as_primitive::<Int64Type>().values(), &rows[..]);
        let attempts = entries.column_by_name("attempt").unwrap();
        assert!(attempts.as_primitive::<Int32Type>().values().iter().all(|it| *it == 1));
    }
}

#[test]
fn rows_that_are_completed_together_and_fill_all_slots_wait_for_one_commit() {
    for mode in [OutputMode::Ordered, OutputMode::Unordered] {
        let journal = Kept::quick();
        let mut config = with_journal(task_config(mode, 5), &journal);
        if let Some(it) = &mut config.rows.journal {
            it.interval = Duration::from_secs(3600);
        }
        let mut task = TestTask::answered(config, Answers::default());

        let output = task.run(vec![batch(0..61, &BTreeMap::new())]).unwrap();

        assert_eq!(output.iter().map(RecordBatch::num_rows).sum::<usize>(), 61);
        assert_eq!(journal.0.lock().unwrap().entries.len(), 1, "{mode:?}");
    }
}
