// SPDX-License-Identifier: Apache-2.0
//! The limits of a job, as the tasks of a worker take part in them.
//!
//! ```text
//!   tasks --ask, settle--> share of each limit <--exchange each 100 ms-- speaker --RESP--> server
//! ```
//!
//! A worker has one speaker for each server: a tokio task with one connection. Any thread may ask a
//! share, which has a lock that is held for moments.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sparkawait_core::ProcessingTime;
use sparkawait_core::policy::{Answer, Ledger, Ledgers, LimitLeft, MAX_LIMITS, Renewal, Spent};
use sparkawait_lease::{Asked, EVERY, Order, Share, State, Terms};
use sparkawait_runtime::clock::Clock as _;
use sparkawait_runtime::host_limit::HostClock;
use sparkawait_task::error::StartError;
use sparkawait_task::shared::Shared;
use sparkawait_task::supervision::{Service, keep_running};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use crate::redis::exchanges::{Exchanges, Said};

/// How long a task waits for the first answer when it starts.
const FIRST: Duration = Duration::from_secs(5);

/// The longest pause between two attempts to reach the server.
const LONGEST_PAUSE: u64 = 2_000_000;

/// What nobody is waited for.
const NEVER: u64 = u64::MAX;

static SPEAKERS: Shared = Shared::new();

/// A limit of the job, as an operator takes part in it.
#[derive(Clone, Debug)]
pub struct JobTerms {
    /// Those that say the same share it.
    pub name: String,
    /// What it is.
    pub terms: Terms,
    /// Where it is asked for: `redis://..`, which may have a secret in it.
    pub server: String,
    /// Tasks that run at once, if that is known.
    pub tasks: Option<u64>,
    /// Whether it begins without what it could have saved.
    pub begins_empty: bool,
}

/// The limits of an operator that all workers of a job keep together.
#[derive(Debug)]
pub struct JobLimits {
    limits: [Option<(JobTerms, Arc<Speaker>)>; MAX_LIMITS],
}

impl JobLimits {
    /// Takes part in limits by their names; waits for five seconds at most for the first answer.
    ///
    /// # Errors
    ///
    /// A name has other terms there, or an address cannot be read. What is returned beside the limits says
    /// which server is not reached, and why: their calls wait for it.
    pub async fn open(
        runtime: &Handle,
        terms: [Option<JobTerms>; MAX_LIMITS],
    ) -> Result<(Self, Option<(String, String)>), StartError> {
        let mut limits = [const { None }; MAX_LIMITS];
        let mut unreached = None;
        for (place, terms) in limits.iter_mut().zip(terms) {
            let Some(terms) = terms else { continue };
            let speaker = Speaker::of(runtime, &terms.server)?;
            let share = speaker.share(&terms, None);
            if let Err(reason) = speaker.meet(&share).await {
                unreached = Some((speaker.address.clone(), reason));
            }
            let share = share.lock();
            if share.named() != terms.terms || share.refused().is_some() {
                return Err(StartError::option(format!(
                    "the limit `{}` has another rate, burst or amount in another function or job; give \
                     one of them another `name`",
                    terms.name
                )));
            }
            drop(share);
            *place = Some((terms, speaker));
        }
        Ok((Self { limits }, unreached))
    }
}

impl Ledgers for JobLimits {
    fn open(&self, limit: usize, channel: Option<u64>) -> Option<Arc<dyn Ledger>> {
        let (terms, speaker) = self.limits.get(limit)?.as_ref()?;
        Some(speaker.share(terms, channel))
    }
}

/// Asks the server of a limit what it is, and makes it `anew`, if that is something: tasks follow within
/// half a second.
///
/// # Errors
///
/// The server is not reached, or tasks say that the limit of this name is something else.
pub async fn order(limit: &JobTerms, anew: Option<Terms>) -> Result<State, StartError> {
    let mut exchanges = Exchanges::new(&limit.server)?;
    let JobTerms { terms: said, begins_empty, .. } = *limit;
    let order = Order { said, anew, begins_empty };
    let state = exchanges.order(&limit.name, &order).await;
    state.map_err(|reason| StartError::option(format!("{}: {reason}", exchanges.address())))
}

/// Who speaks to a server for all tasks of this process.
#[derive(Debug)]
struct Speaker {
    address: String,
    worker: String,
    /// How many shares there were: the server knows each of them as a worker, and counts what it says. One
    /// that was dropped does not come back.
    opened: AtomicU64,
    shares: Mutex<HashMap<String, Arc<JobLimit>>>,
    line: Arc<Line>,
    started: u64,
    /// Why the server was not reached the last time, and how often it was tried.
    tried: watch::Receiver<(u64, Option<String>)>,
}

/// What wakes a speaker.
#[derive(Debug, Default)]
struct Line {
    wake: Notify,
    /// Until when it sleeps unless it is woken; nothing: it does not want to be.
    sleeps_until: AtomicU64,
}

