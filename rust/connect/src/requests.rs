// SPDX-License-Identifier: Apache-2.0
//! Requests of many rows each, over a bounded number of connections.
//!
//! ```text
//!  task thread          tokio task of the function        a tokio task for each request
//!  -----------          --------------------------        -----------------------------
//!  burst of calls  -->  rows that wait, by channel   -->  ask and reply
//!                            ^ when a request ends               |
//!                            +-----------------------------------+
//! ```
//!
//! While all connections are busy, rows wait; when one is free, those that wait go in one request. So
//! requests grow with the load, and no row waits for company, unless its function says how long. The rows of a request are of one channel,
//! and channels are served one after the other: one whose requests take long has its share of the connections, and never the
//! last one.

mod awaited_calls;
mod permits;

use std::mem::take;
use std::sync::Arc;

use sparkawait_core::Key;
use sparkawait_core::operator::AttemptId;
use sparkawait_runtime::panic_message;
use sparkawait_task::error::TaskError;
use sparkawait_task::function::{Calls, Replies};
use sparkawait_task::worker::{Command, Commands, Worker};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

pub(crate) use self::awaited_calls::AwaitedCalls;
use self::permits::{Permit, Permits};
use crate::lines::{Lines, Rows};

/// What is asked in requests of many rows.
pub(crate) trait Asks: Send + Sync + 'static {
    /// The rows of a channel that wait.
    type Rows: Rows + Send;

    /// The rows of a request.
    type Batch: Send + 'static;

    /// What a request leaves to be answered, together with those that have ended by then.
    type Ended: Send + 'static;

    /// What messages and the log call it.
    const NAME: &'static str;

    /// Returns where replies go.
    fn replies(&self) -> &Replies;

    /// Has the rows of a burst wait, and answers those that need no request.
    fn add(&self, calls: &Calls, waiting: &mut Lines<Self::Rows>) -> Result<(), TaskError>;

    /// Removes the rows of a request, where as many requests are for those that wait.
    fn take(&self, rows: &mut Self::Rows, requests: usize) -> Result<Self::Batch, TaskError>;

    /// Removes calls that nobody waits for any more; they are sorted.
    fn remove(&self, rows: &mut Self::Rows, cancelled: &[AttemptId]);

    /// Returns the calls of a request.
    fn attempts(batch: &Self::Batch) -> &[AttemptId];

    /// Asks for some rows, and replies to all of their calls or leaves that to `answer`, whatever happens,
    /// except those that nobody waits for any more; ends where nobody waits for any of them.
    ///
    /// Says when they are [started](Replies::started): what they waited for before, such as other
    /// rows' requests, tells nothing of their own.
    fn ask(
        self: Arc<Self>,
        batch: Self::Batch,
        wanted: Arc<AwaitedCalls>,
    ) -> impl Future<Output = Result<Self::Ended, TaskError>> + Send;

    /// Answers what requests have left that ended together, which costs less than an answer for each.
    fn answer(&self, _ended: Vec<Self::Ended>) -> Result<(), TaskError> {
        Ok(())
    }
}

/// The calls of a task that were not answered.
pub(crate) struct Requests<A: Asks> {
    asks: Arc<A>,
    waiting: Lines<A::Rows>,
    /// Each returns its channel and what it leaves; all are ended when this is dropped.
    running: JoinSet<(Option<Key>, Option<A::Ended>)>,
    /// What was left since the last answer.
    ended: Vec<A::Ended>,
    /// The calls of each request; may hold some that have ended since the last was started.
    awaited: Vec<Arc<AwaitedCalls>>,
    permits: Permits,
}

impl<A: Asks> Requests<A> {
    /// Starts the function of one task, which has a permit of `connections` for each request, and
    /// `most` requests of a channel.
    pub(crate) fn start(
        asks: A,
        most: usize,
        connections: Arc<Semaphore>,
        runtime: &Handle,
    ) -> Worker {
        let replies = asks.replies().clone();
        let requests = Self {
            asks: Arc::new(asks),
            waiting: Lines::new(most),
            running: JoinSet::new(),
            ended: Vec::new(),
            awaited: Vec::new(),
            permits: Permits::new(connections),
        };
        Worker::start(runtime, A::NAME, replies, |commands| requests.run(commands))
    }

