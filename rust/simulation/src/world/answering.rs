// SPDX-License-Identifier: Apache-2.0
//! What becomes of calls: what is answered, when, and what the mail says of it.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::{AttemptId, Retry};
use sparkawait_core::policy::CallSign;
use sparkawait_task::cause::Cause;
use sparkawait_task::error::CallFailure;
use sparkawait_task::function::{FailedCall, Known, ReplyGroup, ResultGroup};

use super::{Answer, Letter, World};
use crate::columns::result_schema;
use crate::model::Cache;
use crate::model::requests::Requests;
use crate::random::Random;
use crate::trace::{Asks, Path, Said, What, choice};

impl World {
    /// Makes one letter of answers of one function.
    pub(super) fn letter(&mut self, site: usize, answers: Vec<Answer>) -> Option<Letter> {
        let (mut attempts, mut counts, mut retries) = (Vec::new(), Vec::new(), Vec::new());
        let (mut values, mut failures) = (Vec::new(), Vec::new());
        let (mut settled, mut told) = (Vec::new(), Vec::new());
        // As a task takes them: results first.
        let (results, failed): (Vec<_>, Vec<_>) =
            answers.into_iter().partition(|it| matches!(it.said, Said::Results { .. }));
        for Answer { attempt, id, said, comes_anyway, .. } in results.into_iter().chain(failed) {
            if self.cancelled.contains(&(site, attempt)) && !comes_anyway {
                continue;
            }
            self.note(What::Replied { site, attempt, said });
            if self.cancelled.contains(&(site, attempt)) {
                self.remark_late(site, attempt, &mut settled, &mut told);
            }
            let is_unsent = self.take_back(site, attempt, said);
            if !is_unsent {
                settled.extend(self.settle(site, attempt));
            }
            told.extend(self.tell(site, attempt));
            match &mut self.cached[site] {
                Some(cache) => cache.brought(attempt, id, said, self.now),
                None => self.model.replied(site, attempt, id, said, self.now),
            }
            match said {
                Said::Results { serial, count, retry } => {
                    attempts.push(attempt);
                    counts.push(count);
                    retries.push(retry);
                    values.extend((0..i64::from(count)).map(|it| serial * 8 + it));
                }
                Said::Failure { asks, after, pause } => {
                    let failed = failed_call(attempt, asks, after, pause);
                    let cause = if is_unsent { Cause::NotSent } else { failed.cause };
                    failures.push(FailedCall { cause, ..failed });
                }
            }
        }
        let here = &self.model.sites[site];
        let branch = self.model.sites_of(here.operator).position(|it| it == site)?;
        let plan = &self.scenario.operators[here.operator];
        let schema = result_schema(plan, here.operator, branch);
        let text =
            |it: &i64| plan.bytes.map(|of| "x".repeat(of.of_result(self.scenario.seed, *it)));
        let texts =
            plan.bytes.map(|_| Arc::new(values.iter().map(text).collect::<StringArray>()) as _);
        let number = Arc::new(Int64Array::from(values.clone())) as ArrayRef;
        let rows =
            RecordBatch::try_new(schema, [number].into_iter().chain(texts).collect()).ok()?;
        let is_one_each = counts.iter().all(|it| *it == 1) && !retries.contains(&true);
        let results = ResultGroup {
            attempts,
            counts: (!is_one_each).then_some(counts),
            retries: (!is_one_each).then_some(retries),
            misses: None,
            known: Known::None,
            rows,
        };
        let results = Some(results);
        let group = ReplyGroup { results, failures, settled, told, ..ReplyGroup::default() };
        Some(Letter::Replies(self.replies[site].clone()?, Box::new(group)))
    }

    /// A call is made; decides what happens to it.
    pub(super) fn invoked(&mut self, site: usize, attempt: AttemptId, path: &Path) {
        let checked = match &mut self.cached[site] {
            Some(cache) => {
                self.model.begins(site, attempt, self.now);
                cache.called(attempt, self.now)
            }
            None => self.model.invoked(site, attempt, path, self.now),
        };
        let Some(id) = self.breaks(checked) else { return };
        self.note(What::Invoked { site, attempt, row: path.row, id });
        self.check_shared(site, path);
        let script = self.model.sites[site].plan.script;
        let drawn = choice(self.scenario.seed, site, id, attempt.attempt);
        let random = &mut Random(drawn);
        let spread = (script.most - script.least).max(1);
        let mut takes = script.least + random.next() % spread;
        if random.in_a_hundred(script.late) {
            takes *= 17;
        }
        let (never, twice) = (random.in_a_hundred(script.never), random.in_a_hundred(script.twice));
        let comes_anyway = random.in_a_hundred(script.after_cancel);
        let said = self.say(site, random);
        let mut answers = vec![(takes, Answer { site, attempt, id, said, comes_anyway })];
        if twice {
            let (said, later) = (self.say(site, random), random.next() % spread);
            answers.push((takes + later, Answer { site, attempt, id, said, comes_anyway }));
        }
        let is_stalled =
            self.model.sites[site].plan.stall.is_some_and(|it| it.holds(path.channel, self.now));
        if never || is_stalled {
            answers.clear();
        }
        self.request(site, (attempt, answers), id, path.channel, random);
    }

