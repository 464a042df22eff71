// SPDX-License-Identifier: Apache-2.0
//! Where a task is with the parts of its input, and what may follow what.
//!
//! ```text
//!          begin(n)                put_end                 work_off
//!   Idle -----------> Open of n -----------> Complete n -----------> Idle, with the answer of n
//!                                                                      |           |
//!                    Open of n + 1 <----------- begin(n + 1) ----------+           | begin(n):
//!                    the answer is forgotten                                       v the same again
//!
//!   any  --end(error)-------> Ended, with the error, and the answer if there is one
//!        --abandon, retire--> Ended, with nothing: of no use any more
//!        --begin(of a part that is not next to what was worked off, of another owner)--> the same
//!   Ended, with the error --take--> Ended, with nothing: it is told once
//! ```
//!
//! A step that has begun a part has it for itself (`is_brought`) until `take` gives it the answer. A step
//! that leaves a part, or is gone, leaves it in its state; `begin` of the same part goes on from there,
//! with the same bundles.
//!
//! | called by | transitions |
//! |---|---|
//! | a step, in this process or for another one | `begin`, `claim`, `note`, `put_end`, `take`, `leave` |
//! | the thread of the task | `work_off`, `end` |
//! | who looks after idle tasks | `retire` |
//! | a step that finds other rows | `abandon` |

use std::sync::Arc;
use std::time::{Duration, Instant};

use sparkawait_task::error::TaskError;

use crate::bundles::{BundleId, Bundles};
use crate::idle::Idle;
use crate::kept_answers::{Answer, KeptAnswers};
use crate::part_end::PartEnd;

/// Whether a part has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// It has begun, or begun again: see [`DetachedTask::claim`](crate::DetachedTask::claim).
    Yes,
    /// The task is elsewhere: what somebody has gone on with did not count. It is given up.
    Stale,
    /// Others have gone on with the task and need it: the step is late.
    Late,
    /// Somebody else brings a part.
    Busy,
}

/// Whether the task has a bundle, or the end of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// No: put it.
    New,
    /// The task has it, from somebody who brought the part before; or has ended, and needs none.
    Known,
    /// The task has other rows of this part: it is of no use to the step.
    Other,
}

/// What is there of the part behind those that were worked off.
#[derive(Debug)]
enum Part {
    /// Nothing. The answer of the part before is kept for a step that brings that again.
    Idle { answer: Option<Answer> },
    /// Some of its rows may be there.
    Open,
    /// All of its rows are there.
    Complete,
    /// The task gets no further. The step is told the error.
    Ended { error: Option<TaskError>, answer: Option<Answer> },
}

/// The parts of a task's input.
#[derive(Debug)]
pub(crate) struct Parts {
    /// Whose they are.
    owner: String,
    part: Part,
    /// Parts that were worked off.
    worked_off: u64,
    /// Whether somebody has begun a part.
    is_brought: bool,
    /// What was brought of the part that is under way, or else of the last one.
    bundles: Bundles,
    /// Since when nobody brings a part.
    idle: Idle,
    /// Those of all tasks of the process.
    kept: Arc<KeptAnswers>,
}

impl Parts {
    pub(crate) fn new(owner: String, idle: Idle, kept: Arc<KeptAnswers>) -> Self {
        let (part, bundles) = (Part::Idle { answer: None }, Bundles::default());
        Self { owner, part, worked_off: 0, is_brought: false, bundles, idle, kept }
    }

    /// Begins the part behind `part` others, or goes on with it.
    pub(crate) fn begin(&mut self, owner: &str, part: u64, now: Instant) -> Begun {
        let begun = if self.is_brought { Begun::Busy } else { self.begin_or_refuse(owner, part) };
        match begun {
            Begun::Yes => {
                self.is_brought = true;
                self.idle.begin(now);
            }
            Begun::Stale => self.abandon(),
            Begun::Late | Begun::Busy => {}
        }
        begun
    }

