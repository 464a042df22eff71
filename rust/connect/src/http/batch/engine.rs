// SPDX-License-Identifier: Apache-2.0
//! Makes the requests of one Spark task, of many rows each.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::AttemptId;
use sparkawait_core::policy::CallSign;
use sparkawait_task::cause::Cause;
use sparkawait_task::error::{CallFailure, StartError, TaskError};
use sparkawait_task::function::{Call, Calls, Replies};
use sparkawait_task::shared::Lent;
use tokio::time::Instant;

use super::companies::{Back, Companies, Company, Expected, MOST, MOST_BYTES, Sent, Suspicion};
use super::item::{Item, MOST_HALVINGS, Overlong, halved, says_too_long};
use super::items::ItemReader;
use super::templates::{BatchTemplates, Head, ItemRows};
use super::waiting::{Batch, Doubt, Heads, Most, Seat, Source};
use crate::failure::{About, Failure, plain_failure};
use crate::http::again::SentAgain;
use crate::http::answers::{Answers, Ended};
use crate::http::call::{CallRules, EndedCall, Outcome, call};
use crate::http::clients::Clients;
use crate::http::reply::Outgoing;
use crate::http::watch::{Begun, Clock, Watch};
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
    /// What happens to a text that is too long alone.
    pub(crate) overlong: Overlong,
    /// Whether the service knows a request again by its key.
    pub(crate) is_keyed: bool,
    /// Whether two requests do what one does, because of that or by their method.
    pub(crate) is_repeatable: bool,
    /// The rows of requests that are not answered for good.
    pub(crate) companies: Companies,
    /// What is known of those that are sent again.
    pub(crate) again: Mutex<SentAgain>,
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
        let mut expected = self.batched.companies.expected();
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
        Batch { source, mut items, mut attempts }: Batch,
        wanted: Arc<AwaitedCalls>,
    ) -> Result<Ended, TaskError> {
        if let Source::Items(head, Doubt::Suspected(suspicion)) = &source {
            return self.look_for_rows_at_fault(head, suspicion, &items, &wanted).await;
        }
        if let Some(flags) = wanted.flags(&attempts) {
            let mut flags = flags.into_iter();
            items.retain(|_| flags.next().unwrap_or_default());
            attempts = items.iter().map(|it| it.attempt).collect();
        }
        let (sent, is_proven) = match &source {
            _ if items.is_empty() => return Ok(Ended::default()),
            Source::Sent(sent) => {
                let (request, items) = (sent.request.clone(), sent.items_of(&items));
                (Sent { request, items }, false)
            }
            Source::Items(head, doubt) => match head.request(&items) {
                Some(request) => (Sent::new(request, items), matches!(doubt, Doubt::OfRows)),
                None => return Ok(unmade(&items)),
            },
        };
        let sent = Arc::new(sent);
        let Some(ended) = self.send(&sent, &attempts, &wanted).await else {
            return Ok(Ended::default());
        };
        self.end(&sent, attempts, is_proven, ended, &wanted)
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
        let (row, attempt) = (call.row as usize, call.attempt);
        let back = expected.take(attempt);
        let its_seat = back.as_ref().map(|it| Seat {
            company: it.number,
            is_whole: it.is_whole,
            is_patient: matches!(it.company, Company::Sent(_) | Company::Again),
        });
        let (most, channel) = (&self.batched.most, calls.channel(call));
        let halvings = match &back {
            Some(Back { company: Company::Halved(times), .. }) => *times,
            _ => 0,
        };
        let doubt = match back.map(|Back { company, .. }| company) {
            Some(Company::Lost) => return Err(lost()),
            Some(Company::Sent(sent)) => {
                let (none, item) = (Bytes::new(), Item::of_sent(attempt));
                let open = || Ok(Some(Source::Sent(sent)));
                return waiting
                    .change(channel, |heads| heads.add(none, its_seat, item, most, now, open));
            }
            Some(Company::Suspected(suspicion)) => Doubt::Suspected(suspicion),
            Some(Company::Part { is_proven: true } | Company::Halved(_)) => Doubt::OfRows,
            Some(Company::Part { is_proven: false } | Company::Again) | None => Doubt::Any,
        };
        let Some(texts) = rows.texts(row)? else { return Ok(false) };
        let name = rows.head_key(row)?;
        let text = if halvings > 0 { halved(&texts.item, halvings) } else { texts.item };
        let item = Item { attempt, text, id: texts.id, key: texts.key, halvings };
        waiting.change(channel, |heads| {
            heads.add(name, its_seat, item, most, now, || {
                let head = rows.head(&self.clients, row)?;
                Ok(head.map(|head| Source::Items(Arc::new(head), doubt)))
            })
        })
    }

    /// Sends a request for those of its rows that have come, and returns what it came to; `None` if
    /// nobody waits for any of them any more.
    ///
    /// Until it is answered, rows that come back come back to it: who gives up waiting says so to
    /// the operator first.
    async fn send(
        &self,
        sent: &Arc<Sent>,
        attempts: &[AttemptId],
        wanted: &AwaitedCalls,
    ) -> Option<EndedCall> {
        let first = *attempts.first()?;
        if self.batched.is_keyed {
            self.batched.companies.expected().expect_sent(sent, attempts);
        }
        self.answers.replies.requested(first);
        let clock = Arc::new(Clock::new(self.rules.silence));
        let (clients, rules) = (Arc::clone(&self.clients), Arc::clone(&self.rules));
        let (begun, replies) = (Arc::<Begun>::default(), &self.answers.replies);
        let watch = Watch::saying(&clock, Some((Arc::clone(&begun), first)));
        let known = (first, self.again().take(attempts));
        let request = clock.run(call(clients, rules, watch, known, sent.request.clone()));
        tokio::select! {
            biased;
            () = wanted.none_of(attempts) => None,
            ended = begun.telling(|_| replies.started(attempts), request) => Some(ended),
        }
    }

    /// Notes what a response says beside its body, for the rows of `attempts` that somebody waits for.
    fn note(
        &self,
        attempts: &[AttemptId],
        EndedCall { status, left, .. }: &mut EndedCall,
        ended: &mut Ended,
    ) {
        for attempt in attempts {
            self.answers.note_status(*attempt, *status, ended);
        }
        // Of a request for many rows the last one that is answered tells.
        if let Some(last) = attempts.last().filter(|_| !left.is_empty()) {
            self.answers.note_left(*last, std::mem::take(left), ended);
        }
    }

    /// Divides what a request came to among its rows that have come.
    fn end(
        &self,
        sent: &Arc<Sent>,
        came: Vec<AttemptId>,
        is_proven: bool,
        mut call: EndedCall,
        wanted: &AwaitedCalls,
    ) -> Result<Ended, TaskError> {
        let (mut ended, is_all) = (Ended::default(), came.len() == sent.items.len());
        let awaited = awaited(came, wanted);
        self.note(&awaited, &mut call, &mut ended);
        match call.outcome {
            Outcome::Failed(failed) if call.again.is_some() => {
                self.again().note(&awaited, call.again.unwrap_or_default());
                self.expect(sent, &awaited, is_proven);
                call_together(&awaited, &failed, &mut ended);
            }
            Outcome::Failed(failed) if self.batched.splits && sent.items.len() > 1 => {
                match failed.about {
                    About::Rows => self.call_halves(&awaited, is_proven, &failed, &mut ended),
                    About::AnsweredRows if self.batched.is_repeatable => {
                        self.call_halves(&awaited, is_proven, &failed, &mut ended);
                    }
                    About::RowsOrCall if is_proven => {
                        self.call_halves(&awaited, true, &failed, &mut ended);
                    }
                    About::RowsOrCall => self.suspect(&awaited, *failed, sent, &mut ended),
                    About::AnsweredRows | About::Call | About::Task => {
                        self.settle(sent, &awaited, Outcome::Failed(failed), &mut ended)?;
                    }
                }
            }
            Outcome::Failed(failed)
                if !awaited.is_empty() && self.is_to_be_halved(sent, &failed) =>
            {
                let company = Company::Halved(sent.items[0].halvings + 1);
                self.call_part(&awaited, company, &failed, &mut ended);
            }
            outcome => self.settle(sent, &awaited, outcome, &mut ended)?,
        }
        if !is_all {
            ended.outcomes.retain(|(attempt, _)| awaited.contains(attempt));
        }
        Ok(ended)
    }

    /// Ends the rows of a request with what it came to, after which those that are called again go
    /// together again.
    fn settle(
        &self,
        sent: &Arc<Sent>,
        awaited: &[AttemptId],
        outcome: Outcome,
        ended: &mut Ended,
    ) -> Result<(), TaskError> {
        match &outcome {
            Outcome::Failed(failed) if self.comes_back(failed) => self.expect(sent, awaited, false),
            _ if self.batched.is_keyed => self.batched.companies.expected().forget(awaited),
            _ => {}
        }
        self.batched.items.divide(&sent.items, outcome, &mut ended.outcomes)
    }

    /// Whether rows that failed so are called again, if any attempts are left.
    fn comes_back(&self, failed: &Failure) -> bool {
        failed.may_pass() && failed.cause.may_repeat(self.batched.is_repeatable)
    }

    /// Expects the rows of a request that has failed: as it was where the service knows it again, and else
    /// with what was known of them.
    fn expect(&self, sent: &Arc<Sent>, attempts: &[AttemptId], is_proven: bool) {
        let mut expected = self.batched.companies.expected();
        let company = match sent.items.first().map_or(0, |it| it.halvings) {
            _ if self.batched.is_keyed => return expected.expect_sent(sent, attempts),
            0 if is_proven => Company::Part { is_proven },
            0 => Company::Again,
            halvings => Company::Halved(halvings),
        };
        expected.expect(attempts, company);
    }

    /// Whether a request failed because the text of its only row is too long, and goes again with half of it.
    fn is_to_be_halved(&self, sent: &Sent, failed: &Failure) -> bool {
        let is_open = self.batched.overlong == Overlong::IsHalved && failed.about == About::Rows;
        let is_one = sent.items.len() == 1 && sent.items[0].halvings < MOST_HALVINGS;
        is_open && is_one && says_too_long(&failed.call.message)
    }

    /// Has the rows of a request that has failed because of some called for again, those of each half
    /// together.
    fn call_halves(
        &self,
        attempts: &[AttemptId],
        is_proven: bool,
        failed: &Failure,
        ended: &mut Ended,
    ) {
        let (one, other) = attempts.split_at(attempts.len() / 2);
        for part in [one, other].into_iter().filter(|it| !it.is_empty()) {
            self.call_part(part, Company::Part { is_proven }, failed, ended);
        }
    }

    /// Has the rows of a request that has failed, perhaps because of some, called for again together.
    /// The first of them tells of the service, since nobody knows better.
    fn suspect(
        &self,
        attempts: &[AttemptId],
        failed: Failure,
        sent: &Arc<Sent>,
        ended: &mut Ended,
    ) {
        let (from, sign) = (ended.outcomes.len(), failed.sign);
        let suspicion = Arc::new(Suspicion { failed, sent: Arc::clone(sent) });
        let company = Company::Suspected(Arc::clone(&suspicion));
        self.call_part(attempts, company, &suspicion.failed, ended);
        if let Some((_, Outcome::Failed(first))) = ended.outcomes.get_mut(from) {
            first.sign = sign;
        }
    }

    /// Has rows called for again at once, together.
    fn call_part(&self, part: &[AttemptId], company: Company, failed: &Failure, ended: &mut Ended) {
        // Before the operator hears of it: they may come back at once.
        self.batched.companies.expected().expect(part, company);
        call_together(part, failed, ended);
    }

    /// Has rows called for in halves that were handed over, and that nobody was called for.
    fn call_left_out(&self, rest: &[AttemptId], failed: &Failure, ended: &mut Ended) {
        let from = ended.outcomes.len();
        let not_sent = Failure { cause: Cause::NotSent, ..failed.clone() };
        self.call_halves(rest, true, &not_sent, ended);
        for (_, outcome) in &mut ended.outcomes[from..] {
            if let Outcome::Failed(left_out) = outcome {
                left_out.sign = CallSign::NotCalled;
            }
        }
    }

    fn again(&self) -> MutexGuard<'_, SentAgain> {
        self.batched.again.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for some rows alone, in turn, of a request that has failed, where the service has not said why.
    /// Once one is answered, the service is well, and the rows are halved. If none is, they fail as their
    /// request did. Where only a connection has ended, nothing was said of the row, and another is asked for.
    async fn look_for_rows_at_fault(
        &self,
        head: &Head,
        suspicion: &Suspicion,
        items: &[Item],
        wanted: &AwaitedCalls,
    ) -> Result<Ended, TaskError> {
        let (mut ended, mut failed, mut is_well) = (Ended::default(), Vec::new(), false);
        let mut rest: Vec<AttemptId> = items.iter().map(|it| it.attempt).collect();
        let mut left = most_asked_alone(items.len());
        for index in spread(left, items.len()) {
            let (item, attempt) = (&items[index], [items[index].attempt]);
            if left == 0 {
                break;
            }
            if awaited(attempt.to_vec(), wanted).is_empty() {
                continue;
            }
            let Some(request) = head.request(std::slice::from_ref(item)) else {
                return Ok(unmade(items));
            };
            rest.retain(|it| *it != item.attempt);
            let sent = Arc::new(Sent::new(request, vec![item.clone()]));
            left -= 1;
            let Some(mut call) = self.send(&sent, &attempt, wanted).await else { continue };
            self.note(&attempt, &mut call, &mut ended);
            match call.outcome {
                Outcome::Failed(failure) if call.again.is_some() => {
                    self.again().note(&attempt, call.again.unwrap_or_default());
                    failed.push((sent, failure));
                    left += 1;
                }
                Outcome::Failed(failure) if !failure.about.is_of_rows() => {
                    let says_more = failure.about != About::RowsOrCall;
                    failed.push((sent, failure));
                    if says_more {
                        break;
                    }
                }
                outcome => {
                    is_well = true;
                    self.settle(&sent, &attempt, outcome, &mut ended)?;
                    break;
                }
            }
        }
        let rest = awaited(rest, wanted);
        if is_well {
            for (sent, failure) in failed {
                let attempt = [sent.items[0].attempt];
                self.settle(&sent, &attempt, Outcome::Failed(failure), &mut ended)?;
            }
            self.call_left_out(&rest, &suspicion.failed, &mut ended);
            return Ok(ended);
        }
        let failed = failed.into_iter().map(|(sent, it)| (sent.items[0].attempt, it)).collect();
        self.lay_to_service(suspicion, failed, rest, &mut ended);
        Ok(ended)
    }

    /// Fails rows as their request did, and those that were asked for alone as they did.
    fn lay_to_service(
        &self,
        suspicion: &Suspicion,
        failed: Vec<(AttemptId, Box<Failure>)>,
        rest: Vec<AttemptId>,
        ended: &mut Ended,
    ) {
        let all: Vec<AttemptId> =
            failed.iter().map(|it| it.0).chain(rest.iter().copied()).collect();
        if self.comes_back(&suspicion.failed) {
            self.expect(&suspicion.sent, &all, false);
        }
        let of_rest =
            Failure { sign: CallSign::NotCalled, pause: None, ..suspicion.failed.clone() };
        let rest = rest.into_iter().map(|it| (it, Box::new(of_rest.clone())));
        let all = failed.into_iter().chain(rest);
        ended.outcomes.extend(all.map(|(attempt, failure)| (attempt, Outcome::Failed(failure))));
    }
}

