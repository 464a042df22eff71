// SPDX-License-Identifier: Apache-2.0
//! A naive model of a cache: what is asked of it, what is asked behind it, and what it says.
//!
//! It outlives the tasks that use it, as the cache does.

use std::collections::{BTreeMap, BTreeSet};

use sparkawait_core::operator::AttemptId;

use crate::scenario::{CachePlan, CallPlan};
use crate::trace::{Asks, Broken, Checked, Id, Path, Said};

type Key = (Option<i64>, Option<i64>);

/// Which reply a row got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// That to its own call.
    Own,
    /// Nobody was called for it.
    Known,
}

/// What is kept of a key.
#[derive(Clone, Copy, Debug)]
struct Entry {
    said: Said,
    written: u64,
    used: u64,
}

/// An attempt that was made and has no reply.
#[derive(Clone, Copy, Debug)]
struct Asked {
    key: Key,
    id: Id,
    /// When the function was called for it.
    called: Option<u64>,
}

/// The calls for a key that have no reply.
#[derive(Clone, Debug)]
struct Flight {
    leader: AttemptId,
    flying: BTreeSet<AttemptId>,
}

/// A cache, and the calls of the task that has it.
#[derive(Clone, Debug)]
pub struct Cache {
    plan: CachePlan,
    hedge: Option<(Option<u64>, f64)>,
    /// All that was ever kept: what is too old counts until it leaves.
    entries: BTreeMap<Key, Entry>,
    /// Keys that were known since the last one was kept.
    known_since: BTreeSet<Key>,
    flights: BTreeMap<Key, Flight>,
    asked: BTreeMap<AttemptId, Asked>,
    /// What the function said and the operator was not told.
    said: BTreeMap<AttemptId, (Id, Vec<Said>)>,
    /// What to tell rows that waited for the call of another one.
    owed: BTreeMap<AttemptId, Said>,
    /// First calls of the present task, and those beside them.
    first_calls: u64,
    hedges: u64,
    /// Attempts, those that were known at once, and calls of the function.
    pub attempts: u64,
    /// Those that were known.
    pub hits: u64,
    /// Calls of the function.
    pub loads: u64,
}

/// Results without rows have no number.
fn plain(said: Said) -> Said {
    match said {
        Said::Results { count: 0, retry, .. } => Said::Results { serial: 0, count: 0, retry },
        said => said,
    }
}

/// As those hear it that were not called: their destination has asked the other one for a pause.
fn overheard(said: Said) -> Said {
    match said {
        Said::Failure { asks: Asks::InPart(_), .. } => {
            Said::Failure { asks: Asks::InPart(0), after: None, pause: None }
        }
        Said::Failure { asks, after, .. } => Said::Failure { asks, after, pause: None },
        said @ Said::Results { .. } => said,
    }
}

const fn asks_for_retry(said: Said) -> bool {
    match said {
        Said::Results { retry, .. } => retry,
        Said::Failure { asks, .. } => !matches!(asks, Asks::No),
    }
}

impl Cache {
    /// Knows nothing.
    pub fn new(calls: &CallPlan) -> Option<Self> {
        Some(Self {
            plan: calls.cache?,
            hedge: calls.hedge.map(|it| (it.after, it.max_extra)),
            entries: BTreeMap::new(),
            known_since: BTreeSet::new(),
            flights: BTreeMap::new(),
            asked: BTreeMap::new(),
            said: BTreeMap::new(),
            owed: BTreeMap::new(),
            first_calls: 0,
            hedges: 0,
            attempts: 0,
            hits: 0,
            loads: 0,
        })
    }

    fn key_of(&self, path: &Path) -> Key {
        (path.key, path.channel.filter(|_| self.plan.by_channel))
    }

    fn live(&self, key: Key, now: u64) -> Option<Entry> {
        let is_over = |since: u64, bound: Option<u64>| bound.is_some_and(|it| now - since >= it);
        let entry = self.entries.get(&key).copied()?;
        let is_old = is_over(entry.written, self.plan.after_write)
            || is_over(entry.used, self.plan.after_access);
        (!is_old).then_some(entry)
    }

    /// Whether all that was kept is there.
    fn has_room(&self) -> bool {
        self.plan.max_rows.is_none_or(|it| self.entries.len() as u64 <= it)
    }

    /// The operator makes a call.
    pub fn asked(&mut self, attempt: AttemptId, id: Id, path: &Path, now: u64) -> Checked {
        let key = self.key_of(path);
        self.attempts += 1;
        if attempt.is_hedge() {
            self.hedges += 1;
            let beside = self.asked.get(&attempt.first());
            let called = beside.map(|it| it.called);
            let after = self.hedge.and_then(|it| it.0).unwrap_or_default();
            let is_slow = called.is_none_or(|it| it.is_some_and(|it| now >= it + after));
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let earned = self.first_calls as f64 * self.hedge.map_or(0.0, |it| it.1);
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let hedges = self.hedges as f64;
            if !is_slow || hedges > earned + 1e-6 {
                let what = format!("{attempt:?} at {now}: {beside:?}, {hedges} of {earned}");
                return Err(Broken::new("a second call beside one that was made", what));
            }
        }
        self.asked.insert(attempt, Asked { key, id, called: None });
        Ok(())
    }