    /// Serves commands until the function is closed; then all requests end with it.
    async fn run(mut self, mut commands: Commands) {
        if let Err(error) = self.serve(&mut commands).await {
            self.asks.replies().fail(error);
        }
    }

    async fn serve(&mut self, commands: &mut Commands) -> Result<(), TaskError> {
        loop {
            let (mut permit, due) = (None, self.waiting.due());
            tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(command) => self.obey(command)?,
                    None => return Ok(()),
                },
                Some(ended) = self.running.join_next() => self.end(ended)?,
                next = self.permits.next() => permit = Some(next),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            }
            // All that is there, before a request is filled.
            while let Ok(command) = commands.try_recv() {
                self.obey(command)?;
            }
            while let Some(ended) = self.running.try_join_next() {
                self.end(ended)?;
            }
            if due.is_some() {
                self.waiting.expire(Instant::now());
            }
            self.send(permit)?;
            if !self.ended.is_empty() {
                self.asks.answer(take(&mut self.ended))?;
            }
        }
    }

    fn obey(&mut self, command: Command) -> Result<(), TaskError> {
        match command {
            Command::Invoke(calls) => self.asks.add(&calls, &mut self.waiting),
            Command::Cancel(cancelled) => {
                self.waiting.remove(|rows| self.asks.remove(rows, &cancelled));
                self.awaited.iter().for_each(|it| it.cancel(&cancelled));
                Ok(())
            }
        }
    }

    /// Sends waiting rows while there are free connections.
    fn send(&mut self, mut permit: Option<Permit>) -> Result<(), TaskError> {
        while self.waiting.ready() > 0 {
            let Some(permit) = permit.take().or_else(|| self.permits.take()) else { return Ok(()) };
            let (asks, free) = (&self.asks, self.permits.free() + 1);
            let taken = self.waiting.take(free, |rows, requests| asks.take(rows, requests));
            if let Some((channel, batch)) = taken {
                self.ask(channel, batch?, permit);
            }
        }
        self.permits.leave();
        Ok(())
    }

    fn ask(&mut self, channel: Option<Key>, batch: A::Batch, permit: Permit) {
        let wanted = Arc::new(AwaitedCalls::new(A::attempts(&batch).to_vec()));
        // Those that have ended hold theirs no more.
        self.awaited.retain(|it| Arc::strong_count(it) > 1);
        self.awaited.push(Arc::clone(&wanted));
        let asks = Arc::clone(&self.asks);
        // It has kilobytes, which a task moves several times from its start to its end.
        let asking = Box::pin(Arc::clone(&asks).ask(batch, wanted));
        #[expect(clippy::disallowed_methods, reason = "its end is looked at in `end`")]
        self.running.spawn(async move {
            let left = match asking.await {
                Ok(left) => Some(left),
                Err(error) => {
                    asks.replies().fail(error);
                    None
                }
            };
            drop(permit);
            (channel, left)
        });
    }

    fn end(
        &mut self,
        ended: Result<(Option<Key>, Option<A::Ended>), JoinError>,
    ) -> Result<(), TaskError> {
        match ended {
            Ok((channel, left)) => {
                self.waiting.ended(channel);
                self.ended.extend(left);
            }
            Err(ended) if ended.is_panic() => {
                let panic = ended.into_panic();
                let reason = panic_message(panic.as_ref());
                return Err(TaskError::Internal(format!("`{}` panicked: {reason}", A::NAME)));
            }
            Err(_) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use sparkawait_core::queue::EntryId;
    use sparkawait_runtime::AsyncFunction;
    use sparkawait_task::function::{Call, ReplyGroup, ReplySink};
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

    use super::*;

    /// Tells what is asked for, by the numbers of the attempts, and answers nothing.
    struct Silent {
        replies: Replies,
        asked: UnboundedSender<Vec<u32>>,
    }

    impl Asks for Silent {
        type Rows = VecDeque<AttemptId>;
        type Batch = Vec<AttemptId>;
        type Ended = ();

        const NAME: &'static str = "silent";

        fn replies(&self) -> &Replies {
            &self.replies
        }

        fn add(&self, calls: &Calls, waiting: &mut Lines<Self::Rows>) -> Result<(), TaskError> {
            for call in &calls.calls {
                let channel = Some(Key::new(call.row.into()));
                waiting.change(channel, |rows| rows.push_back(call.attempt));
            }
            Ok(())
        }

        fn take(&self, rows: &mut Self::Rows, requests: usize) -> Result<Self::Batch, TaskError> {
            Ok(rows.drain(..rows.len().div_ceil(requests).min(2)).collect())
        }

        fn remove(&self, rows: &mut Self::Rows, cancelled: &[AttemptId]) {
            rows.retain(|it| !cancelled.contains(it));
        }

        fn attempts(batch: &Self::Batch) -> &[AttemptId] {
            batch
        }

        async fn ask(
            self: Arc<Self>,
            batch: Self::Batch,
            wanted: Arc<AwaitedCalls>,
        ) -> Result<(), TaskError> {
            self.asked.send(batch.iter().map(|it| it.attempt).collect()).unwrap();
            assert!(batch.iter().all(|it| it.attempt != 13), "out of luck");
            wanted.none_of(&batch).await;
            Ok(())
        }
    }

    /// Tells how a task failed.
    #[derive(Debug)]
    struct Failures(UnboundedSender<String>);

    impl ReplySink for Failures {
        fn send(&self, _: ReplyGroup) -> bool {
            true
        }

        fn started(&self, _: Vec<AttemptId>) -> bool {
            true
        }

        fn fail(&self, error: TaskError) -> bool {
            self.0.send(error.to_string()).is_ok()
        }
    }

    /// Starts a function of two connections; returns it, what is asked for, and how it failed.
    fn start(most: usize) -> (Worker, UnboundedReceiver<Vec<u32>>, UnboundedReceiver<String>) {
        let ((asked, told), (failures, failed)) = (unbounded_channel(), unbounded_channel());
        let silent = Silent { replies: Replies::to(Failures(failures)), asked };
        let connections = Arc::new(Semaphore::new(2));
        (Requests::start(silent, most, connections, &Handle::current()), told, failed)
    }

    fn attempts(numbers: &[u32]) -> Vec<AttemptId> {
        let attempt = |it: &u32| AttemptId { entry: EntryId::from_u64(7), attempt: *it };
        numbers.iter().map(attempt).collect()
    }

    /// Calls of a channel by their numbers.
    fn calls(channel: u32, numbers: &[u32]) -> Vec<Call> {
        let call = |attempt| Call { attempt, batch: 0, row: channel };
        attempts(numbers).into_iter().map(call).collect()
    }

    #[tokio::test]
    async fn what_nobody_waits_for_is_not_asked_for_and_leaves_its_connection_to_others() {
        let (mut worker, mut asked, _failed) = start(2);
        worker.invoke(Calls { batches: Vec::new(), calls: calls(3, &[1, 2, 3, 4, 5, 6, 7, 8]) });
        assert_eq!(asked.recv().await.unwrap(), [1, 2]);
        assert_eq!(asked.recv().await.unwrap(), [3, 4]);

        // Of the second request somebody waits for one call.
        worker.cancel(attempts(&[1, 2, 3, 6]));
        assert_eq!(asked.recv().await.unwrap(), [5, 7]);
        worker.cancel(attempts(&[4]));
        assert_eq!(asked.recv().await.unwrap(), [8]);

        worker.close();
        assert_eq!(asked.recv().await, None);
    }

    #[tokio::test]
    async fn a_channel_has_its_requests_and_leaves_the_other_connections_to_others() {
        let (mut worker, mut asked, _failed) = start(1);
        let calls = [calls(3, &[1, 2, 3, 4]), calls(5, &[5]), calls(7, &[6])].concat();
        worker.invoke(Calls { batches: Vec::new(), calls });
        assert_eq!(asked.recv().await.unwrap(), [1, 2]);
        assert_eq!(asked.recv().await.unwrap(), [5]);

        worker.cancel(attempts(&[5]));
        assert_eq!(asked.recv().await.unwrap(), [6]);
        worker.cancel(attempts(&[2]));
        worker.cancel(attempts(&[6]));
        worker.cancel(attempts(&[1]));
        assert_eq!(asked.recv().await.unwrap(), [3, 4]);
    }

    #[tokio::test]
    async fn a_panic_in_a_request_fails_the_task() {
        let (mut worker, mut asked, mut failed) = start(2);
        worker.invoke(Calls { batches: Vec::new(), calls: calls(3, &[13]) });

        let error = failed.recv().await.unwrap();

        assert!(error.contains("`silent` panicked: ") && error.contains("out of luck"), "{error}");
        assert_eq!(asked.recv().await.unwrap(), [13]);
    }
}