impl Sent {
    /// Makes it of a request that is there, and the items that are in it.
    fn new(request: Outgoing, mut items: Vec<Item>) -> Self {
        for item in &mut items {
            item.text = Bytes::new();
        }
        Self { request, items }
    }
}

/// Has rows called for again at once, together.
fn call_together(part: &[AttemptId], failed: &Failure, ended: &mut Ended) {
    let records = u32::try_from(part.len()).unwrap_or(u32::MAX);
    let all = std::iter::once(records).chain(std::iter::repeat(0));
    ended.outcomes.extend(part.iter().zip(all).map(|(attempt, records)| {
        (*attempt, Outcome::Failed(Box::new(failed.clone().that_is_sent_again(records))))
    }));
}

/// Returns how many rows of a request are asked for alone before its failure is laid to its service: where
/// there are more rows, more may be at fault.
fn most_asked_alone(rows: usize) -> usize {
    (rows.max(1).ilog2() as usize).max(2).min(rows)
}

/// Returns the positions of so many rows in the order in which they are asked for alone: some far apart, and then
/// the others.
fn spread(first: usize, rows: usize) -> impl Iterator<Item = usize> {
    let far = move |number: usize| number * rows / first;
    let is_far = move |row: &usize| (0..first).any(|it| far(it) == *row);
    (0..first).map(far).chain((0..rows).filter(move |it| !is_far(it)))
}

