// SPDX-License-Identifier: Apache-2.0
//! How far a row is, as a state of the operator and as a row of a struct column.
//!
//! | phase | also there |
//! |---|---|
//! | 0 input | |
//! | 1 pending | `time_left`, `backoff_left`, `was_running`, `uncounted`, `last_divided`, `in_outage`, `failure`: the last one |
//! | 2 completed | `results` |
//! | 3 failed, 4 retries exhausted | `failure` |
//! | 5 timed out, 6 its last attempt timed out | `failure`: the last one |
//! | 7 too late for a retry | `backoff_left` and `time_left`, as they were then; `failure` |
//! | 8 refused, as its destination is paused | `backoff_left`: for so long; `failure` |
//! | 9 waited for a silent destination, 10 for a paused one | `waited`, `failure` |
//! | 11 a budget was spent | `limit`, `total`, `left`, `cost`, `failure` |
//!
//! Besides, of a row that was admitted, its `age`, and its `calls` where they are told.
//!
//! What no row has is left out of the column: most states are many rows that just wait for an answer.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{
    Array, ArrayRef, BooleanArray, DurationNanosecondArray, ListArray, RecordBatch, StringArray,
    StructArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::Field;
use arrow::error::ArrowError;
use sparkawait_arrow::{CallInfo, ResultRows};
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::{Ended, Failure, SnapshotState, Uncounted};
use sparkawait_core::policy::Spent;

use crate::error::CallFailure;

/// The phase of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    #[default]
    Input,
    Pending,
    Completed,
    Failed,
    RetriesExhausted,
    TimedOut,
    AttemptTimedOut,
    TooLate,
    Refused,
    WaitedForSilent,
    WaitedForPaused,
    BudgetSpent,
}

impl Phase {
    /// By their codes.
    const ALL: [Self; 12] = [
        Self::Input,
        Self::Pending,
        Self::Completed,
        Self::Failed,
        Self::RetriesExhausted,
        Self::TimedOut,
        Self::AttemptTimedOut,
        Self::TooLate,
        Self::Refused,
        Self::WaitedForSilent,
        Self::WaitedForPaused,
        Self::BudgetSpent,
    ];

    fn of(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// How far a row is.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowState {
    pub(crate) phase: Phase,
    /// How often it was restored before.
    pub(crate) restarts: u32,
    /// Attempts that were started.
    pub(crate) attempts: u32,
    /// How long it is held, if it was admitted.
    pub(crate) age: Option<Duration>,
    time_left: Option<Duration>,
    backoff_left: Option<Duration>,
    waited: Option<Duration>,
    spent: Option<Spent>,
    was_running: bool,
    /// Attempts that have used up no try.
    uncounted: Uncounted,
    failure: Option<Box<CallFailure>>,
    /// The number of its results.
    pub(crate) results: u32,
    /// What its calls were, where somebody wants to know.
    pub(crate) calls: Option<CallInfo>,
}

/// A state of the operator.
type State = SnapshotState<ResultRows, Box<CallFailure>>;

impl RowState {
    fn new(phase: Phase, failure: Option<Box<CallFailure>>) -> Self {
        Self { phase, failure, ..Self::default() }
    }

    /// Returns the state of a row that is held for so long.
    pub(crate) fn with_age(self, age: Duration) -> Self {
        Self { age: Some(age), ..self }
    }

    /// Returns the state of a row whose calls were these.
    pub(crate) fn with_calls(self, calls: Option<CallInfo>) -> Self {
        Self { calls, ..self }
    }

    /// That of a row that was not admitted.
    pub(crate) fn input() -> Self {
        Self::new(Phase::Input, None)
    }

    /// That of a row that an operator holds. What a function raised cannot be held elsewhere, its
    /// text can.
    pub(crate) fn of(state: State, attempts: u32, restarts: u32) -> Self {
        let row = match state {
            SnapshotState::Pending {
                time_left,
                backoff_left,
                was_running,
                last_failure,
                uncounted,
            } => {
                let pending = Self::new(Phase::Pending, last_failure);
                Self { time_left, backoff_left, was_running, uncounted, ..pending }
            }
            SnapshotState::Completed(Ok(results)) => {
                Self { results: results.len, ..Self::new(Phase::Completed, None) }
            }
            SnapshotState::Completed(Err(failure)) => Self::failed(failure),
        };
        Self { restarts, attempts, ..row }
    }

