// SPDX-License-Identifier: Apache-2.0
//! Runs the requests of one Spark task, of many rows each.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::AttemptId;
use sparkawait_task::cause::Cause;
use sparkawait_task::error::{CallFailure, StartError, TaskError};
use sparkawait_task::function::{Call, Calls};
use sparkawait_task::native::Start;
use sparkawait_task::worker::{Command, Commands, Worker};
use tokio::time::{Instant, sleep_until};

use super::item::Item;
use super::items::ItemReader;
use super::templates::{BatchTemplates, Head, ItemRows};
use super::waiting::{Batch, LineKey, Most, Waiting};
use crate::failure::{About, Failure};
use crate::http::answers::Answers;
use crate::http::call::{CallRules, EndedCall, Outcome, call};
use crate::http::clients::Clients;
use crate::http::watch::{Watch, Watched, next_tick};

/// Names a request while it is under way.
type RequestId = u64;

type Running = FuturesUnordered<Watched<EndedCall<RequestId>>>;

/// What a batch engine is made of.
pub(crate) struct BatchParts {
    pub(crate) clients: Arc<Clients>,
    pub(crate) templates: BatchTemplates,
    pub(crate) rules: CallRules,
    pub(crate) answers: Answers,
    pub(crate) items: ItemReader,
    /// Requests at a time.
    pub(crate) requests: usize,
    pub(crate) splits: bool,
}

/// The rows that were not answered: those that wait, and those of requests that are under way.
pub(crate) struct BatchEngine {
    clients: Arc<Clients>,
    templates: BatchTemplates,
    rules: Arc<CallRules>,
    answers: Answers,
    items: ItemReader,
    most_requests: usize,
    splits: bool,
    waiting: Waiting,
    running: Running,
    sent: HashMap<RequestId, Sent>,
    next: RequestId,
    ended: Vec<(AttemptId, Outcome)>,
}

/// A batch whose rows are asked for, by one request after the other if it was divided.
struct Sent {
    line: LineKey,
    head: Arc<Head>,
    /// The rows of the request that is under way.
    items: Vec<Item>,
    /// Those of the requests that are still to be made.
    parts: VecDeque<Vec<Item>>,
    /// Rows that nobody waits for any more.
    cancelled: HashSet<AttemptId>,
    watch: Arc<Watch>,
}

impl BatchEngine {
    /// Starts the function of one task.
    pub(crate) fn start(parts: BatchParts, most: Most, start: &Start) -> Worker {
        let BatchParts { clients, templates, rules, answers, items, requests, splits } = parts;
        let engine = Self {
            clients,
            templates,
            rules: Arc::new(rules),
            answers,
            items,
            most_requests: requests,
            splits,
            waiting: Waiting::new(most),
            running: FuturesUnordered::new(),
            sent: HashMap::new(),
            next: 0,
            ended: Vec::new(),
        };
        let replies = start.replies.clone();
        Worker::start(&start.runtime, "http", replies, |commands| engine.run(commands))
    }

