// SPDX-License-Identifier: Apache-2.0
//! Runs the calls of one Spark task.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use sparkawait_core::operator::{AttemptId, Begins};
use sparkawait_task::error::{StartError, TaskError};
use sparkawait_task::function::{Call, Calls, Replies};
use sparkawait_task::native::Start;
use sparkawait_task::shared::Lent;
use sparkawait_task::worker::{Command, Commands, Worker};
use tokio::task::yield_now;

use super::again::SentAgain;
use super::answers::{Answers, Ended};
use super::call::{CallRules, EndedCall, Outcome, call};
use super::clients::Clients;
use super::request::RequestTemplates;
use super::watch::{Begun, Clock, Watch, Watched, next_tick};

/// Times that calls in progress may go on before those that ended are answered.
///
/// Responses that arrive together are decoded together, which costs less each.
const TURNS_OF_OTHERS: usize = 4;

/// The calls that were not answered.
///
/// A call starts when it comes: the operator hands over no more than there may be.
pub(super) struct Engine {
    clients: Lent<Arc<Clients>>,
    requests: RequestTemplates,
    rules: Arc<CallRules>,
    answers: Answers,
    clock: Arc<Clock>,
    /// Calls that begin, if anybody wants to know.
    begun: Option<Arc<Begun>>,
    running: FuturesUnordered<Watched<EndedCall>>,
    /// One for each running call.
    watches: HashMap<AttemptId, Arc<Watch>, RandomState>,
    again: SentAgain,
    ended: Ended,
}

impl Engine {
    /// Starts the function of one task.
    pub(super) fn start(
        clients: Lent<Arc<Clients>>,
        requests: RequestTemplates,
        rules: CallRules,
        answers: Answers,
        start: Start,
    ) -> Worker {
        let is_told = start.replies.begins() == Begins::WhenSaid;
        let engine = Self {
            begun: is_told.then(Arc::default),
            clients,
            requests,
            clock: Arc::new(Clock::new(rules.silence)),
            rules: Arc::new(rules),
            answers,
            running: FuturesUnordered::new(),
            watches: HashMap::default(),
            again: SentAgain::default(),
            ended: Ended::default(),
        };
        Worker::start(&start.runtime, "http", start.replies, |commands| engine.run(commands))
    }

    /// Serves commands until the function is closed; then all calls end with it.
    async fn run(mut self, mut commands: Commands) {
        let mut ticks = self.clock.interval();
        loop {
            let done = tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(command) => self.obey(command),
                    None => return,
                },
                Some(ended) = telling(
                    self.begun.as_deref(), &self.answers.replies, self.running.next(),
                ), if !self.running.is_empty() => {
                    self.end(ended);
                    self.collect().await;
                    Ok(())
                }
                () = next_tick(&mut ticks), if !self.running.is_empty() => {
                    self.clock.tick(self.watches.values());
                    Ok(())
                }
            };
            let ended = std::mem::take(&mut self.ended);
            if let Err(error) = done.and_then(|()| self.answers.send(ended)) {
                self.answers.replies.fail(error);
                return;
            }
        }
    }

    fn obey(&mut self, command: Command) -> Result<(), TaskError> {
        match command {
            Command::Invoke(calls) => self.start_calls(&calls),
            Command::Cancel(cancelled) => {
                for watch in cancelled.iter().filter_map(|it| self.watches.remove(it)) {
                    watch.end();
                }
                Ok(())
            }
        }
    }

    /// Starts the calls of a burst.
    fn start_calls(&mut self, calls: &Calls) -> Result<(), TaskError> {
        // The columns were checked at the start, so this fails for no user.
        let internal = |error: StartError| TaskError::Internal(error.message);
        let rows = calls.batches.iter().map(|batch| self.requests.rows(batch).map_err(internal));
        let mut rows = rows.collect::<Result<Vec<_>, _>>()?;
        for Call { attempt, batch, row } in calls.calls.iter().copied() {
            let outcome = match rows[batch as usize].request(&self.clients, row as usize) {
                Ok(Some(request)) => {
                    let begun = self.begun.as_ref().map(|it| (Arc::clone(it), attempt));
                    let (rules, watch) =
                        (Arc::clone(&self.rules), Watch::saying(&self.clock, begun));
                    self.watches.insert(attempt, Arc::clone(&watch));
                    let clients = Arc::clone(&self.clients);
                    let known = (attempt, self.again.take(&[attempt]));
                    let call = call(clients, rules, Arc::clone(&watch), known, request);
                    self.running.push(Watched::new(watch, call.boxed()));
                    continue;
                }
                Ok(None) => Outcome::NullKey,
                Err(failed) => Outcome::Failed(Box::new(failed)),
            };
            self.ended.outcomes.push((attempt, outcome));
        }
        Ok(())
    }

    fn end(&mut self, ended: Option<EndedCall>) {
        if let Some(EndedCall { attempt, outcome, status, left, again }) = ended {
            self.watches.remove(&attempt);
            if let Some(earlier) = again {
                self.again.note(&[attempt], earlier);
            }
            self.answers.note_status(attempt, status, &mut self.ended);
            self.answers.note_left(attempt, left, &mut self.ended);
            self.ended.outcomes.push((attempt, outcome));
        }
    }

    /// Takes what has ended by now, and shortly after.
    async fn collect(&mut self) {
        for turn in 0..=TURNS_OF_OTHERS {
            let before = self.ended.outcomes.len();
            loop {
                let next = self.running.next();
                let next = telling(self.begun.as_deref(), &self.answers.replies, next);
                let Some(Some(ended)) = next.now_or_never() else { break };
                self.end(ended);
            }
            if turn > 0 && self.ended.outcomes.len() == before {
                return;
            }
            yield_now().await;
        }
    }
}

/// Waits for calls, and tells which of them begin, if anybody wants to know.
async fn telling<T>(begun: Option<&Begun>, replies: &Replies, calls: impl Future<Output = T>) -> T {
    match begun {
        Some(begun) => begun.telling(|it| replies.started(it), calls).await,
        None => calls.await,
    }
}
