// SPDX-License-Identifier: Apache-2.0
//! How many records have failed for good, by what went wrong.

use std::sync::Arc;

use sparkawait_core::operator::Failure;

use crate::error::CallFailure;

/// So many causes are told apart: a status or a class may be made up by a service.
const MOST: usize = 16;
/// All others.
const OTHERS: &str = "others";

/// Counts by cause: a kind, with a status or the class of an exception behind it.
#[derive(Debug, Default)]
pub(super) struct FailureCounts {
    counts: Vec<(Cause, u64)>,
    /// What was told last, if nothing has changed since.
    told: Option<Arc<[(String, u64)]>>,
}

#[derive(Debug, PartialEq, Eq)]
struct Cause {
    kind: String,
    status: Option<u16>,
    class: Option<String>,
}

impl FailureCounts {
    /// Counts a record.
    pub(super) fn add(&mut self, kind: &str, status: Option<u16>, class: Option<String>) {
        self.told = None;
        let mut counts = self.counts.iter_mut();
        let is_same = |it: &Cause| it.kind == kind && it.status == status && it.class == class;
        if let Some((_, count)) = counts.find(|(it, _)| is_same(it)) {
            *count += 1;
        } else if self.counts.len() < MOST {
            self.counts.push((Cause { kind: kind.to_owned(), status, class }, 1));
        } else if let Some((_, count)) = self.counts.get_mut(MOST) {
            *count += 1;
        } else {
            self.counts.push((Cause { kind: OTHERS.to_owned(), status: None, class: None }, 1));
        }
    }

    /// Returns the counts by what a cause is called.
    pub(super) fn tell(&mut self) -> Arc<[(String, u64)]> {
        let counts = &self.counts;
        let told = self.told.get_or_insert_with(|| {
            counts.iter().map(|(cause, count)| (cause.to_string(), *count)).collect()
        });
        Arc::clone(told)
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.kind)?;
        match (&self.status, &self.class) {
            (Some(status), _) => write!(f, " {status}"),
            (None, Some(class)) => write!(f, " {class}"),
            (None, None) => Ok(()),
        }
    }
}

/// Returns the class of the exception that a record has failed with, if a function raised it.
pub(super) fn class_of(failure: &Failure<Box<CallFailure>>) -> Option<String> {
    let (Failure::Function(failure) | Failure::RetriesExhausted(failure)) = failure else {
        return None;
    };
    // Of exceptions that are not ours, only the class may be in a log.
    let class = failure.summary.strip_prefix('`')?.strip_suffix('`')?;
    Some(class.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(counts: &mut FailureCounts) -> Vec<(String, u64)> {
        counts.tell().to_vec()
    }

    #[test]
    fn a_cause_is_a_kind_with_a_status_or_a_class() {
        let mut counts = FailureCounts::default();
        let (timed_out, failed) = ("element-timed-out", "user-function-failed");
        counts.add(timed_out, None, None);
        counts.add(failed, None, Some("ValueError".to_owned()));
        counts.add(failed, Some(503), Some("HTTPStatusError".to_owned()));
        assert_eq!(told(&mut counts).len(), 3);
        counts.add(timed_out, None, None);
        let all = [
            ("element-timed-out", 2),
            ("user-function-failed ValueError", 1),
            ("user-function-failed 503", 1),
        ];
        assert_eq!(told(&mut counts), all.map(|(name, count)| (name.to_owned(), count)));
    }

    #[test]
    fn causes_beyond_sixteen_are_one() {
        let mut counts = FailureCounts::default();
        for status in (400..437).chain(400..413) {
            counts.add("refused", Some(status), None);
        }
        let told = told(&mut counts);
        assert_eq!(told.len(), 17);
        assert_eq!(told[3], ("refused 403".to_owned(), 2));
        assert_eq!(told[16], ("others".to_owned(), 21));
        assert_eq!(told.iter().map(|(_, count)| count).sum::<u64>(), 50);
    }
}