    fn begin_or_refuse(&mut self, owner: &str, part: u64) -> Begun {
        if self.owner != owner || self.is_retired() || part > self.worked_off {
            return Begun::Stale;
        }
        let is_next = part == self.worked_off;
        let is_last = part + 1 == self.worked_off;
        let is_known = is_last
            && match &mut self.part {
                Part::Idle { answer: Some(answer) } | Part::Ended { answer: Some(answer), .. } => {
                    answer.take_back()
                }
                _ => false,
            };
        match &mut self.part {
            // Who goes on has the results of the part before.
            Part::Idle { .. } if is_next => {
                self.bundles.clear();
                self.part = Part::Open;
            }
            Part::Ended { answer, .. } if is_next => *answer = None,
            Part::Open | Part::Complete if is_next => self.bundles.begin_again(),
            _ if is_known => self.bundles.begin_again(),
            // Nobody has gone on with an answer that is not kept any more, as far as is known.
            Part::Idle { .. } if is_last => return Begun::Stale,
            _ => return Begun::Late,
        }
        Begun::Yes
    }

    /// Leaves a part to the step that begins it again.
    pub(crate) const fn leave(&mut self, now: Instant) {
        self.is_brought = false;
        self.idle.end(now);
    }

    /// Tells whether the task has a bundle of the part.
    pub(crate) fn claim(&mut self, bundle: BundleId) -> Claim {
        match &self.part {
            Part::Ended { answer: None, .. } => Claim::Known,
            _ if self.bundles.claim(bundle) => Claim::Known,
            Part::Open => Claim::New,
            Part::Idle { .. } | Part::Complete | Part::Ended { .. } => Claim::Other,
        }
    }

    /// Notes that all rows of a new bundle were put.
    pub(crate) fn note(&mut self, bundle: BundleId) {
        self.bundles.add(bundle);
    }

    /// Notes that the part has no further bundle; tell the task of a new end.
    pub(crate) fn put_end(&mut self) -> Claim {
        match &self.part {
            Part::Ended { answer: None, .. } => Claim::Known,
            _ if !self.bundles.are_all_claimed() => Claim::Other,
            Part::Open => {
                self.part = Part::Complete;
                Claim::New
            }
            Part::Idle { .. } | Part::Complete | Part::Ended { .. } => Claim::Known,
        }
    }

    /// Notes what the part came to.
    pub(crate) fn work_off(&mut self, end: PartEnd, now: Instant) {
        // One that was given up meanwhile is not gone on with.
        if matches!(self.part, Part::Complete) {
            self.part = Part::Idle { answer: Some(Answer::New(Arc::new(end))) };
            self.worked_off += 1;
            self.idle.end(now);
        }
    }

    /// Returns what the part came to, as soon as it has.
    ///
    /// # Errors
    ///
    /// Why the task has ended.
    pub(crate) fn take(&mut self, now: Instant) -> Result<Option<Arc<PartEnd>>, TaskError> {
        let (Part::Idle { answer } | Part::Ended { answer, .. }) = &mut self.part else {
            return Ok(None);
        };
        if let Some(end) = answer.as_ref().and_then(Answer::get) {
            *answer = self.kept.keep(Arc::clone(&end));
            self.leave(now);
            return Ok(Some(end));
        }
        let Part::Ended { error, .. } = &mut self.part else { return Ok(None) };
        self.is_brought = false;
        Err(error.take().unwrap_or_else(|| TaskError::Internal("a task was given up".to_owned())))
    }

    /// Notes that the task has ended.
    pub(crate) fn end(&mut self, error: TaskError) {
        let answer = match &mut self.part {
            Part::Idle { answer } => answer.take(),
            Part::Open | Part::Complete => None,
            Part::Ended { .. } => return,
        };
        self.part = Part::Ended { error: Some(error), answer };
    }

    /// Gives the task up if no part has come for long; returns whether it is of no use any more.
    pub(crate) fn retire(&mut self, now: Instant, hold: Duration) -> bool {
        if !self.is_brought && self.idle.is_over(now, hold) {
            self.abandon();
        }
        self.is_retired()
    }

    /// Gives the task up.
    pub(crate) fn abandon(&mut self) {
        self.is_brought = false;
        self.part = Part::Ended { error: None, answer: None };
    }

    /// Returns whether the task is of no use any more: it has ended, and said why, if anybody asks.
    const fn is_retired(&self) -> bool {
        matches!(self.part, Part::Ended { error: None, .. })
    }

    /// Returns whether somebody else has to wait for who brings a part.
    pub(crate) const fn are_brought(&self) -> bool {
        self.is_brought && !matches!(self.part, Part::Ended { .. })
    }

