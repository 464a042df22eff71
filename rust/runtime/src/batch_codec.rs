// SPDX-License-Identifier: Apache-2.0
//! What the driver moves.

use std::collections::VecDeque;
use std::sync::Arc;
use std::vec::Drain;

use sparkawait_core::element::{Key, StreamElement, StreamRecord};
use sparkawait_core::operator::{
    AttemptId, Completion, Emitted, Failure, Handled, Invocation, Remark, Snapshot,
};
use sparkawait_core::policy::Price;
use sparkawait_core::time::ProcessingTime;

use crate::commit_gate::{Commits, Urgency};

/// A record of the input, and all that decides when it is called.
///
/// One value, so that no codec has to remember which record it gave last.
#[derive(Clone, Copy, Debug)]
pub struct InputRecord<E> {
    /// The record.
    pub record: StreamRecord<E>,
    /// What has one call at a time, in key-ordered mode.
    pub key: Option<Key>,
    /// Its destination.
    pub channel: Option<Key>,
    /// What it costs where there are limits in time.
    pub price: Price,
}

/// What a record came to before, and the attempts that took.
#[derive(Clone, Debug)]
pub struct Known<R, F> {
    /// Its results, or its final failure.
    pub outcome: Result<R, Failure<F>>,
    /// Its calls then.
    pub attempts: u32,
}

/// An element of the input: a record, or a watermark.
pub type InputElement<E> = StreamElement<InputRecord<E>>;

/// Turns what arrives into elements, and emitted elements into what leaves.
///
/// Called by the task thread only. Everything here happens once per batch or once per burst, except
/// `next_element`, `emit` and the completions inside a reply, which happen per row and must cost
/// nanoseconds.
pub trait BatchCodec {
    /// A record's value, as small as an index.
    type Element: Clone;
    /// The results of a record, as small as an index range.
    type Results;
    /// Why the function failed for a record.
    type Failure;
    /// What the feeder hands over: a batch of records.
    type Input: Send;
    /// Calls to start, with all that the function needs.
    type Calls: Send;
    /// What the function hands back: the outcomes of a burst of calls.
    type Reply: Send;
    /// What leaves: a batch of results.
    type Output;
    /// Why the task failed.
    type Error: Send;

    /// Says what time it is, before anything else that happens then. For codecs that tell of times.
    fn set_time(&mut self, _now: ProcessingTime) {}

    /// Returns the number of rows in a batch of input; watermarks do not count.
    fn rows_of(input: &Self::Input) -> usize;

    /// Takes a batch of input.
    ///
    /// # Errors
    ///
    /// The batch does not fit those before it; the task fails.
    fn accept(&mut self, input: Self::Input) -> Result<(), Self::Error>;

    /// Returns the next element of the input taken so far.
    fn next_element(&mut self) -> Option<InputElement<Self::Element>>;

    /// Takes the record back that [`next_element`](Self::next_element) gave last, which gives it once
    /// more: nobody had a place for it.
    ///
    /// # Errors
    ///
    /// It is another record, which would be lost; the task fails.
    fn put_back(&mut self, record: StreamRecord<Self::Element>) -> Result<(), Self::Error>;

    /// Returns whether the outcomes of some records that come now are known.
    #[inline]
    fn has_known(&self) -> bool {
        false
    }

    /// Returns what the record that [`next_element`](Self::next_element) gave last came to before, if
    /// that is known: it is not called.
    fn known(&self) -> Option<Known<Self::Results, Self::Failure>> {
        None
    }

    /// Returns whether what was completed leaves only when a journal has it.
    fn has_journal(&self) -> bool {
        false
    }

    /// Returns the number of the commit that has all that was completed so far.
    fn open_commit(&self) -> u64 {
        0
    }

    /// Hands what was completed to the journal if that is due, and returns how far its commits are.
    ///
    /// # Errors
    ///
    /// A commit has failed; the task fails.
    fn commit(&mut self, _urgency: Urgency) -> Result<Commits, Self::Error> {
        Ok(Commits::default())
    }

    /// Returns whether records may have other prices than the usual one.
    fn has_prices(&self) -> bool {
        false
    }

    /// Names a channel by a `record` of it that is held; `None` if that is unknown.
    fn channel_name(&self, _channel: Key, _record: Option<&Self::Element>) -> Option<String> {
        None
    }

    /// Returns whether [`next_element`](Self::next_element) would return one.
    fn has_element(&self) -> bool;