    /// Decides what a call says.
    fn say(&mut self, site: usize, random: &mut Random) -> Said {
        let script = self.model.sites[site].plan.script;
        let now = self.now;
        if let Some(bucket) = &mut self.hidden[site]
            && !bucket.try_take(now)
        {
            let wait = self.model.sites[site].plan.hidden.map_or(1, |it| it.0 / it.1);
            return Said::Failure { asks: Asks::Yes, after: Some(wait), pause: Some(wait) };
        }
        let mut rest = random.below(100);
        let mut is = |cases: usize| {
            let found = rest < cases;
            rest = if found { usize::MAX } else { rest - cases };
            found
        };
        let failure = |asks, after, pause| Said::Failure { asks, after, pause };
        if is(script.fails) {
            return failure(Asks::No, None, None);
        }
        if is(script.retries) {
            let is_known = random.in_a_hundred(60);
            return failure(if is_known { Asks::Yes } else { Asks::IfRepeatable }, None, None);
        }
        if is(script.says_when) {
            return failure(Asks::Yes, Some(random.next() % (script.most + 1)), None);
        }
        if is(script.pauses) {
            let pause = random.next() % 333_333_333;
            return failure(Asks::Yes, Some(pause), Some(pause));
        }
        let retry = is(script.returns_retry);
        let count = if random.in_a_hundred(script.nothing) {
            0
        } else if random.in_a_hundred(script.several) {
            2 + u32::try_from(random.below(2)).unwrap_or_default()
        } else {
            1
        };
        self.next_serial += 1;
        Said::Results { serial: self.next_serial, count, retry }
    }

    pub(super) fn answer(&mut self, takes: u64, answer: Answer) {
        self.next_answer += 1;
        self.answers.insert((self.now + takes, self.next_answer), answer);
    }

    /// A function is asked what a row puts out.
    pub(super) fn asked(&mut self, site: usize, attempt: AttemptId, path: &Path) {
        let checked = self.model.asked(site, path, self.now);
        let Some(id) = self.breaks(checked) else { return };
        self.note(What::Asked { site, row: path.row, id });
        let random = &mut Random(choice(self.scenario.seed, site, id, attempt.attempt));
        let fails = random.in_a_hundred(30);
        self.next_serial += 1;
        let said = if fails {
            Said::Failure { asks: Asks::No, after: None, pause: None }
        } else {
            Said::Results { serial: self.next_serial, count: 1, retry: false }
        };
        // Some are asked for longer than a part lasts.
        let longest = self.model.sites[site].plan.script.most;
        let most = if random.in_a_hundred(50) { longest * 7 + 1 } else { 1_000 };
        self.answer(random.next() % most, Answer { site, attempt, id, said, comes_anyway: true });
    }

    pub(super) fn cancelled(&mut self, site: usize, attempt: AttemptId) {
        if self.cached[site].is_none() {
            let checked = self.model.cancelled(site, attempt, self.now);
            self.breaks(checked);
            self.note(What::Cancelled { site, attempt });
        }
        if let Some(requests) = &mut self.requests[site] {
            requests.cancel(attempt);
        }
        self.cancelled.insert((site, attempt));
    }

    /// Forgets calls of a task that is gone.
    pub fn forget_calls(&mut self) {
        self.answers.clear();
        self.cancelled.clear();
        self.cached.iter_mut().flatten().for_each(Cache::forget_calls);
        self.requests.iter_mut().flatten().for_each(Requests::restart);
        self.requested.clear();
        self.replies.iter_mut().for_each(|it| *it = None);
    }
}

fn failed_call(
    attempt: AttemptId,
    asks: Asks,
    after: Option<u64>,
    pause: Option<u64>,
) -> FailedCall {
    let failure = Box::new(CallFailure::new(ErrorKind::UserFunctionFailed, "is down"));
    let retry = match (asks, after) {
        (Asks::No, _) => Retry::No,
        (Asks::IfRepeatable, _) => Retry::IfRepeatable,
        (Asks::Yes, None) => Retry::Yes,
        (Asks::Yes, Some(nanos)) => Retry::After(Duration::from_nanos(nanos)),
        (Asks::InPart(records) | Asks::LeftOut(records), _) => Retry::InPart { records },
    };
    let sign = match asks {
        Asks::LeftOut(_) => CallSign::NotCalled,
        _ if pause.is_some() => CallSign::Overloaded,
        _ => retry.sign(),
    };
    let pause = pause.map(Duration::from_nanos);
    FailedCall { sign, pause, ..FailedCall::new(attempt, failure, retry) }
}
