// SPDX-License-Identifier: Apache-2.0
//! Functions that make one request for several calls.

use std::sync::Arc;

use sparkawait_core::operator::AttemptId;
use sparkawait_runtime::OperatorMetrics;

use super::{Answer, Answers, Letter, World};
use crate::model::requests::{Calls, Requests};
use crate::random::Random;
use crate::trace::{Asks, Id, Said, What, choice};

impl World {
    /// A call is made by a request, at once or later.
    pub(super) fn request(
        &mut self,
        site: usize,
        call: (AttemptId, Answers),
        id: Id,
        channel: Option<i64>,
        random: &mut Random,
    ) {
        self.make_requests();
        let Some(requests) = &mut self.requests[site] else {
            return self.answer_later(call.1);
        };
        let joined = requests.join(call, id, channel, self.now, random);
        if let Some(made) = self.breaks(joined) {
            self.make_request(site, made);
        }
        self.make_requests();
    }

    fn answer_later(&mut self, answers: Answers) {
        for (takes, answer) in answers {
            self.answer(takes, answer);
        }
    }

    /// Makes the requests that are due.
    fn make_requests(&mut self) {
        for site in 0..self.requests.len() {
            let now = self.now;
            while let Some(made) = self.requests[site].as_mut().and_then(|it| it.due(now)) {
                self.make_request(site, made);
            }
        }
    }

    fn make_request(&mut self, site: usize, mut calls: Calls<Answers>) {
        let Some(first) = calls.first().map(|it| it.0) else { return };
        self.note(What::Requested { site, first, calls: calls.len() });
        self.requested.push((site, first));
        let random = &mut Random(choice(self.scenario.seed, site, self.now, first.attempt));
        let divided = self.requests[site].as_ref().map_or(0, Requests::divided);
        // One that is not answered does not fail either.
        let is_answered = calls.iter().all(|(_, answers)| !answers.is_empty());
        if calls.len() > 1 && is_answered && random.in_a_hundred(divided) {
            return self.divide(site, calls);
        }
        if calls.len() > 1
            && is_answered
            && self.may_leave_out(site)
            && random.in_a_hundred(divided)
        {
            let left_out = calls.split_off(1);
            self.call_again(site, left_out, Asks::LeftOut);
        }
        for (_, answers) in calls {
            self.answer_later(answers);
        }
    }

    /// A request fails, and asks for another call for the rows of each half.
    fn divide(&mut self, site: usize, mut calls: Calls<Answers>) {
        let second = calls.split_off(calls.len() / 2);
        for part in [calls, second] {
            self.call_again(site, part, Asks::InPart);
        }
    }

    /// Whether a request may be for one of its rows alone: nothing else stands beside its calls, or counts
    /// what they cost.
    fn may_leave_out(&self, site: usize) -> bool {
        let plan = &self.model.sites[site].plan;
        plan.cache.is_none() && plan.hedge.is_none() && plan.limits.is_empty()
    }

    /// Rows of a request are called for again together.
    fn call_again(&mut self, site: usize, part: Calls<Answers>, asks: impl Fn(u32) -> Asks) {
        let takes = self.model.sites[site].plan.script.least;
        let mut records = u32::try_from(part.len()).unwrap_or(u32::MAX);
        let answers: Vec<Answer> =
            part.into_iter().filter_map(|(_, it)| Some(it.into_iter().next()?.1)).collect();
        if let Some(requests) = &mut self.requests[site] {
            requests.divide(answers.iter().map(|it| it.id));
        }
        for answer in answers {
            let asks = asks(std::mem::take(&mut records));
            let said = Said::Failure { asks, after: None, pause: None };
            self.answer(takes, Answer { said, ..answer });
        }
    }

    /// Tells of those that were made, before any of their calls is answered.
    pub(super) fn requested_letters(&mut self) -> Vec<Letter> {
        self.make_requests();
        let made = std::mem::take(&mut self.requested);
        let letter = |(site, first): (usize, AttemptId)| {
            Some(Letter::Requested(self.replies[site].clone()?, first))
        };
        made.into_iter().filter_map(letter).collect()
    }

    /// When the next one is made.
    pub(super) fn next_request(&self) -> Option<u64> {
        self.requests.iter().flatten().filter_map(Requests::next_due).min()
    }

    /// Compares permits that operators have counted with the requests that were made.
    pub fn compare_requests(&mut self, metrics: &[OperatorMetrics]) {
        let (mut position, mut site) = (0, 0);
        for plan in &Arc::clone(&self.scenario).operators {
            position += usize::from(plan.is_fan_out);
            for calls in &plan.calls {
                let limits = metrics[position].limits;
                let counted = limits.map_or(0, |it| it.permits[calls.limits.len()]);
                let seen = self.requests[site].as_ref().and_then(Requests::permits);
                if let Some(seen) = seen.filter(|it| *it != counted) {
                    let what = format!("{seen} of function {site} seen, {counted} counted");
                    self.fail("each request pays once", what);
                }
                (position, site) = (position + 1, site + 1);
            }
        }
    }
}
