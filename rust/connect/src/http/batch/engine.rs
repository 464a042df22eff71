// SPDX-License-Identifier: Apache-2.0
//! Makes the requests of one Spark task, of many rows each.

use std::sync::Arc;

use sparkawait_core::ErrorKind;
use sparkawait_core::operator::{AttemptId, Retry};
use sparkawait_task::cause::Cause;
use sparkawait_task::error::{CallFailure, StartError, TaskError};
use sparkawait_task::function::{Call, Calls, Replies};
use sparkawait_task::shared::Lent;
use tokio::time::Instant;

use super::divided::{Divided, Expected};
use super::item::Item;
use super::items::ItemReader;
use super::templates::{BatchTemplates, Head, ItemRows};
use super::waiting::{Batch, Heads, Most};
use crate::failure::{About, Failure};
use crate::http::answers::{Answers, Ended};
use crate::http::call::{CallRules, EndedCall, Outcome, call};
use crate::http::clients::Clients;
use crate::http::watch::{Clock, Watch};
use crate::lines::Lines;
use crate::requests::{Asks, AwaitedCalls};

/// What the requests of a task share.
pub(crate) struct BatchEngine {
    pub(crate) clients: Lent<Arc<Clients>>,
    pub(crate) batched: Batched,
    pub(crate) rules: Arc<CallRules>,
    pub(crate) answers: Answers,
}

/// How rows become requests, and replies results of rows.
pub(crate) struct Batched {
    pub(crate) templates: BatchTemplates,
    pub(crate) items: ItemReader,
    pub(crate) most: Most,
    /// Whether rows at fault are looked for where a request fails.
    pub(crate) splits: bool,
    /// The rows of requests that have failed, as long as they are looked for.
    pub(crate) divided: Divided,
}

impl Asks for BatchEngine {
    type Rows = Heads;
    type Batch = Batch;
    type Ended = Ended;

    const NAME: &'static str = "http";

    fn replies(&self) -> &Replies {
        &self.answers.replies
    }

    fn add(&self, calls: &Calls, waiting: &mut Lines<Heads>) -> Result<(), TaskError> {
        // The columns were checked at the start, so this fails for no user.
        let internal = |error: StartError| TaskError::Internal(error.message);
        let rows =
            calls.batches.iter().map(|batch| self.batched.templates.rows(batch).map_err(internal));
        let mut rows = rows.collect::<Result<Vec<_>, _>>()?;
        let (now, mut ended) = (Instant::now(), Ended::default());
        let mut expected = self.batched.divided.expected();
        for call in &calls.calls {
            let rows = &mut rows[call.batch as usize];
            let outcome = match self.add_row(rows, calls, call, &mut expected, waiting, now) {
                Ok(true) => continue,
                Ok(false) => Outcome::NullKey,
                Err(failed) => Outcome::Failed(Box::new(failed)),
            };
            ended.outcomes.push((call.attempt, outcome));
        }
        drop(expected);
        self.answers.send(ended)
    }

    fn take(&self, rows: &mut Heads, _requests: usize) -> Result<Batch, TaskError> {
        let none = || TaskError::Internal("http: a request without rows".to_owned());
        rows.take(&self.batched.most, Instant::now()).ok_or_else(none)
    }

    fn remove(&self, rows: &mut Heads, cancelled: &[AttemptId]) {
        rows.remove(cancelled, &self.batched.most, Instant::now());
    }

    fn attempts(batch: &Batch) -> &[AttemptId] {
        &batch.attempts
    }

    async fn ask(
        self: Arc<Self>,
        Batch { head, mut items, attempts, .. }: Batch,
        wanted: Arc<AwaitedCalls>,
    ) -> Result<Ended, TaskError> {
        self.answers.replies.started(&attempts);
        if let Some(flags) = wanted.flags(&attempts) {
            let mut flags = flags.into_iter();
            items.retain(|_| flags.next().unwrap_or_default());
        }
        let Some(first) = items.first().map(|it| it.attempt) else { return Ok(Ended::default()) };
        self.answers.replies.requested(first);
        let ended = tokio::select! {
            biased;
            () = wanted.none_of(&attempts) => return Ok(Ended::default()),
            ended = self.request(&head, &items, first) => ended,
        };
        self.end(&items, ended, &wanted)
    }