    /// Returns whether [`take`](Self::take) has nothing yet for who brings a part.
    pub(crate) const fn are_under_way(&self) -> bool {
        let is_at_its_end =
            matches!(self.part, Part::Idle { answer: Some(_) } | Part::Ended { .. });
        self.is_brought && !is_at_its_end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Duration = Duration::from_secs(60);

    fn parts() -> Parts {
        parts_beside(&Arc::default())
    }

    /// Those of a task beside others of its process.
    fn parts_beside(kept: &Arc<KeptAnswers>) -> Parts {
        Parts::new("run".to_owned(), Idle::new(Duration::ZERO), Arc::clone(kept))
    }

    fn end(rows: u64) -> PartEnd {
        PartEnd { output_rows: rows, ..PartEnd::default() }
    }

    fn failure() -> TaskError {
        TaskError::Internal("down".to_owned())
    }

    /// Brings a part of the bundles, and returns the claims of each and of its end.
    fn bring(parts: &mut Parts, part: u64, bundles: &[&[u8]]) -> (Begun, Vec<Claim>, Claim) {
        let begun = parts.begin("run", part, Instant::now());
        let claims = bundles.iter().map(|rows| {
            let bundle = BundleId::of(rows);
            let claim = parts.claim(bundle);
            if claim == Claim::New {
                parts.note(bundle);
            }
            claim
        });
        let claims = claims.collect();
        (begun, claims, parts.put_end())
    }

    fn answer(parts: &mut Parts) -> Option<u64> {
        parts.take(Instant::now()).unwrap().map(|end| end.output_rows)
    }

    #[test]
    fn a_part_is_brought_worked_off_and_answered_and_the_next_one_follows() {
        let mut parts = parts();
        for part in 0..3 {
            let new = (Begun::Yes, vec![Claim::New, Claim::New], Claim::New);
            assert_eq!(bring(&mut parts, part, &[b"a", b"b"]), new);
            assert!(parts.are_under_way() && parts.are_brought());
            assert_eq!(answer(&mut parts), None);
            assert_eq!(parts.begin("run", part, Instant::now()), Begun::Busy);
            parts.work_off(end(part + 7), Instant::now());
            assert!(!parts.are_under_way());
            assert_eq!(answer(&mut parts), Some(part + 7));
            assert!(!parts.are_brought());
        }
    }

    #[test]
    fn a_part_is_gone_on_with_from_wherever_it_was_left() {
        let mut parts = parts();
        let known = vec![Claim::Known; 2];
        let bundles: [&[u8]; 2] = [b"a", b"b"];
        bring(&mut parts, 0, &bundles);
        parts.leave(Instant::now());
        // All was there, and is not worked off.
        assert_eq!(bring(&mut parts, 0, &bundles), (Begun::Yes, known.clone(), Claim::Known));
        parts.leave(Instant::now());
        parts.work_off(end(5), Instant::now());
        // It was, and nobody has heard of it; and then again.
        for _ in 0..2 {
            assert_eq!(bring(&mut parts, 0, &bundles), (Begun::Yes, known.clone(), Claim::Known));
            assert_eq!(answer(&mut parts), Some(5));
        }
        // With other rows it is of no use; nor with fewer.
        let other = (Begun::Yes, vec![Claim::Known, Claim::Other], Claim::Other);
        assert_eq!(bring(&mut parts, 0, &[b"b", b"c"]), other);
    }

    #[test]
    fn who_is_late_is_told_apart_from_who_is_ahead() {
        let begin = |worked_off: u64, is_open: bool, part: u64| {
            let mut parts = parts();
            for part in 0..worked_off {
                bring(&mut parts, part, &[]);
                parts.work_off(end(1), Instant::now());
                parts.take(Instant::now()).unwrap();
            }
            if is_open {
                assert_eq!(parts.begin("run", worked_off, Instant::now()), Begun::Yes);
                parts.leave(Instant::now());
            }
            parts.begin("run", part, Instant::now())
        };
        for is_open in [false, true] {
            assert_eq!(begin(3, is_open, 1), Begun::Late);
            assert_eq!(begin(3, is_open, 3), Begun::Yes);
            assert_eq!(begin(3, is_open, 4), Begun::Stale);
        }
        assert_eq!((begin(3, false, 2), begin(3, true, 2)), (Begun::Yes, Begun::Late));
        assert_eq!(parts().begin("another run", 0, Instant::now()), Begun::Stale);
    }

    #[test]
    fn an_answer_that_is_too_large_to_be_kept_is_given_once() {
        let mut parts = parts();
        bring(&mut parts, 0, &[b"a"]);
        let outputs = vec![vec![0; (128 << 20) + 1]];
        parts.work_off(PartEnd { outputs, ..end(3) }, Instant::now());

        assert_eq!(answer(&mut parts), Some(3));
        assert_eq!(answer(&mut parts), None);
        assert_eq!(parts.begin("run", 0, Instant::now()), Begun::Stale);
        assert!(parts.retire(Instant::now(), HOLD), "what it has gone on with did not count");
    }

    #[test]
    fn an_answer_that_made_room_for_those_of_other_tasks_is_given_once() {
        let kept = Arc::default();
        let answered = |rows| {
            let mut parts = parts_beside(&kept);
            bring(&mut parts, 0, &[b"a"]);
            let outputs = vec![vec![0; 50 << 20]];
            parts.work_off(PartEnd { outputs, ..end(rows) }, Instant::now());
            parts
        };
        let mut all: Vec<Parts> = (0..3).map(answered).collect();
        for (rows, parts) in (0..).zip(&mut all) {
            assert_eq!(answer(parts), Some(rows), "who has not had it gets it");
        }

        let begun: Vec<Begun> =
            all.iter_mut().map(|it| it.begin("run", 0, Instant::now())).collect();
        assert_eq!(begun, [Begun::Stale, Begun::Yes, Begun::Yes]);
        assert_eq!((answer(&mut all[1]), answer(&mut all[2])), (Some(1), Some(2)));
    }

    #[test]
    fn a_failure_is_told_once_in_the_next_part_and_an_answer_before_it_is_still_given() {
        let mut parts = parts();
        bring(&mut parts, 0, &[b"a"]);
        parts.work_off(end(3), Instant::now());
        assert_eq!(answer(&mut parts), Some(3));
        parts.end(failure());

        let again = bring(&mut parts, 0, &[b"a"]);
        assert_eq!(again, (Begun::Yes, vec![Claim::Known], Claim::Known));
        assert_eq!(answer(&mut parts), Some(3));
        // Of no use is only who has been told of it.
        assert!(!parts.retire(Instant::now(), HOLD));
        let next = bring(&mut parts, 1, &[b"b", b"c"]);
        assert_eq!(next, (Begun::Yes, vec![Claim::Known; 2], Claim::Known));
        assert!(!parts.are_under_way(), "it is told at once");
        let error = parts.take(Instant::now()).unwrap_err();

        assert!(error.to_string().starts_with("down"), "{error}");
        assert_eq!(parts.begin("run", 1, Instant::now()), Begun::Stale);
        assert!(parts.retire(Instant::now(), HOLD));
    }

    #[test]
    fn a_failure_within_a_part_is_told_to_who_brings_it() {
        for is_complete in [false, true] {
            let mut parts = parts();
            assert_eq!(parts.begin("run", 0, Instant::now()), Begun::Yes);
            if is_complete {
                assert_eq!(parts.put_end(), Claim::New);
            }
            parts.end(failure());

            assert_eq!(parts.claim(BundleId::of(b"a")), Claim::Known);
            assert_eq!(parts.put_end(), Claim::Known);
            assert!(parts.take(Instant::now()).unwrap_err().to_string().starts_with("down"));
        }
    }

    #[test]
    fn who_was_given_up_stays_so_whatever_its_thread_says() {
        let mut parts = parts();
        bring(&mut parts, 0, &[b"a"]);
        parts.abandon();

        parts.work_off(end(3), Instant::now());
        parts.end(failure());

        assert_eq!(parts.begin("run", 0, Instant::now()), Begun::Stale);
        let error = parts.take(Instant::now()).unwrap_err();
        assert!(error.to_string().starts_with("a task was given up"), "{error}");
    }

    #[test]
    fn nobody_retires_while_a_part_is_brought() {
        let mut parts = parts();
        let start = Instant::now();
        assert_eq!(parts.begin("run", 0, start), Begun::Yes);
        assert!(!parts.retire(start + 100 * HOLD, HOLD));
        parts.leave(start);

        assert!(!parts.retire(start + Duration::from_secs(59), HOLD));
        assert!(parts.retire(start + HOLD, HOLD));
        assert_eq!(parts.begin("run", 0, start + HOLD), Begun::Stale);
    }
}
