// SPDX-License-Identifier: Apache-2.0
//! The account of an operator: each row that came in has left once, or is held.
//!
//! ```text
//!   came + restored = put out + without a result + dropped + held
//!   ---------------   ------------------------------------   ----
//!   lengths of the    places of the rows that the codec      lengths of the batches
//!   batches put in    let go of                              that are handed over
//! ```
//!
//! Where a function or a cache says when calls begin, it also holds that these are the attempts:
//!
//! ```text
//!   attempts = calls announced + what their answers have corrected
//! ```
//!
//! Each side of a comparison is counted in another place, from other things, so that if one of them
//! loses a row the other misses it. A chain also compares what came to an operator with what the
//! one before put out, and functions that are called side by side each with their calls. The task
//! looks at it when the input has ended, and at the end of each part of it. Tasks that fail, or
//! whose consumer wants no more, have none.
//!
//! What lies between the task and its consumer is in no operator's account. So a task that has ended
//! also says what is [`Settled`], and who hands batches over and takes them compares that with their
//! lengths.

use crate::batch_codec::RowsLeft;

/// The rows that an operator was given.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    /// Rows of the batches that were put in.
    came: u64,
    /// Rows that an earlier task had held.
    restored: u64,
    /// Calls that were said to begin.
    announced: u64,
    /// Attempts more, or fewer, because answers told of calls that nobody had announced, or that were
    /// not made.
    corrected: i64,
}

/// What an operator has called functions for that stand side by side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calls {
    /// Rows.
    pub(crate) made: u64,
    /// Those that all of them have answered.
    pub(crate) answered: u64,
}

/// What happened to the rows of a task, by the places of the rows that its codecs have let go of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Rows of the input that have left the first operator, whatever happened to them, or that are
    /// handed over. Without those that an earlier task had held.
    pub input: u64,
    /// Rows that were taken out of the last operator.
    pub output: u64,
    /// Rows that the last operator has left out as its options say: they have no result, or failed.
    pub left_out: u64,
}

impl Settled {
    /// Says what got lost, or is there twice, between the task and its caller, who has handed over
    /// batches of `came` rows and has got batches of `left` rows.
    pub fn mismatch(&self, came: u64, left: u64) -> Option<String> {
        let Self { input, output, .. } = *self;
        (came != input || left != output).then(|| {
            format!(
                "rows got lost or doubled between the task and its caller: {came} rows came in and \
                 {input} are settled; {output} rows left the operators and {left} have arrived; \
                 please report this"
            )
        })
    }
}

impl Account {
    /// Tells how many rows that were put in are among the rows `left` and `held`.
    pub(crate) const fn settled(&self, left: &RowsLeft, held: usize) -> u64 {
        let gone = left.put_out + left.without_result + left.dropped + held as u64;
        // Too few of them are a mismatch, too.
        gone.wrapping_sub(self.restored)
    }

    #[inline]
    pub(crate) const fn put_in(&mut self, rows: usize) {
        self.came += rows as u64;
    }

    pub(crate) const fn restore(&mut self, rows: usize) {
        self.restored += rows as u64;
    }

    /// Notes that calls begin.
    pub(crate) const fn announce(&mut self, calls: usize) {
        self.announced += calls as u64;
    }

    /// Notes the attempts that were counted before answers were looked at, and behind that.
    #[inline]
    pub(crate) const fn correct(&mut self, before: u64, behind: u64) {
        self.corrected += behind.cast_signed() - before.cast_signed();
    }

    /// Says how far the `attempts` that are counted are not the calls that were announced.
    pub(crate) fn mismatch_of_calls(&self, attempts: u64) -> Option<String> {
        let Self { announced, corrected, .. } = *self;
        (announced.checked_add_signed(corrected) != Some(attempts)).then(|| {
            format!(
                "{attempts} attempts are counted, but {announced} calls were announced, and answers \
                 changed that by {corrected}"
            )
        })
    }

    /// Says what got lost on the way from the operator before, which has let go of `left`.
    pub(crate) fn mismatch_behind(&self, left: &RowsLeft) -> Option<String> {
        let (came, output) = (self.came, left.output);
        (came != output)
            .then(|| format!("the operator before put out {output} rows, but {came} came in"))
    }

    /// Returns whether all rows came that it was called for.
    pub(crate) const fn was_given(&self, calls: Calls) -> bool {
        self.came == calls.made
    }

    /// Says what got lost between an operator and this one, which it calls beside others: on the way
    /// there, in it, or on the way back.
    pub(crate) fn mismatch_beside(&self, calls: Calls, left: &RowsLeft) -> Option<String> {
        let Calls { made, answered } = calls;
        let (came, output) = (self.came, left.output);
        (made != came || came != output || output != answered).then(|| {
            format!(
                "it was called for {made} rows beside others, but {came} came in, {output} came out, \
                 and {answered} have their answer"
            )
        })
    }