    /// Serves commands until the function is closed; then all requests end with it.
    async fn run(mut self, mut commands: Commands) {
        let mut ticks = self.rules.clock.interval();
        loop {
            // Items that no request is free for are looked at when one ends.
            let due = self.waiting.next_due().filter(|_| self.sent.len() < self.most_requests);
            let done = tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(command) => self.obey(command),
                    None => return,
                },
                Some(ended) = self.running.next(), if !self.running.is_empty() => self.end(ended),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => Ok(()),
                () = next_tick(&mut ticks), if !self.running.is_empty() => {
                    self.rules.clock.tick(self.sent.values().map(|it| &it.watch));
                    Ok(())
                }
            };
            let done = done.and_then(|()| self.take_what_is_there(&mut commands));
            if let Err(error) = done.and_then(|()| self.go_on()) {
                self.answers.replies.fail(error);
                return;
            }
        }
    }

    /// Takes all that is there, before a request is filled and replies are answered.
    fn take_what_is_there(&mut self, commands: &mut Commands) -> Result<(), TaskError> {
        while let Ok(command) = commands.try_recv() {
            self.obey(command)?;
        }
        while let Some(Some(ended)) = self.running.next().now_or_never() {
            self.end(ended)?;
        }
        Ok(())
    }

    fn go_on(&mut self) -> Result<(), TaskError> {
        let now = Instant::now();
        self.waiting.expire(now);
        while self.sent.len() < self.most_requests
            && let Some(batch) = self.waiting.take(now)
        {
            self.send(batch);
        }
        self.answers.send(std::mem::take(&mut self.ended))
    }

    fn obey(&mut self, command: Command) -> Result<(), TaskError> {
        match command {
            Command::Invoke(calls) => self.add(&calls),
            Command::Cancel(cancelled) => {
                self.cancel(&cancelled);
                Ok(())
            }
        }
    }

    /// Has the rows of a burst wait for their requests.
    fn add(&mut self, calls: &Calls) -> Result<(), TaskError> {
        // The columns were checked at the start, so this fails for no user.
        let internal = |error: StartError| TaskError::Internal(error.message);
        let Self { templates, waiting, clients, ended, .. } = self;
        let rows = calls.batches.iter().map(|batch| templates.rows(batch).map_err(internal));
        let mut rows = rows.collect::<Result<Vec<_>, _>>()?;
        let now = Instant::now();
        for call in &calls.calls {
            let rows = &mut rows[call.batch as usize];
            match add_row(rows, calls, call, clients, waiting, now) {
                Ok(true) => {}
                Ok(false) => ended.push((call.attempt, Outcome::NullKey)),
                Err(failed) => ended.push((call.attempt, Outcome::Failed(Box::new(failed)))),
            }
        }
        Ok(())
    }

    fn send(&mut self, Batch { line, head, items }: Batch) {
        let attempts: Vec<AttemptId> = items.iter().map(|it| it.attempt).collect();
        self.answers.replies.started(&attempts);
        self.next += 1;
        let (parts, cancelled, watch) = (VecDeque::new(), HashSet::new(), Watch::new());
        let sent = Sent { line, head, items, parts, cancelled, watch };
        self.sent.insert(self.next, sent);
        self.request(self.next);
    }

    /// Makes the request for its rows.
    fn request(&mut self, id: RequestId) {
        let Some(sent) = self.sent.get_mut(&id) else { return };
        if let Some(first) = sent.items.first() {
            self.answers.replies.requested(first.attempt);
        }
        let (clients, rules) = (Arc::clone(&self.clients), Arc::clone(&self.rules));
        let watch = Watch::new();
        sent.watch = Arc::clone(&watch);
        let future = if let Some(request) = sent.head.request(&sent.items) {
            call(clients, rules, Arc::clone(&watch), id, request).boxed()
        } else {
            let (name, outcome, status, left) = (id, no_request(), None, Vec::new());
            std::future::ready(EndedCall { name, outcome, status, left }).boxed()
        };
        self.running.push(Watched::new(watch, future));
    }

    fn end(&mut self, ended: Option<EndedCall<RequestId>>) -> Result<(), TaskError> {
        // Of what was aborted nobody waits for anything.
        let Some(EndedCall { name: id, outcome, status, left }) = ended else { return Ok(()) };
        let Some(sent) = self.sent.get_mut(&id) else { return Ok(()) };
        let items = std::mem::take(&mut sent.items);
        for item in &items {
            self.answers.note_status(item.attempt, status);
        }
        // Of a request for many rows the last one that is answered tells.
        let last = items.iter().rev().find(|it| !sent.cancelled.contains(&it.attempt));
        if let Some(last) = last {
            self.answers.note_left(last.attempt, left);
        }
        match outcome {
            Outcome::Failed(failed)
                if self.splits && failed.about == About::Rows && items.len() > 1 =>
            {
                let (one, other) = items.split_at(items.len() / 2);
                sent.parts.extend([one.to_vec(), other.to_vec()]);
            }
            outcome => self.items.divide(&items, outcome, &mut self.ended)?,
        }
        self.next_part(id);
        Ok(())
    }

    /// Asks for the next rows of a batch; makes room for another one if there are none.
    fn next_part(&mut self, id: RequestId) {
        let Some(sent) = self.sent.get_mut(&id) else { return };
        while let Some(mut part) = sent.parts.pop_front() {
            part.retain(|it| !sent.cancelled.contains(&it.attempt));
            if !part.is_empty() {
                sent.items = part;
                return self.request(id);
            }
        }
        if let Some(sent) = self.sent.remove(&id) {
            self.waiting.ended(&sent.line);
        }
    }

    /// Forgets rows, and ends the requests that have none left.
    fn cancel(&mut self, cancelled: &[AttemptId]) {
        self.waiting.remove(cancelled, Instant::now());
        let mut left = Vec::new();
        for (id, sent) in &mut self.sent {
            let all = sent.items.iter().chain(sent.parts.iter().flatten());
            let is_ours = |it: &AttemptId| cancelled.binary_search(it).is_ok();
            let ours = all.map(|it| it.attempt).filter(is_ours);
            sent.cancelled.extend(ours);
            if sent.items.iter().all(|it| sent.cancelled.contains(&it.attempt)) {
                sent.watch.end();
                left.push(*id);
            }
        }
        for id in left {
            self.next_part(id);
        }
    }
}

/// Has a row wait for its request; returns false if a null leaves it without one.
fn add_row(
    rows: &mut ItemRows<'_>,
    calls: &Calls,
    call: &Call,
    clients: &Clients,
    waiting: &mut Waiting,
    now: Instant,
) -> Result<bool, Failure> {
    let row = call.row as usize;
    let Some(texts) = rows.texts(row)? else { return Ok(false) };
    let line = (calls.channel(call), rows.head_key(row)?);
    let item = Item { attempt: call.attempt, text: texts.item, id: texts.id, key: texts.key };
    waiting.add(line, item, now, || rows.head(clients, row))
}

fn no_request() -> Outcome {
    let text = "http: a request cannot be made out of its parts";
    let failure = CallFailure::new(ErrorKind::Internal, text);
    Outcome::Failed(Box::new(Failure::lasting(Cause::NotSent, failure)))
}