/// Returns those of some calls that somebody waits for.
fn awaited(attempts: Vec<AttemptId>, wanted: &AwaitedCalls) -> Vec<AttemptId> {
    let Some(flags) = wanted.flags(&attempts) else { return attempts };
    attempts.into_iter().zip(flags).filter_map(|(it, is_wanted)| is_wanted.then_some(it)).collect()
}

/// Makes the failure of a row whose request can be sent again only as it was, and is not known any more.
fn lost() -> Failure {
    let text = format!(
        "http: the request of the row may have been carried out, and cannot be sent again under its \
         key: the requests without an answer have more than {} MiB of bodies or {MOST} rows; make \
         requests smaller with `batch`, or fewer with `max_requests`",
        MOST_BYTES >> 20
    );
    Failure::lasting(Cause::Unknown, plain_failure(text))
}

/// Fails rows whose request cannot be made, which happens to no user.
fn unmade(items: &[Item]) -> Ended {
    let text = "http: a request cannot be made out of its parts";
    let failure = CallFailure::new(ErrorKind::Internal, text);
    let failure = Box::new(Failure::lasting(Cause::NotSent, failure));
    let outcomes = items.iter().map(|it| (it.attempt, Outcome::Failed(failure.clone())));
    let mut ended = Ended::default();
    ended.outcomes.extend(outcomes);
    ended
}