impl Speaker {
    fn of(runtime: &Handle, url: &str) -> Result<Arc<Self>, StartError> {
        let found = SPEAKERS.get_or_make(url, || {
            let exchanges = Exchanges::new(url)?;
            let (tell, tried) = watch::channel((0, None));
            let speaker = Arc::new(Self::new(exchanges.address(), tried));
            let own = Arc::clone(&speaker);
            let voice = Voice { own, exchanges, tell, speaks_at: 0, failures: 0 };
            keep_running(runtime, "limits.speaker", voice);
            Ok::<_, StartError>(speaker)
        })?;
        Ok(Arc::clone(&found))
    }

    fn new(address: &str, tried: watch::Receiver<(u64, Option<String>)>) -> Self {
        let random = RandomState::new().build_hasher().finish();
        Self {
            address: address.to_owned(),
            worker: format!("{}-{random:016x}", std::process::id()),
            opened: AtomicU64::new(0),
            shares: Mutex::default(),
            line: Arc::default(),
            started: now(),
            tried,
        }
    }

    fn shares(&self) -> MutexGuard<'_, HashMap<String, Arc<JobLimit>>> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn share(&self, terms: &JobTerms, channel: Option<u64>) -> Arc<JobLimit> {
        let name = match channel {
            Some(channel) => format!("{}#{channel:016x}", terms.name),
            None => terms.name.clone(),
        };
        let mut shares = self.shares();
        let share = shares.entry(name).or_insert_with(|| {
            let JobTerms { terms, tasks, begins_empty, .. } = *terms;
            let serial = self.opened.fetch_add(1, Ordering::Relaxed);
            let worker = format!("{}-{serial}", self.worker);
            let share = Share::new(terms, &worker, tasks, begins_empty, now());
            Arc::new(JobLimit { share: Mutex::new(share), line: Arc::clone(&self.line) })
        });
        let share = Arc::clone(share);
        drop(shares);
        self.line.wake(0);
        share
    }

    /// Waits until the server has answered once.
    async fn meet(&self, share: &JobLimit) -> Result<(), String> {
        let mut tried = self.tried.clone();
        let met = async {
            while !share.lock().is_met() {
                tried.changed().await.ok();
            }
        };
        // A task that comes later waits as little as the first one still does.
        let waits = FIRST.saturating_sub(Duration::from_micros(now() - self.started));
        let reached = self.tried.borrow().1.is_none();
        let waited = timeout(if reached { FIRST } else { waits }, met).await;
        waited.map_err(|_| self.tried.borrow().1.clone().unwrap_or_else(|| "silence".to_owned()))
    }
}

impl Line {
    /// Says that something is due then.
    fn wake(&self, due: u64) {
        if due < self.sleeps_until.load(Ordering::Acquire) {
            self.wake.notify_one();
        }
    }
}

/// The tokio task of a speaker.
struct Voice {
    own: Arc<Speaker>,
    exchanges: Exchanges,
    tell: watch::Sender<(u64, Option<String>)>,
    /// When it speaks again at the earliest.
    speaks_at: u64,
    /// How often it was not answered, in a row.
    failures: u32,
}

impl Service for Voice {
    async fn run(&mut self) {
        loop {
            let line = Arc::clone(&self.own.line);
            // What becomes due from here on wakes it.
            line.sleeps_until.store(NEVER, Ordering::Release);
            let due = self.due().map_or(NEVER, |it| it.max(self.speaks_at));
            if due <= self.speaks_at {
                line.sleeps_until.store(0, Ordering::Release);
            }
            let rest = due.saturating_sub(now());
            if rest > 0 {
                let wait = sleep(Duration::from_micros(rest.min(3_600_000_000)));
                tokio::select! {
                    () = wait => {}
                    () = line.wake.notified() => {}
                }
                continue;
            }
            line.sleeps_until.store(0, Ordering::Release);
            self.speak().await;
        }
    }

    fn fail(&mut self, reason: &str) {
        self.note(Some(reason.to_owned()));
    }
}

impl Voice {
    fn due(&self) -> Option<u64> {
        self.own.shares().values().filter_map(|it| it.lock().due_at()).min()
    }

    /// Makes the exchanges that are due, in one round trip.
    async fn speak(&mut self) {
        let now_sent = now();
        let (mut spoken, mut said) = (Vec::new(), Vec::new());
        self.own.shares().retain(|name, it| {
            let mut share = it.lock();
            if share.due_at().is_some_and(|due| due <= now_sent) {
                let exchange = share.exchange(now_sent);
                let arguments = exchange.arguments(share.named(), None);
                said.push(Said { limit: name.clone(), arguments });
                spoken.push(Arc::clone(it));
                return true;
            }
            // That of a channel which is long gone.
            Arc::strong_count(it) > 1 || !share.is_idle(now_sent)
        });
        let made = self.exchanges.make(&said).await;
        let now_heard = now();
        match made {
            Ok(answers) => {
                self.failures = 0;
                self.speaks_at = now_sent + EVERY;
                let mut refused = None;
                for (share, answer) in spoken.iter().zip(answers) {
                    match answer {
                        Ok(answer) => share.lock().answered(answer, now_heard, self.speaks_at),
                        // It fails alone: others are not to wait for it.
                        Err(reason) => {
                            share.lock().unanswered(self.speaks_at);
                            refused = Some(reason);
                        }
                    }
                }
                self.note(refused);
            }
            Err(reason) => {
                let pause = (EVERY << self.failures.min(5)).min(LONGEST_PAUSE);
                self.failures = self.failures.saturating_add(1);
                self.speaks_at = now_heard + pause;
                for share in &spoken {
                    share.lock().unanswered(self.speaks_at);
                }
                self.note(Some(reason));
            }
        }
    }

