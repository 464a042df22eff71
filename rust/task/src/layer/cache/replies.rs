// SPDX-License-Identifier: Apache-2.0
//! What the function of a task brings: to the cache, and to the calls that waited.

use std::sync::{Arc, Weak};

use arrow::row::RowConverter;
use sparkawait_core::operator::{AttemptId, Retry};
use sparkawait_core::policy::CallSign;

use super::caller::Caller;
use super::entries::Entry;
use super::followers::Followers;
use super::row_format::not_kept;
use super::store::CacheStore;
use crate::error::TaskError;
use crate::function::{FailedCall, ReplyGroup, ReplySink, ResultGroup};

/// Takes the replies of the function behind a cache.
pub(super) struct CacheReplies {
    /// Owns the function, which owns this.
    caller: Weak<Caller>,
    store: Arc<CacheStore>,
    /// Of result rows.
    rows: Arc<RowConverter>,
}

impl CacheReplies {
    /// Makes the sink of the function of `caller`.
    pub(super) fn new(
        caller: &Arc<Caller>,
        store: &Arc<CacheStore>,
        rows: &Arc<RowConverter>,
    ) -> Self {
        let (caller, store) = (Arc::downgrade(caller), Arc::clone(store));
        Self { caller, store, rows: Arc::clone(rows) }
    }
}

impl ReplySink for CacheReplies {
    fn send(&self, group: ReplyGroup) -> bool {
        let Some(caller) = self.caller.upgrade() else { return false };
        let mut followers = Followers::default();
        if let Some(results) = &group.results
            && let Err(error) = self.land_results(&caller, results, &mut followers)
        {
            return caller.replies.fail(error);
        }
        self.land_failures(&caller, &group.failures, &mut followers);
        let is_open = caller.replies.send(group);
        followers.send();
        is_open
    }

    fn started(&self, attempts: Vec<AttemptId>) -> bool {
        self.caller.upgrade().is_some_and(|caller| caller.replies.started(&attempts))
    }

    fn fail(&self, error: TaskError) -> bool {
        self.caller.upgrade().is_some_and(|caller| caller.replies.fail(error))
    }
}

impl CacheReplies {
    /// Keeps the results of flights, and gives them to those that waited.
    fn land_results(
        &self,
        caller: &Caller,
        results: &ResultGroup,
        followers: &mut Followers,
    ) -> Result<(), TaskError> {
        let rows = &results.rows;
        let encoded =
            self.rows.convert_columns(rows.columns()).map_err(|error| not_kept(&error))?;
        let (mut start, mut evictions) = (0, 0);
        let mut landed = Vec::new();
        self.store.with(|state, now| {
            for (index, attempt) in results.attempts.iter().enumerate() {
                let count = results.counts.as_ref().map_or(1, |counts| counts[index]);
                let range = start..start + count;
                start += count;
                let is_set = |flags: &Option<Vec<bool>>| flags.as_ref().is_some_and(|it| it[index]);
                let asks_for_retry = is_set(&results.retries);
                // What asks for another attempt is not final while another call flies: that is it.
                let landed_now = state.flights.land((caller.id, *attempt), !asks_for_retry);
                let Some((key, waiters)) = landed_now else { continue };
                let is_miss = count == 0 || is_set(&results.misses);
                if !asks_for_retry && (self.store.keeps_missing() || !is_miss) {
                    let rows = range.clone().map(|row| encoded.row(row as usize).data());
                    let entry = Entry::new(rows.collect::<Vec<_>>().into_iter(), now);
                    evictions += state.entries.insert(key, entry);
                }
                if !waiters.is_empty() {
                    landed.push((range, asks_for_retry, is_miss, waiters));
                }
            }
        });
        caller.metrics.count_evictions(evictions);
        followers.add_results(rows, landed).map_err(|error| not_kept(&error))
    }

    /// Gives the failures of flights to those that waited.
    fn land_failures(&self, caller: &Caller, failures: &[FailedCall], followers: &mut Followers) {
        if failures.is_empty() {
            return;
        }
        let landed = self.store.with(|state, _| {
            let mut land = |failed: &FailedCall| {
                let is_final = failed.retry == Retry::No;
                state.flights.land((caller.id, failed.attempt), is_final)
            };
            failures.iter().map(&mut land).collect::<Vec<_>>()
        });
        for (failed, flight) in failures.iter().zip(landed) {
            for waiter in flight.map(|(_, waiters)| waiters).unwrap_or_default() {
                let failure = failed.failure.clone();
                let failed = FailedCall {
                    attempt: waiter.attempt,
                    failure,
                    cause: failed.cause,
                    retry: retry_of_follower(failed.retry),
                    // Its destination said it once, to the call that was made.
                    sign: CallSign::NotCalled,
                    pause: None,
                };
                followers.add_failure(&waiter, failed);
            }
        }
    }
}

/// Returns what follows for a row that has waited for a call which ended so. It may be of a part, too,
/// but none begins with it.
const fn retry_of_follower(retry: Retry) -> Retry {
    match retry {
        Retry::InPart { .. } => Retry::InPart { records: 0 },
        retry => retry,
    }
}

sparkawait_core::opaque_debug!(CacheReplies);