    /// The operator cancels a call.
    pub fn cancelled(&mut self, attempt: AttemptId) {
        self.owed.remove(&attempt);
        let Some(asked) = self.asked.remove(&attempt) else { return };
        if let Some(flight) = self.flights.get_mut(&asked.key) {
            flight.flying.remove(&attempt);
        }
    }

    /// The function is called; returns for which row.
    pub fn called(&mut self, attempt: AttemptId, now: u64) -> Checked<Id> {
        let Some(asked) = self.asked.get_mut(&attempt).filter(|it| it.called.is_none()) else {
            let what = format!("{attempt:?} at {now}");
            return Err(Broken::new("a cache calls for a row that waits", what));
        };
        asked.called = Some(now);
        self.loads += 1;
        self.first_calls += u64::from(!attempt.is_hedge());
        let Asked { key, id, .. } = *asked;
        let flight = self.flights.get_mut(&key).filter(|it| !it.flying.is_empty());
        if let Some(flight) = flight {
            if !attempt.is_hedge() || attempt.first() != flight.leader {
                let what = format!("{attempt:?} at {now} beside {flight:?} of {key:?}");
                return Err(Broken::new("a key has one call at a time", what));
            }
            flight.flying.insert(attempt);
            return Ok(id);
        }
        if let Some(entry) = self.live(key, now).filter(|_| self.has_room()) {
            let what = format!("{attempt:?} at {now} of {key:?}: {entry:?}");
            return Err(Broken::new("a row whose key is known makes no call", what));
        }
        let flight = Flight { leader: attempt.first(), flying: [attempt].into() };
        self.flights.insert(key, flight);
        Ok(id)
    }

    /// The function says something.
    pub fn brought(&mut self, attempt: AttemptId, id: Id, said: Said, now: u64) {
        let said = plain(said);
        self.said.entry(attempt).or_insert((id, Vec::new())).1.push(said);
        let found = self.flights.iter_mut().find(|it| it.1.flying.contains(&attempt));
        let Some((key, flight)) = found else { return };
        flight.flying.remove(&attempt);
        if asks_for_retry(said) && !flight.flying.is_empty() {
            return;
        }
        let key = *key;
        self.flights.remove(&key);
        let waiting = self.asked.iter().filter(|it| it.1.key == key && it.1.called.is_none());
        self.owed.extend(waiting.map(|it| (*it.0, overheard(said))));
        if let Said::Results { count, retry: false, .. } = said
            && (count > 0 || self.plan.keeps_missing)
        {
            self.entries.insert(key, Entry { said, written: now, used: now });
            self.known_since.clear();
        }
    }

    /// The operator is told something; returns which row it concerns, and who said it.
    pub fn told(&mut self, attempt: AttemptId, said: Said, now: u64) -> Checked<(Id, Source)> {
        let said = plain(said);
        let asked = self.asked.get(&attempt).copied();
        if let Some((id, own)) = self.said.get_mut(&attempt)
            && let Some(position) = own.iter().position(|it| *it == said)
        {
            own.remove(position);
            self.asked.remove(&attempt);
            return Ok((*id, Source::Own));
        }
        let what = || format!("{attempt:?} is told {said:?} at {now}: {asked:?}");
        let Some(Asked { key, id, .. }) = asked else {
            return Err(Broken::new("a cache answers rows that wait", what()));
        };
        if let Some(owed) = self.owed.remove(&attempt) {
            if owed != said {
                return Err(Broken::new("a row is told what its flight has brought", what()));
            }
        } else {
            if self.live(key, now).is_none_or(|it| it.said != said) {
                let what = format!("{}, {:?} is known", what(), self.entries.get(&key));
                return Err(Broken::new("a row is told what is known of its key", what));
            }
            self.hits += 1;
            self.entries.entry(key).and_modify(|it| it.used = now);
            self.known_since.insert(key);
            if self.plan.max_rows.is_some_and(|it| self.known_since.len() as u64 > it) {
                let what = format!("{:?} are known", self.known_since);
                return Err(Broken::new("no more entries than max_rows", what));
            }
        }
        self.asked.remove(&attempt);
        Ok((id, Source::Known))
    }

    /// The task waits: each row without an answer waits for a call.
    pub fn parked(&self) -> Checked {
        let is_stranded = |it: &(&AttemptId, &Asked)| {
            let flight = self.flights.get(&it.1.key);
            it.1.called.is_none() && flight.is_none_or(|it| it.flying.is_empty())
        };
        match self.asked.iter().find(is_stranded) {
            None => Ok(()),
            Some(stranded) => {
                let what = format!("{stranded:?}, owed {:?}", self.owed.get(stranded.0));
                Err(Broken::new("nobody waits for a call that nobody makes", what))
            }
        }
    }

    /// Nobody waits any more.
    pub fn close(&mut self) {
        self.flights.clear();
        self.asked.clear();
        self.owed.clear();
    }

    /// Its task is gone.
    pub fn forget_calls(&mut self) {
        self.close();
        self.said.clear();
        (self.first_calls, self.hedges) = (0, 0);
    }
}