    fn failed(failure: Failure<Box<CallFailure>>) -> Self {
        let (why, last) = match failure {
            Failure::Function(failure) => return Self::new(Phase::Failed, Some(failure)),
            Failure::RetriesExhausted(failure) => {
                return Self::new(Phase::RetriesExhausted, Some(failure));
            }
            Failure::Ended(failure) => *failure,
        };
        match why {
            Ended::TimedOut => Self::new(Phase::TimedOut, last),
            Ended::AttemptTimedOut => Self::new(Phase::AttemptTimedOut, last),
            Ended::TooLate { delay, left } => {
                let (backoff_left, time_left) = (Some(delay), Some(left));
                Self { time_left, backoff_left, ..Self::new(Phase::TooLate, last) }
            }
            Ended::Refused { rest } => {
                Self { backoff_left: Some(rest), ..Self::new(Phase::Refused, last) }
            }
            Ended::Unavailable { waited, is_paused } => {
                let phase = if is_paused { Phase::WaitedForPaused } else { Phase::WaitedForSilent };
                Self { waited: Some(waited), ..Self::new(phase, last) }
            }
            Ended::Spent(spent) => {
                Self { spent: Some(spent), ..Self::new(Phase::BudgetSpent, last) }
            }
        }
    }

    /// Returns the state of the operator, with these results; `None` if it has none, or something is
    /// missing.
    pub(crate) fn into_state(self, results: ResultRows) -> Option<State> {
        let Self { time_left, backoff_left, waited, spent, was_running, uncounted, .. } = self;
        let last = self.failure;
        let unavailable = |is_paused| waited.map(|waited| Ended::Unavailable { waited, is_paused });
        let why = match self.phase {
            Phase::Input => return None,
            Phase::Pending => {
                let last_failure = last;
                return Some(SnapshotState::Pending {
                    time_left,
                    backoff_left,
                    was_running,
                    last_failure,
                    uncounted,
                });
            }
            Phase::Completed => return Some(SnapshotState::Completed(Ok(results))),
            Phase::Failed => return failed_with(Failure::Function(last?)),
            Phase::RetriesExhausted => return failed_with(Failure::RetriesExhausted(last?)),
            Phase::TimedOut => Ended::TimedOut,
            Phase::AttemptTimedOut => Ended::AttemptTimedOut,
            Phase::TooLate => Ended::TooLate { delay: backoff_left?, left: time_left? },
            Phase::Refused => Ended::Refused { rest: backoff_left? },
            Phase::WaitedForSilent => unavailable(false)?,
            Phase::WaitedForPaused => unavailable(true)?,
            Phase::BudgetSpent => Ended::Spent(spent?),
        };
        failed_with(Failure::ended(why, last))
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the last step of what may miss something")]
fn failed_with(failure: Failure<Box<CallFailure>>) -> Option<State> {
    Some(SnapshotState::Completed(Err(failure)))
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// Writes states as a column, with the results of all of them.
pub(super) fn column_of(
    states: &[RowState],
    results: &StructArray,
) -> Result<StructArray, ArrowError> {
    let numbers = |of: fn(&RowState) -> u32| -> ArrayRef {
        Arc::new(UInt32Array::from_iter_values(states.iter().map(of)))
    };
    let phases = UInt8Array::from_iter_values(states.iter().map(|it| it.phase as u8));
    let were_running = states.iter().map(|it| Some(it.was_running)).collect::<BooleanArray>();
    let mut columns = vec![
        ("phase", Arc::new(phases) as ArrayRef),
        ("restarts", numbers(|it| it.restarts)),
        ("attempts", numbers(|it| it.attempts)),
        ("was_running", Arc::new(were_running)),
    ];
    if states.iter().any(|it| it.uncounted.count > 0) {
        columns.push(("uncounted", numbers(|it| it.uncounted.count)));
        columns.push(("last_divided", numbers(|it| it.uncounted.last_divided)));
    }
    if states.iter().any(|it| it.uncounted.in_outage > 0) {
        columns.push(("in_outage", numbers(|it| it.uncounted.in_outage)));
    }
    let mut add_times = |name, of: fn(&RowState) -> Option<Duration>| {
        if states.iter().any(|it| of(it).is_some()) {
            let times = states.iter().map(|it| of(it).map(nanos));
            columns.push((name, Arc::new(times.collect::<DurationNanosecondArray>())));
        }
    };
    add_times("age", |it| it.age);
    add_times("time_left", |it| it.time_left);
    add_times("backoff_left", |it| it.backoff_left);
    add_times("waited", |it| it.waited);
    if states.iter().any(|it| it.spent.is_some()) {
        let permits = |of: fn(Spent) -> u64| -> ArrayRef {
            Arc::new(states.iter().map(|it| it.spent.map(of)).collect::<UInt64Array>())
        };
        columns.push(("limit", permits(|it| it.limit as u64)));
        columns.push(("total", permits(|it| it.total)));
        columns.push(("left", permits(|it| it.left)));
        columns.push(("cost", permits(|it| it.cost)));
    }
    if states.iter().any(|it| it.failure.is_some()) {
        columns.push(("failure", Arc::new(failures_of(states)?)));
    }
    if states.iter().any(|it| it.calls.is_some()) {
        let calls: Vec<CallInfo> = states.iter().map(|it| it.calls.unwrap_or_default()).collect();
        columns.push(("calls", Arc::new(CallInfo::column(&calls))));
    }
    if !results.is_empty() {
        let lengths = OffsetBuffer::from_lengths(states.iter().map(|it| it.results as usize));
        let item = Arc::new(Field::new_list_field(results.data_type().clone(), false));
        let results = ListArray::try_new(item, lengths, Arc::new(results.clone()), None)?;
        columns.push(("results", Arc::new(results)));
    }
    StructArray::try_from(columns)
}

fn failures_of(states: &[RowState]) -> Result<StructArray, ArrowError> {
    let failures = || states.iter().map(|it| it.failure.as_deref());
    let texts = |of: fn(&CallFailure) -> &str| -> ArrayRef {
        Arc::new(failures().map(|it| it.map(of)).collect::<StringArray>())
    };
    let statuses = failures().map(|it| it.and_then(|it| it.status)).collect::<UInt16Array>();
    let columns = [
        ("kind", texts(|it| it.kind.as_str())),
        ("message", texts(|it| &it.message)),
        ("summary", texts(|it| &it.summary)),
        ("status", Arc::new(statuses)),
    ];
    let of =
        |(name, column): &(&str, ArrayRef)| Field::new(*name, column.data_type().clone(), true);
    let fields = columns.iter().map(of).collect();
    let columns = columns.map(|(_, column)| column).to_vec();
    let nulls = failures().map(|it| it.is_some()).collect::<NullBuffer>();
    StructArray::try_new(fields, columns, Some(nulls))
}

/// A column of states, as it is read.
#[derive(Clone)]
pub(super) struct RowStates {
    phases: UInt8Array,
    restarts: UInt32Array,
    attempts: UInt32Array,
    were_running: BooleanArray,
    uncounted: Option<UInt32Array>,
    last_divided: Option<UInt32Array>,
    in_outage: Option<UInt32Array>,
    ages: Option<DurationNanosecondArray>,
    times_left: Option<DurationNanosecondArray>,
    backoffs_left: Option<DurationNanosecondArray>,
    waited: Option<DurationNanosecondArray>,
    limit: Option<UInt64Array>,
    total: Option<UInt64Array>,
    left: Option<UInt64Array>,
    cost: Option<UInt64Array>,
    failures: Option<Failures>,
    results: Option<ListArray>,
    calls: Option<StructArray>,
}

#[derive(Clone)]
struct Failures {
    rows: StructArray,
    kinds: StringArray,
    messages: StringArray,
    summaries: StringArray,
    statuses: UInt16Array,
}

/// Returns the field of a struct with this name and type.
fn field<A: Array + Clone + 'static>(of: &StructArray, name: &str) -> Option<A> {
    of.column_by_name(name)?.as_any().downcast_ref::<A>().cloned()
}

impl Failures {
    fn read(rows: StructArray) -> Option<Self> {
        let (kinds, messages) = (field(&rows, "kind")?, field(&rows, "message")?);
        let (summaries, statuses) = (field(&rows, "summary")?, field(&rows, "status")?);
        Some(Self { rows, kinds, messages, summaries, statuses })
    }

    fn failure(&self, row: usize) -> Option<Box<CallFailure>> {
        let kind = || ErrorKind::from_code(self.kinds.value(row));
        self.rows.is_valid(row).then(|| {
            Box::new(CallFailure {
                kind: kind().unwrap_or(ErrorKind::UserFunctionFailed),
                message: self.messages.value(row).to_owned(),
                summary: self.summaries.value(row).to_owned(),
                raised: None,
                status: self.statuses.is_valid(row).then(|| self.statuses.value(row)),
            })
        })
    }
}

fn time(times: Option<&DurationNanosecondArray>, row: usize) -> Option<Duration> {
    let nanos = times.filter(|it| it.is_valid(row))?.value(row);
    u64::try_from(nanos).ok().map(Duration::from_nanos)
}

impl RowStates {
    /// Reads a column; `None` if it is another one.
    pub(super) fn read(column: &ArrayRef) -> Option<Self> {
        let states = column.as_any().downcast_ref::<StructArray>()?;
        let read = Self {
            phases: field(states, "phase")?,
            restarts: field(states, "restarts")?,
            attempts: field(states, "attempts")?,
            were_running: field(states, "was_running")?,
            uncounted: field(states, "uncounted"),
            last_divided: field(states, "last_divided"),
            in_outage: field(states, "in_outage"),
            ages: field(states, "age"),
            times_left: field(states, "time_left"),
            backoffs_left: field(states, "backoff_left"),
            waited: field(states, "waited"),
            limit: field(states, "limit"),
            total: field(states, "total"),
            left: field(states, "left"),
            cost: field(states, "cost"),
            failures: field(states, "failure").and_then(Failures::read),
            results: field(states, "results"),
            calls: field(states, "calls")
                .filter(|it: &StructArray| it.data_type() == &CallInfo::data_type()),
        };
        let are_known = read.phases.values().iter().all(|code| Phase::of(*code).is_some());
        are_known.then_some(read)
    }

    pub(super) fn phases(&self) -> impl Iterator<Item = Phase> {
        self.phases.values().iter().filter_map(|code| Phase::of(*code))
    }

    /// The number of rows that were called at that moment.
    pub(super) fn called(&self) -> usize {
        self.were_running.true_count()
    }

    pub(super) fn restarts(&self) -> &[u32] {
        self.restarts.values()
    }

    /// Returns the state of a row; `None` if there is none that an operator has.
    pub(super) fn state(&self, row: usize) -> Option<RowState> {
        let phase = Phase::of(self.phases.value(row))?;
        let results = self.results.as_ref().map_or(0, |it| it.value_length(row));
        let results = u32::try_from(results).ok()?;
        let permits = |of: &Option<UInt64Array>| {
            of.as_ref().filter(|it| it.is_valid(row)).map(|it| it.value(row))
        };
        let spent = (|| {
            let limit = usize::try_from(permits(&self.limit)?).ok()?;
            let (total, left) = (permits(&self.total)?, permits(&self.left)?);
            Some(Spent { limit, total, left, cost: permits(&self.cost)? })
        })();
        let number = |of: &Option<UInt32Array>| of.as_ref().map_or(0, |it| it.value(row));
        // Results that belong to no row would be held for ever.
        (results == 0 || phase == Phase::Completed).then_some(())?;
        Some(RowState {
            phase,
            restarts: self.restarts.value(row),
            attempts: self.attempts.value(row),
            age: time(self.ages.as_ref(), row),
            time_left: time(self.times_left.as_ref(), row),
            backoff_left: time(self.backoffs_left.as_ref(), row),
            waited: time(self.waited.as_ref(), row),
            spent,
            was_running: self.were_running.value(row),
            uncounted: Uncounted {
                count: number(&self.uncounted),
                last_divided: number(&self.last_divided),
                in_outage: number(&self.in_outage),
            },
            failure: self.failures.as_ref().and_then(|it| it.failure(row)),
            results,
            calls: self.calls.as_ref().map(|it| CallInfo::read(it, row)),
        })
    }

    /// Returns the results of all rows, one after the other; `None` if there are none.
    pub(super) fn results(&self) -> Option<RecordBatch> {
        let lists = self.results.as_ref()?;
        let first = usize::try_from(lists.offsets().first()).ok()?;
        let last = usize::try_from(lists.offsets().last()).ok()?;
        let values = lists.values().slice(first, last - first);
        let rows = values.as_any().downcast_ref::<StructArray>()?;
        (!rows.is_empty() && rows.null_count() == 0).then(|| RecordBatch::from(rows))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    /// A state whose results are told by their number only.
    type Told = SnapshotState<u32, (ErrorKind, String, String, Option<u16>)>;

    fn duration() -> impl Strategy<Value = Duration> {
        (0..=i64::MAX.unsigned_abs()).prop_map(Duration::from_nanos)
    }

    fn call_failures() -> impl Strategy<Value = Box<CallFailure>> {
        let kinds = prop::sample::select(ErrorKind::ALL);
        (kinds, ".{0,7}", ".{0,7}", option::of(any::<u16>())).prop_map(
            |(kind, message, summary, status)| {
                Box::new(CallFailure { kind, message, summary, raised: None, status })
            },
        )
    }

    fn failures() -> impl Strategy<Value = Failure<Box<CallFailure>>> {
        let last = || option::of(call_failures());
        let reasons = prop_oneof![
            Just(Ended::TimedOut),
            Just(Ended::AttemptTimedOut),
            (duration(), duration()).prop_map(|(delay, left)| Ended::TooLate { delay, left }),
            duration().prop_map(|rest| Ended::Refused { rest }),
            (0..7_usize, any::<[u64; 3]>()).prop_map(|(limit, [total, left, cost])| {
                Ended::Spent(Spent { limit, total, left, cost })
            }),
            (duration(), any::<bool>())
                .prop_map(|(waited, is_paused)| { Ended::Unavailable { waited, is_paused } }),
        ];
        prop_oneof![
            call_failures().prop_map(Failure::Function),
            call_failures().prop_map(Failure::RetriesExhausted),
            (reasons, last()).prop_map(|(reason, last)| Failure::ended(reason, last)),
        ]
    }

    fn states() -> impl Strategy<Value = State> {
        let pending =
            (option::of(duration()), option::of(duration()), any::<bool>(), (0..3_u32, 1..3_u32));
        let in_outage = 0..3_u32;
        prop_oneof![
            (pending, in_outage, option::of(call_failures())).prop_map(
                |(
                    (time_left, backoff_left, was_running, (count, last)),
                    in_outage,
                    last_failure,
                )| {
                    let last_divided = if count > 0 { count + last } else { 0 };
                    let uncounted = Uncounted { count, last_divided, in_outage };
                    SnapshotState::Pending {
                        time_left,
                        backoff_left,
                        was_running,
                        last_failure,
                        uncounted,
                    }
                }
            ),
            (0..4_u32).prop_map(|len| {
                SnapshotState::Completed(Ok(ResultRows { chunk: 0, start: 0, len }))
            }),
            failures().prop_map(|failure| SnapshotState::Completed(Err(failure))),
        ]
    }

    fn told(state: State) -> Told {
        let failure = |it: Box<CallFailure>| (it.kind, it.message, it.summary, it.status);
        match state {
            SnapshotState::Pending {
                time_left,
                backoff_left,
                was_running,
                last_failure,
                uncounted,
            } => {
                let last_failure = last_failure.map(failure);
                SnapshotState::Pending {
                    time_left,
                    backoff_left,
                    was_running,
                    last_failure,
                    uncounted,
                }
            }
            SnapshotState::Completed(Ok(results)) => SnapshotState::Completed(Ok(results.len)),
            SnapshotState::Completed(Err(failed)) => SnapshotState::Completed(Err(match failed {
                Failure::Function(it) => Failure::Function(failure(it)),
                Failure::RetriesExhausted(it) => Failure::RetriesExhausted(failure(it)),
                Failure::Ended(it) => Failure::ended(it.0, it.1.map(failure)),
            })),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn states_that_were_written_are_read(
            rows in vec((states(), any::<u32>(), any::<u32>()), 0..13),
            tells_of_calls in any::<bool>(),
        ) {
            let calls = |attempts: u32| {
                let attempts = attempts >> 1;
                tells_of_calls.then(|| CallInfo { attempts, cached: true, ..CallInfo::default() })
            };
            let age = |attempts: u32| Duration::from_nanos(7 * u64::from(attempts));
            let written = rows.iter().cloned().map(|(state, attempts, restarts)| {
                let row = RowState::of(state, attempts, restarts).with_age(age(attempts));
                row.with_calls(calls(attempts))
            });
            let written: Vec<RowState> = written.collect();
            let count: u32 = written.iter().map(|it| it.results).sum();
            let results: ArrayRef = Arc::new(UInt32Array::from_iter_values(0..count));
            let results = RecordBatch::try_from_iter([("y", results)]).unwrap();
            let column: ArrayRef = Arc::new(column_of(&written, &results.clone().into()).unwrap());

            let states = RowStates::read(&column).unwrap();

            prop_assert_eq!(states.results(), (count > 0).then_some(results));
            prop_assert_eq!(states.phases().count(), rows.len());
            for (row, (state, attempts, restarts)) in rows.into_iter().enumerate() {
                let read = states.state(row).unwrap();
                prop_assert_eq!((read.attempts, read.restarts), (attempts, restarts));
                prop_assert_eq!((read.age, &read.calls), (Some(age(attempts)), &calls(attempts)));
                let results = ResultRows { chunk: 0, start: 0, len: read.results };
                prop_assert_eq!(told(read.into_state(results).unwrap()), told(state));
            }
        }
    }

    #[test]
    fn codes_of_phases_are_their_places() {
        for (code, phase) in (0_u8..).zip(Phase::ALL) {
            assert_eq!((phase as u8, Phase::of(code)), (code, Some(phase)));
        }
        assert_eq!(Phase::of(12), None);
    }
}
