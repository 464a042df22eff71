// SPDX-License-Identifier: Apache-2.0
//! Says of columns that no answer has that they are not there, which a null does not tell.

use std::sync::{Mutex, PoisonError};

/// Rows after which columns that none of them had are told.
const ROWS: usize = 20;

/// So begin the names of columns that a function of ours reads for itself: a service may not have them.
const OWN: &str = "sparkawait_";

/// What the first rows of a task had; told once.
#[derive(Debug)]
pub(super) struct AbsentColumns {
    /// Each with the path at which it is looked for.
    columns: Vec<(String, String)>,
    /// `None` when there is nothing more to say.
    seen: Mutex<Option<Seen>>,
}

#[derive(Debug)]
struct Seen {
    rows: usize,
    /// Whether a row had the column, if only as a null.
    found: Vec<bool>,
}

impl AbsentColumns {
    pub(super) fn new(columns: Vec<(String, String)>) -> Self {
        let seen = Seen { rows: 0, found: vec![false; columns.len()] };
        Self { columns, seen: Mutex::new(Some(seen)) }
    }

    /// Whether rows are still to be looked at.
    pub(super) fn is_watching(&self) -> bool {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Takes which columns some more rows had.
    pub(super) fn add(&self, rows: usize, found: &[bool]) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = seen.as_mut() else { return };
        known.rows += rows;
        for (known, found) in known.found.iter_mut().zip(found) {
            *known |= found;
        }
        if known.rows >= ROWS || known.found.iter().all(|found| *found) {
            self.tell(known);
            *seen = None;
        }
    }

    fn tell(&self, seen: &Seen) {
        if let Some(what) = self.absent(seen) {
            tracing::warn!(
                "none of the first {} answers has {what}: null in all of their rows; look at the \
                 path, `sa.http.preview` shows an answer with it",
                seen.rows
            );
        }
    }

    fn absent(&self, seen: &Seen) -> Option<String> {
        let missing = self.columns.iter().zip(&seen.found).filter(|(_, found)| !**found);
        let missing = missing.filter(|((column, _), _)| !column.starts_with(OWN));
        let named = missing.map(|((column, path), _)| format!("column `{column}` at `{path}`"));
        let named: Vec<_> = named.collect();
        (!named.is_empty()).then(|| named.join(", "))
    }
}

/// A task that had few answers says so if nothing of them was what was looked for.
impl Drop for AbsentColumns {
    fn drop(&mut self) {
        let seen = self.seen.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(seen) = seen.filter(|it| it.rows > 0 && !it.found.contains(&true)) {
            self.tell(&seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> AbsentColumns {
        let column = |name: &str| (name.to_owned(), format!("$.{name}"));
        AbsentColumns::new(vec![column("a"), column("b"), column("c")])
    }

    fn absent(columns: &AbsentColumns) -> Option<String> {
        columns.absent(columns.seen.lock().unwrap().as_ref()?)
    }

    #[test]
    fn columns_that_some_row_has_are_not_absent() {
        let columns = columns();
        columns.add(13, &[true, false, false]);
        assert_eq!(absent(&columns).unwrap(), "column `b` at `$.b`, column `c` at `$.c`");
        columns.add(5, &[false, false, true]);
        assert_eq!(absent(&columns).unwrap(), "column `b` at `$.b`");
        assert!(columns.is_watching());
        columns.add(2, &[false, false, false]);
        assert!(!columns.is_watching());
    }

    #[test]
    fn nobody_hears_of_columns_that_no_user_has_named() {
        let path = || "$.x".to_owned();
        let own = AbsentColumns::new(vec![("sparkawait_x".to_owned(), path())]);
        own.add(13, &[false]);
        assert_eq!(absent(&own), None);
    }

    #[test]
    fn nothing_is_looked_for_when_all_were_there() {
        let columns = columns();
        columns.add(1, &[true, true, true]);
        assert!(!columns.is_watching());
    }
}
