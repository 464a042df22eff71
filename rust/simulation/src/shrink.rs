// SPDX-License-Identifier: Apache-2.0
//! A failing scenario made smaller: fewer rows, operators and options while it still fails.

use crate::run::run;
use crate::scenario::{CallPlan, End, Failing, Mode, OperatorPlan, Scenario, Script};

/// Scenarios that are tried at most.
const MOST_TRIES: usize = 3_000;

/// Returns the smallest scenario that was found that breaks the same rule.
pub fn shrink(failing: &Scenario) -> Scenario {
    let Some(broken) = run(failing).broken else { return failing.clone() };
    let (mut least, mut tries) = (failing.clone(), 0);
    loop {
        let smaller = candidates(&least).into_iter().map(Scenario::sound).find(|it| {
            tries += 1;
            let is_other = *it != least && tries < MOST_TRIES;
            is_other && run(it).broken.is_some_and(|it| it.rule == broken.rule)
        });
        match smaller {
            Some(smaller) => least = smaller,
            None => return least,
        }
    }
}

/// Returns scenarios that are a little smaller, the smallest first.
fn candidates(of: &Scenario) -> Vec<Scenario> {
    let mut found = Vec::new();
    let mut with = |change: &dyn Fn(&mut Scenario)| {
        let mut changed = of.clone();
        change(&mut changed);
        if !changed.operators.is_empty() && changed != *of {
            found.push(changed);
        }
    };
    for index in 0..of.operators.len() {
        with(&|it| drop(it.operators.remove(index)));
    }
    with(&|it| it.parts = None);
    with(&|it| it.parts.iter_mut().for_each(|parts| parts.moved = 0));
    with(&|it| it.end = End::Input);
    with(&|it| it.panics = None);
    with(&|it| it.journal = None);
    with(&|it| it.journal.iter_mut().for_each(|journal| journal.again = journal.again.min(1)));
    with(&|it| it.journal.iter_mut().for_each(|journal| journal.again = 0));
    with(&|it| it.journal.iter_mut().for_each(|journal| journal.fails = None));
    with(&|it| it.journal.iter_mut().for_each(|journal| journal.keeps_failures = false));
    with(&|it| it.journal.iter_mut().for_each(|journal| journal.keeps_input = false));
    with(&|it| it.journal.iter_mut().for_each(|journal| journal.known = 0));
    with(&|it| it.journal.iter_mut().for_each(|journal| journal.latency = 1));
    with(&|it| it.pools.clear());
    with(&|it| it.pools.truncate(1));
    with(&|it| it.pools.iter_mut().for_each(|pool| pool.is_shared = false));
    with(&|it| it.panics.iter_mut().for_each(|panics| panics.again = false));
    with(&|it| it.panics.iter_mut().for_each(|panics| panics.after /= 2));
    with(&|it| it.batches = vec![it.batches.iter().sum()]);
    for index in 0..of.batches.len() {
        with(&|it| it.batches.retain(each_but(index)));
        with(&|it| it.batches[index] /= 2);
        with(&|it| it.batches[index] = it.batches[index].saturating_sub(1));
    }
    with(&|it| it.jitter = 0);
    with(&|it| it.consumer_pause = 0);
    with(&|it| it.feed_gap = 1);
    with(&|it| it.keys = 1);
    with(&|it| it.channels = 1);
    for index in 0..of.operators.len() {
        for change in OPERATOR_CHANGES {
            with(&|it| change(&mut it.operators[index]));
        }
        for call in 0..of.operators[index].calls.len() {
            if of.operators[index].calls.len() > 1 {
                with(&|it| drop(it.operators[index].calls.remove(call)));
            }
            for change in CALL_CHANGES {
                with(&|it| change(&mut it.operators[index].calls[call]));
            }
            for change in SCRIPT_CHANGES {
                with(&|it| change(&mut it.operators[index].calls[call].script));
            }
        }
    }
    found
}

/// Returns what leaves the element at `index` out of a list that is looked at in order.
fn each_but<T>(index: usize) -> impl FnMut(&T) -> bool {
    let mut seen = 0..;
    move |_| seen.next() != Some(index)
}

const OPERATOR_CHANGES: &[fn(&mut OperatorPlan)] = &[
    |it| it.is_fan_out &= it.calls.len() > 1,
    |it| it.mode = Mode::Unordered,
    |it| it.watermark = None,
    |it| it.warm_up = false,
    |it| it.bytes = None,
    |it| it.buffer_timeout = None,
    |it| it.completed_take_slots = true,
    |it| it.max_rows_per_batch = 8192,
    |it| it.capacity = it.capacity.min(13),
    |it| it.capacity = it.capacity.div_ceil(2),
];

const CALL_CHANGES: &[fn(&mut CallPlan)] = &[
    |it| it.cache = None,
    |it| it.cache.iter_mut().for_each(|cache| cache.max_rows = None),
    |it| it.cache.iter_mut().for_each(|cache| cache.after_write = None),
    |it| it.cache.iter_mut().for_each(|cache| cache.after_access = None),
    |it| it.cache.iter_mut().for_each(|cache| cache.by_channel = false),
    |it| it.requests = None,
    |it| it.others = None,
    |it| it.requests.iter_mut().for_each(|requests| requests.records = 1),
    |it| it.requests.iter_mut().for_each(|requests| requests.linger = 0),
    |it| it.requests.iter_mut().for_each(|requests| requests.divided = 0),
    |it| it.hedge = None,
    |it| it.channels = None,
    |it| it.limits.clear(),
    |it| it.pools.clear(),
    |it| it.pools.truncate(1),
    |it| it.pools.iter_mut().for_each(|pool| pool.is_of_rows = false),
    |it| it.pools.iter_mut().for_each(|pool| pool.cost = 1),
    |it| it.limits.truncate(1),
    |it| it.pause = None,
    |it| it.stall = None,
    |it| it.max_wait = None,
    |it| it.adaptive_limit = None,
    |it| it.adaptive_rate = false,
    |it| it.retry_budget = None,
    |it| it.hidden = None,
    |it| it.retry = None,
    |it| it.attempt_timeout = None,
    |it| it.asks_on_timeout = false,
    |it| it.is_repeatable = true,
    |it| it.timeout = None,
    |it| it.on_error = Failing::Null,
    |it| it.max_concurrency = it.max_concurrency.div_ceil(2),
    |it| it.limits.iter_mut().for_each(|limit| limit.is_of_rows = false),
    |it| it.limits.iter_mut().for_each(|limit| limit.cost = 1),
    |it| it.limits.iter_mut().for_each(|limit| limit.is_settled = false),
    |it| it.limits.iter_mut().for_each(|limit| limit.is_told = false),
];

const SCRIPT_CHANGES: &[fn(&mut Script)] = &[
    |it| it.late = 0,
    |it| it.never = 0,
    |it| it.twice = 0,
    |it| it.after_cancel = 0,
    |it| it.fails = 0,
    |it| it.retries = 0,
    |it| it.says_when = 0,
    |it| it.pauses = 0,
    |it| it.returns_retry = 0,
    |it| it.nothing = 0,
    |it| it.several = 0,
    |it| it.least = it.most,
];
