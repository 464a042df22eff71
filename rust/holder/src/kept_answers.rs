// SPDX-License-Identifier: Apache-2.0
//! Answers that a step was given, kept for one that brings the same part again because the first did
//! not count.
//!
//! All tasks of a process have one budget of bytes for them: the answer that was given first goes
//! first. A step that would have needed it makes a task of what is saved.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::part_end::PartEnd;

/// Bytes of answers that a process keeps.
const MOST_BYTES: usize = 128 << 20;

/// The answers that a process keeps.
#[derive(Debug, Default)]
pub(crate) struct KeptAnswers(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// Oldest first.
    answers: VecDeque<Arc<PartEnd>>,
    bytes: usize,
}

/// The answer of a part.
#[derive(Debug)]
pub(crate) enum Answer {
    /// No step has it, or one has come for it again.
    New(Arc<PartEnd>),
    /// A step has it.
    Given(Given),
}

/// An answer that is kept as long as there is room, and no longer than this.
#[derive(Debug)]
pub(crate) struct Given {
    answer: Weak<PartEnd>,
    all: Arc<KeptAnswers>,
}

impl Answer {
    /// Returns it, if it is still there.
    pub(crate) fn get(&self) -> Option<Arc<PartEnd>> {
        match self {
            Self::New(answer) => Some(Arc::clone(answer)),
            Self::Given(given) => given.answer.upgrade(),
        }
    }

    /// Has it for a step that comes for it, if it is still there; returns whether it is.
    pub(crate) fn take_back(&mut self) -> bool {
        let Some(answer) = self.get() else { return false };
        *self = Self::New(answer);
        true
    }
}

impl KeptAnswers {
    /// Keeps an answer that a step was given; `None` if it is too large for that.
    pub(crate) fn keep(self: &Arc<Self>, answer: Arc<PartEnd>) -> Option<Answer> {
        if answer.bytes() > MOST_BYTES {
            return None;
        }
        let given = Given { answer: Arc::downgrade(&answer), all: Arc::clone(self) };
        let mut let_go = Vec::new();
        let mut kept = self.lock();
        kept.bytes += answer.bytes();
        kept.answers.push_back(answer);
        while kept.bytes > MOST_BYTES
            && let Some(oldest) = kept.answers.pop_front()
        {
            kept.bytes -= oldest.bytes();
            let_go.push(oldest);
        }
        drop(kept);
        // They are large, and others wait for the lock.
        drop(let_go);
        Some(Answer::Given(given))
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        let mut kept = self.all.lock();
        let found = kept.answers.iter().position(|it| Arc::as_ptr(it) == self.answer.as_ptr());
        let answer = found.and_then(|at| kept.answers.remove(at));
        kept.bytes -= answer.as_ref().map_or(0, |it| it.bytes());
        drop(kept);
        drop(answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(bytes: usize) -> Arc<PartEnd> {
        Arc::new(PartEnd { outputs: vec![vec![0; bytes]], ..PartEnd::default() })
    }

    #[test]
    fn the_answers_of_a_process_have_one_budget_and_the_oldest_goes_first() {
        let all = Arc::new(KeptAnswers::default());
        let large = MOST_BYTES / 3;
        let mut kept: Vec<Answer> = (0..4).map(|_| all.keep(answer(large)).unwrap()).collect();

        let is_there =
            |kept: &[Answer]| kept.iter().map(|it| it.get().is_some()).collect::<Vec<_>>();
        assert_eq!(is_there(&kept), [false, true, true, true]);
        assert!(!kept[0].take_back());
        // One that a step comes for is its own as long as it needs it.
        assert!(kept[1].take_back());
        kept.extend((0..2).map(|_| all.keep(answer(large)).unwrap()));
        assert_eq!(is_there(&kept), [false, true, false, true, true, true]);
        assert!(all.keep(answer(MOST_BYTES + 1)).is_none());
    }

    #[test]
    fn nothing_is_kept_of_tasks_that_are_gone() {
        let all = Arc::new(KeptAnswers::default());
        let kept: Vec<_> = (0..3).map(|_| all.keep(answer(7))).collect();
        let counts = || {
            let kept = all.lock();
            (kept.answers.len(), kept.bytes)
        };
        assert_eq!(counts(), (3, 21));

        drop(kept);

        assert_eq!(counts(), (0, 0));
    }
}