    fn answer(&self, ended: Vec<Ended>) -> Result<(), TaskError> {
        let together = ended.into_iter().reduce(|mut all, it| {
            all.extend(it);
            all
        });
        together.map_or(Ok(()), |it| self.answers.send(it))
    }
}

impl BatchEngine {
    /// Has a row wait for its request; returns false if a null leaves it without one.
    fn add_row(
        &self,
        rows: &mut ItemRows<'_>,
        calls: &Calls,
        call: &Call,
        expected: &mut Expected,
        waiting: &mut Lines<Heads>,
        now: Instant,
    ) -> Result<bool, Failure> {
        let row = call.row as usize;
        let part = expected.take(call.attempt);
        let Some(texts) = rows.texts(row)? else { return Ok(false) };
        let name = rows.head_key(row)?;
        let item = Item { attempt: call.attempt, text: texts.item, id: texts.id, key: texts.key };
        waiting.change(calls.channel(call), |heads| {
            heads.add(name, part, item, &self.batched.most, now, || rows.head(&self.clients, row))
        })
    }

    /// Makes the request for some rows.
    async fn request(&self, head: &Head, items: &[Item], first: AttemptId) -> EndedCall {
        let Some(request) = head.request(items) else {
            let (status, left) = (None, Vec::new());
            return EndedCall { attempt: first, outcome: no_request(), status, left };
        };
        let clock = Arc::new(Clock::new(self.rules.silence));
        let (clients, rules) = (Arc::clone(&self.clients), Arc::clone(&self.rules));
        clock.run(call(clients, rules, Watch::new(&clock), first, request)).await
    }

    /// Divides what a request came to among its rows.
    fn end(
        &self,
        items: &[Item],
        EndedCall { outcome, status, left, .. }: EndedCall,
        wanted: &AwaitedCalls,
    ) -> Result<Ended, TaskError> {
        let mut ended = Ended::default();
        for item in items {
            self.answers.note_status(item.attempt, status, &mut ended);
        }
        if !left.is_empty()
            // Of a request for many rows the last one that is answered tells.
            && let Some(last) = awaited(items, wanted).last()
        {
            self.answers.note_left(*last, left, &mut ended);
        }
        match outcome {
            Outcome::Failed(failed)
                if self.batched.splits && failed.about == About::Rows && items.len() > 1 =>
            {
                self.call_again(&awaited(items, wanted), &failed, &mut ended);
            }
            outcome => self.batched.items.divide(items, outcome, &mut ended.outcomes)?,
        }
        Ok(ended)
    }

    /// Has the rows of a request that has failed called for again, those of each half together.
    fn call_again(&self, attempts: &[AttemptId], failed: &Failure, ended: &mut Ended) {
        let (one, other) = attempts.split_at(attempts.len() / 2);
        for part in [one, other].into_iter().filter(|it| !it.is_empty()) {
            // Before the operator hears of it: they may come back at once.
            self.batched.divided.expected().add(part);
            let records = u32::try_from(part.len()).unwrap_or(u32::MAX);
            let all = std::iter::once(records).chain(std::iter::repeat(0));
            ended.outcomes.extend(part.iter().zip(all).map(|(attempt, records)| {
                let retry = Retry::InPart { records };
                let again = Failure { retry, sign: retry.sign(), ..failed.clone() };
                (*attempt, Outcome::Failed(Box::new(again)))
            }));
        }
    }
}

/// Returns the calls of items that somebody waits for.
fn awaited(items: &[Item], wanted: &AwaitedCalls) -> Vec<AttemptId> {
    let all: Vec<AttemptId> = items.iter().map(|it| it.attempt).collect();
    let Some(flags) = wanted.flags(&all) else { return all };
    all.into_iter().zip(flags).filter_map(|(it, is_wanted)| is_wanted.then_some(it)).collect()
}

fn no_request() -> Outcome {
    let text = "http: a request cannot be made out of its parts";
    let failure = CallFailure::new(ErrorKind::Internal, text);
    Outcome::Failed(Box::new(Failure::lasting(Cause::NotSent, failure)))
}