    /// Makes the calls for a burst of invocations; the vector that they are in is used again.
    fn calls(&mut self, invocations: Drain<'_, Invocation<Self::Element>>) -> Self::Calls;

    /// Notes that calls begin, which were made before and have waited since.
    fn started(&mut self, _attempts: &[AttemptId]) {}

    /// Notes that nobody waits for the outcomes of calls any more.
    fn cancelled(&mut self, _attempts: &[AttemptId]) {}

    /// Notes that calls were not made that were handed over.
    fn recalled(&mut self, _attempts: &[AttemptId]) {}

    /// Tells `remark` of what a reply says beside the outcomes of its calls, before those.
    fn remarks(&self, _reply: &Self::Reply, _remark: impl FnMut(AttemptId, Remark)) {}

    /// Tells `complete` of each outcome in a reply, and forgets those it ignores.
    ///
    /// # Errors
    ///
    /// The function broke its own promise (a schema, say); the task fails.
    fn accept_reply(
        &mut self,
        reply: Self::Reply,
        complete: impl FnMut(AttemptId, Completion<Self::Results, Self::Failure>) -> Handled,
    ) -> Result<(), Self::Error>;

    /// Appends an element to the output; watermarks may be dropped.
    fn emit(
        &mut self,
        element: StreamElement<Emitted<Self::Element, Self::Results, Self::Failure>>,
    );

    /// Returns the bytes of the input that is held, whole batches of it: as long as one of their
    /// rows is.
    fn input_bytes(&self) -> usize;

    /// Returns whether [`compact`](Self::compact) would let go of much of the input that is held.
    fn is_sparse(&self) -> bool {
        false
    }

    /// Copies these rows out of input that needs few of its rows, and lets go of it.
    ///
    /// `elements` are those of the records that the operator holds; they may be replaced by others
    /// that mean the same records.
    ///
    /// # Errors
    ///
    /// The rows cannot be copied; the task fails.
    fn compact<'a>(
        &mut self,
        _elements: impl Iterator<Item = &'a mut Self::Element>,
    ) -> Result<(), Self::Error>
    where
        Self::Element: 'a,
    {
        Ok(())
    }

    /// Returns the bytes of the results that are held: they have not left yet.
    fn result_bytes(&self) -> usize;

    /// Returns the number of rows that wait in the output.
    fn output_rows(&self) -> usize;

    /// Returns whether a batch of `max_rows` rows, or of about `max_bytes` bytes, can be taken.
    fn is_output_full(&mut self, max_rows: usize, max_bytes: usize) -> bool;

    /// Builds a batch of at most `max_rows` rows and `max_bytes` bytes from the output, if it has
    /// any; of one row, however large that is.
    ///
    /// # Errors
    ///
    /// The rows do not fit into a batch; the task fails.
    fn take_output(
        &mut self,
        max_rows: usize,
        max_bytes: usize,
    ) -> Result<Option<Self::Output>, Self::Error>;

    /// Makes input of a batch of results, for the next operator of a chain.
    fn pass_on(output: Self::Output) -> Self::Input;

    /// Returns the number of records that left without a result although their call returned.
    fn dropped(&self) -> u64;

    /// Returns how many records have left as failed, by what went wrong; nothing where nobody asks.
    fn failures(&mut self) -> Arc<[(String, u64)]> {
        Arc::default()
    }

    /// Returns what happened to the input rows that have left, by the places that they had.
    fn left(&self) -> RowsLeft;

    /// Names the function in errors.
    fn function(&self) -> &str;

    /// Makes the error of a promise that the crates of this project have broken.
    fn broken(what: String) -> Self::Error;

    /// Describes the record that failed the operator.
    fn failure(&mut self, failed: Emitted<Self::Element, (), Self::Failure>) -> Self::Error;
}

/// Rows of the input that have left, by what happened to them. A row counts once, however many
/// results it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowsLeft {
    /// Put out: with results, or with what its failure leaves.
    pub put_out: u64,
    /// Left out because they had no result.
    pub without_result: u64,
    /// Left out because they failed.
    pub dropped: u64,
    /// Whether they are all rows that were taken, each of them once.
    pub are_all: bool,
    /// Rows of the batches that they left in: one for each of their results.
    pub output: u64,
}

/// What an operator held, as its codec took it up again.
#[derive(Debug)]
pub struct Restored<X: BatchCodec> {
    /// Everything admitted and not emitted.
    pub snapshot: Snapshot<X::Element, X::Results, X::Failure>,
    /// The key of each record of it, its channel, and its price.
    pub keys: Vec<(Option<Key>, Option<Key>, Price)>,
    /// What was not admitted.
    pub inputs: VecDeque<X::Input>,
}

/// A codec whose rows can be held elsewhere, and taken up again by another operator.
///
/// ```text
///   operator --Snapshot--> save --> Saved .. state of a stream .. Saved --> restore --> operator
/// ```
pub trait CarryCodec: BatchCodec<Results: Clone, Failure: Clone> {
    /// What an operator holds, as plain data.
    type Saved;

    /// Returns the rows of `snapshot` and `inputs`, which the operator goes on with.
    ///
    /// # Errors
    ///
    /// The rows do not fit into a batch; the task fails.
    fn save(
        &mut self,
        snapshot: Snapshot<Self::Element, Self::Results, Self::Failure>,
        inputs: &VecDeque<Self::Input>,
    ) -> Result<Self::Saved, Self::Error>;

    /// Returns the number of rows that were saved.
    fn rows_saved(saved: &Self::Saved) -> usize;

    /// Takes up what was saved; pending records have the whole of their timeout again.
    ///
    /// # Errors
    ///
    /// It is not what an operator of these settings saves.
    fn restore(&mut self, saved: Self::Saved) -> Result<Restored<Self>, Self::Error>
    where
        Self: Sized;

    /// Returns whether a row is held that was restored `times` times, or more often.
    fn holds_restored(&self, times: u32) -> bool;
}