    /// Says what does not add up.
    pub(crate) fn mismatch(&self, left: &RowsLeft, held: Option<usize>) -> Option<String> {
        let Self { came, restored, .. } = *self;
        let RowsLeft { put_out, without_result, dropped, are_all, .. } = *left;
        let (given, gone) = (came + restored, put_out + without_result + dropped);
        let is_right = match held {
            Some(held) => given == gone + held as u64,
            None => given == gone && are_all,
        };
        if is_right {
            return None;
        }
        let held =
            held.map_or(String::new(), |rows| format!(", {rows} go to the next micro-batch"));
        let twice = if given == gone && held.is_empty() {
            "; some have left twice and others never"
        } else {
            ""
        };
        Some(format!(
            "{came} rows came in and {restored} were restored, but {put_out} came out, \
             {without_result} had no result, {dropped} were dropped{held}{twice}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEFT: RowsLeft =
        RowsLeft { put_out: 20, without_result: 3, dropped: 4, are_all: true, output: 31 };

    fn account(came: usize, restored: usize) -> Account {
        let mut account = Account::default();
        account.put_in(came);
        account.restore(restored);
        account
    }

    #[test]
    fn what_came_has_left_or_is_held() {
        assert_eq!(account(20, 7).mismatch(&LEFT, None), None);
        assert_eq!(account(20, 18).mismatch(&LEFT, Some(11)), None);
        let held = RowsLeft { are_all: false, ..LEFT };
        assert_eq!(account(20, 18).mismatch(&held, Some(11)), None, "some are there still");
    }

    #[test]
    fn a_row_that_is_missing_or_there_twice_is_told_with_all_numbers() {
        assert_eq!(
            account(21, 7).mismatch(&LEFT, None).unwrap(),
            "21 rows came in and 7 were restored, but 20 came out, 3 had no result, 4 were dropped"
        );
        assert_eq!(
            account(20, 18).mismatch(&LEFT, Some(12)).unwrap(),
            "20 rows came in and 18 were restored, but 20 came out, 3 had no result, 4 were \
             dropped, 12 go to the next micro-batch"
        );
        let others = RowsLeft { are_all: false, ..LEFT };
        let told = account(27, 0).mismatch(&others, None).unwrap();
        assert!(told.ends_with("; some have left twice and others never"), "{told}");
    }

    #[test]
    fn attempts_are_the_calls_that_were_announced() {
        let mut account = Account::default();
        account.announce(7);
        account.correct(9, 8);
        account.correct(3, 6);

        assert_eq!(account.mismatch_of_calls(9), None);
        assert_eq!(
            account.mismatch_of_calls(13).unwrap(),
            "13 attempts are counted, but 7 calls were announced, and answers changed that by 2"
        );
    }

    #[test]
    fn what_is_settled_is_compared_with_the_lengths_of_batches() {
        let settled = account(0, 7).settled(&LEFT, 11);
        assert_eq!(settled, 20 + 3 + 4 + 11 - 7);
        let settled = Settled { input: settled, output: LEFT.output, left_out: 7 };
        assert_eq!(settled.mismatch(31, 31), None);
        assert_eq!(
            settled.mismatch(31, 24).unwrap(),
            "rows got lost or doubled between the task and its caller: 31 rows came in and 31 are \
             settled; 31 rows left the operators and 24 have arrived; please report this"
        );
        assert!(settled.mismatch(32, 31).unwrap().contains("32 rows came in and 31 are"));
    }

    #[test]
    fn what_the_operator_before_put_out_has_come() {
        assert_eq!(account(31, 7).mismatch_behind(&LEFT), None, "what was restored came earlier");
        assert_eq!(
            account(30, 7).mismatch_behind(&LEFT).unwrap(),
            "the operator before put out 31 rows, but 30 came in"
        );
    }

    #[test]
    fn a_function_beside_others_was_given_what_it_was_called_for() {
        let left = |output| RowsLeft { output, ..LEFT };
        let calls = |made, answered| Calls { made, answered };
        assert_eq!(account(31, 0).mismatch_beside(calls(31, 31), &left(31)), None);
        let wrong = [(30, 31, 31, 31), (31, 30, 31, 31), (31, 31, 30, 31), (31, 31, 31, 30)];
        for (made, came, output, answered) in wrong {
            let told = account(came, 0).mismatch_beside(calls(made, answered), &left(output));
            let numbers = format!(
                "it was called for {made} rows beside others, but {came} came in, {output} came out, \
                 and {answered} have their answer"
            );
            assert_eq!(told, Some(numbers));
        }
    }
}