    fn note(&self, reason: Option<String>) {
        let address = &self.own.address;
        self.tell.send_if_modified(|(count, last)| {
            match (&reason, &last) {
                (Some(reason), None) => {
                    tracing::warn!(address, reason, "the limits of the job are not reached");
                }
                (None, Some(_)) => {
                    tracing::warn!(address, "the limits of the job are reached again");
                }
                _ => {}
            }
            *count += 1;
            *last = reason;
            true
        });
    }
}

/// One limit of the job in this process.
#[derive(Debug)]
struct JobLimit {
    share: Mutex<Share>,
    line: Arc<Line>,
}

impl JobLimit {
    fn lock(&self) -> MutexGuard<'_, Share> {
        self.share.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the speaker know if something is due that it does not expect.
    fn tell(&self, share: &Share) {
        if self.line.sleeps_until.load(Ordering::Acquire) > 0
            && let Some(due) = share.due_at()
        {
            self.line.wake(due);
        }
    }
}

impl Ledger for JobLimit {
    fn ask(&self, cost: u64, at: ProcessingTime) -> Answer {
        let now = now();
        let mut share = self.lock();
        match share.ask(cost, now) {
            Asked::Granted => Answer::Ticket(at),
            Asked::At(again) => {
                self.tell(&share);
                Answer::At(at + Duration::from_micros(again.saturating_sub(now).max(1)))
            }
            Asked::Never(left) => {
                self.tell(&share);
                Answer::Never(Spent { limit: 0, total: share.total(), left, cost })
            }
        }
    }

    fn settle(&self, taken: u64, actual: u64) {
        let mut share = self.lock();
        share.settle(taken, actual);
        self.tell(&share);
    }

    fn end(&self, taken: u64) {
        self.lock().end(taken);
    }

    fn forgo(&self, taken: u64) {
        // The server knows which lease it is of, and counts again what came behind it.
        self.settle(taken, 0);
    }

    fn recharge(&self, taken: u64, anew: u64) {
        let mut share = self.lock();
        share.recharge(taken, anew);
        self.tell(&share);
    }

    fn lower_to(
        &self,
        left: &LimitLeft,
        in_flight: u64,
        _started: ProcessingTime,
        _now: ProcessingTime,
    ) -> u64 {
        let mut share = self.lock();
        // In a window that renews all at once nothing comes before; the caller waits for that itself.
        let is_over = left.remaining == 0 && left.renewal == Renewal::AtOnce;
        share.lower_to(if is_over { 0 } else { left.remaining.saturating_sub(in_flight) });
        self.tell(&share);
        in_flight
    }

    fn drain(&self, owed: u64, _now: ProcessingTime) {
        let mut share = self.lock();
        share.drain(owed);
        self.tell(&share);
    }
}

/// Microseconds of the clock that goes on while a process is stopped.
fn now() -> u64 {
    HostClock.now().as_nanos() / 1_000
}

#[cfg(test)]
mod tests {
    use sparkawait_lease::{Answer, Server};

    use super::*;

    #[test]
    fn a_share_that_was_dropped_and_is_opened_again_is_a_new_worker_to_the_server() {
        let (_tell, tried) = watch::channel((0, None));
        let speaker = Speaker::new("redis://nobody", tried);
        let (terms, mut server) = (Terms::Budget(1_013), Server::default());
        let limit = JobTerms {
            name: "ugly".to_owned(),
            terms,
            server: String::new(),
            tasks: None,
            begins_empty: false,
        };
        let at = now();
        let mut leases = 0;
        for rounds in [7, 3] {
            let opened = speaker.share(&limit, None);
            for round in 0..rounds {
                let mut share = opened.lock();
                while matches!(share.ask(1, at), Asked::Granted) {
                    share.settle(1, 1);
                }
                let answer = server.exchange("ugly", terms, &share.exchange(at), at);

                assert!(matches!(answer, Answer::Leases(_)), "{round}: {answer:?}");
                leases += 1;
                share.answered(answer, at, at);
            }
            drop(opened);
            // As the speaker does with an idle one.
            speaker.shares().clear();
        }
        assert_eq!(leases, 10);
    }
}
