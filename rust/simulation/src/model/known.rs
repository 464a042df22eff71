// SPDX-License-Identifier: Apache-2.0
//! Rows whose outcome was known before their task began.

use sparkawait_arrow::CallInfo;

use super::site::is_failure;
use super::{Model, Outcome, Row, State};
use crate::known::KnownRow;
use crate::scenario::Failing;
use crate::trace::{Broken, Checked, Path, head_id};

impl Model {
    /// Rows are handed over, and a journal knows some of them.
    pub fn knows(&mut self, rows: impl Iterator<Item = (Path, KnownRow)>, now: u64) {
        let here = &mut self.sites[0];
        for (path, known) in rows {
            let outcome = known.outcome();
            let mut row = Row::new(&path, now);
            row.attempts = known.attempts;
            row.set(State::Done(outcome), now, false);
            here.rows.insert(head_id(path.row), row);
            self.known.insert(path.row, known);
            self.is_ending |= here.plan.on_error == Failing::Fail && is_failure(outcome);
        }
    }

    /// They were not taken, and come again.
    pub fn forgets(&mut self, rows: impl Iterator<Item = i64>) {
        for row in rows.filter(|row| self.known.remove(row).is_some()) {
            self.sites[0].rows.remove(&head_id(row));
        }
    }

    /// A row goes to the journal: it was called, and has come to this.
    pub fn entered(&self, row: i64, entry: &KnownRow) -> Checked {
        if self.known.contains_key(&row) {
            return Err(Broken::new("what is known is not entered again", format!("row {row}")));
        }
        let seen = self.sites[0].rows.get(&head_id(row));
        let came = seen.and_then(Row::state);
        // A row may have failed without a call that anybody has seen.
        if self.timed_out.contains(&row) && entry.came.is_ok() {
            return Err(Broken::new("what times out is not entered", format!("row {row}")));
        }
        let is_nothing = |it: Outcome| matches!(it, Outcome::Results { count: 0, .. });
        let are_both_nothing = is_nothing(entry.outcome()) && came.is_some_and(is_nothing);
        if came == Some(entry.outcome()) || are_both_nothing || entry.came.is_err() {
            return Ok(());
        }
        let what = format!("row {row}: {:?}, {seen:?}", entry.outcome());
        Err(Broken::new("a row is entered with what its calls came to", what))
    }

    /// The rows that have results of a call, as far as the task looks at its mail.
    pub fn completed_rows(&self) -> impl Iterator<Item = i64> {
        let (here, rows) = (&self.sites[0], 0..i64::try_from(self.fed.len()).unwrap_or_default());
        rows.filter(|row| {
            let came = here.rows.get(&head_id(*row)).and_then(Row::state);
            let has_results = matches!(came, Some(Outcome::Results { count: 1.., .. }));
            has_results && !self.known.contains_key(row) && !self.timed_out.contains(row)
        })
    }

    /// A function is called for a row.
    pub(super) fn check_unknown(&self, path: &Path) -> Checked {
        if self.known.contains_key(&path.row) {
            return Err(Broken::new("what is known is not called", format!("row {}", path.row)));
        }
        Ok(())
    }

    /// A known row leaves: what is told of it is what is known, and that nobody was called for it now.
    pub fn check_known(
        &self,
        row: i64,
        failure: Option<&(String, u32)>,
        told: Option<&CallInfo>,
    ) -> Checked {
        let Some(known) = self.known.get(&row) else { return Ok(()) };
        let failed = known.came.as_ref().err().map(|kind| (kind.clone(), known.attempts));
        let captures = self.sites[0].plan.on_error == Failing::Capture;
        let nothing = CallInfo { cached: true, ..CallInfo::default() };
        let is_told = told.is_none_or(|it| {
            it.cost.is_none_or(|it| it <= 0.0) && CallInfo { cost: None, ..*it } == nothing
        });
        if is_told && (!captures || failure == failed.as_ref()) {
            return Ok(());
        }
        let what = format!("row {row}: {failure:?}, {told:?}, {known:?}");
        Err(Broken::new("what is told of a known row is what is known", what))
    }
}
