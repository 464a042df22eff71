// SPDX-License-Identifier: Apache-2.0
//! What holds when a task has ended: no row is missing, nothing is counted twice.

use sparkawait_runtime::OperatorMetrics;

use crate::model::{Model, Outcome, Site};
use crate::rules::RULES;
use crate::scenario::{Failing, Scenario};
use crate::trace::{Broken, Id, child_id, head_id};

/// What a row came to at a function, as far as a row behind it shows.
enum Came {
    Results(i64, u32),
    Null,
    Nothing,
}

/// Follows each row of the input to the output.
pub fn account(scenario: &Scenario, model: &Model, now: u64) -> Result<(), Broken> {
    let rows = i64::try_from(model.fed.len()).unwrap_or_default();
    if usize::try_from(rows).unwrap_or_default() != scenario.rows() {
        let what = format!("{rows} of {} were taken", scenario.rows());
        return Err(Broken::new("the whole input is taken", what));
    }
    for row in 0..rows {
        let at = model.fed[usize::try_from(row).unwrap_or_default()];
        follow(scenario, model, 0, (head_id(row), row), at, now)?;
    }
    Ok(())
}

fn follow(
    scenario: &Scenario,
    model: &Model,
    operator: usize,
    (id, row): (Id, i64),
    at: u64,
    now: u64,
) -> Result<(), Broken> {
    if operator == scenario.operators.len() {
        if model.arrived[operator].contains_key(&id) {
            return Ok(());
        }
        return Err(Broken::new("each row once", format!("row {row} is not in the output")));
    }
    let mut came = Vec::new();
    for site in model.sites_of(operator) {
        came.push(came_to(&model.sites[site], (id, row), at, now)?);
    }
    if came.iter().any(|it| matches!(it, Came::Nothing)) {
        return Ok(());
    }
    let most = came.iter().map(|it| if let Came::Results(_, count) = it { *count } else { 1 });
    for index in 0..most.max().unwrap_or_default() {
        let values = came.iter().map(|it| match it {
            Came::Results(serial, _) => Some(serial * 8 + i64::from(index)),
            Came::Null | Came::Nothing => None,
        });
        let child = child_id(id, &values.collect::<Vec<_>>());
        follow(scenario, model, operator + 1, (child, row), at, now)?;
    }
    Ok(())
}

fn came_to(site: &Site, (id, row): (Id, i64), at: u64, now: u64) -> Result<Came, Broken> {
    let failed = match site.plan.on_error {
        Failing::Drop => Came::Nothing,
        Failing::Fail | Failing::Null | Failing::Capture => Came::Null,
    };
    let pending = |what: String| Err(Broken::new("each row once", format!("row {row}: {what}")));
    match site.rows.get(&id) {
        None if site.may_time_out_uncalled(at, now) => Ok(failed),
        None => pending(format!("function of operator {} was not called", site.operator)),
        Some(known) => match known.state() {
            Some(Outcome::Results { count: 0, .. }) => Ok(Came::Nothing),
            Some(Outcome::Results { serial, count }) => Ok(Came::Results(serial, count)),
            Some(Outcome::Failed(_)) => Ok(failed),
            None if site.may_time_out(known, now) => Ok(failed),
            None => pending(format!("it is not done: {known:?}")),
        },
    }
}

/// Compares what operators have counted with what was seen of them.
pub fn compare(
    scenario: &Scenario,
    model: &Model,
    metrics: &[OperatorMetrics],
) -> Result<(), Broken> {
    let (mut position, mut site) = (0, 0);
    for plan in &scenario.operators {
        position += usize::from(plan.is_fan_out);
        for _ in &plan.calls {
            let (seen, counted) = (&model.sites[site], &metrics[position].operator);
            let made = &seen.made;
            let further = counted.retries + counted.parts;
            // Behind a cache a call is an attempt once it is made, so one in vain does not count.
            let is_cached = seen.plan.cache.is_some();
            let vain = if is_cached {
                counted.cancelled.saturating_sub(seen.cancels)
            } else {
                counted.attempts.saturating_sub(made.calls)
            };
            let least = |seen: u64, counted: u64| {
                let may_be_more = RULES.a_call_in_vain_counts && !is_cached;
                let is_close = may_be_more && counted.saturating_sub(seen) <= vain;
                if is_close { counted.max(seen) } else { seen }
            };
            let pairs = [
                ("attempts", least(made.calls, counted.attempts), counted.attempts),
                ("retries and parts", least(made.retries, further), further),
                ("hedged", least(made.hedges, counted.hedged), counted.hedged),
                ("calls in vain", counted.cancelled, seen.cancels + vain),
                ("emitted", counted.admitted, counted.emitted),
                ("in_flight", 0, counted.in_flight as u64),
                ("queue_size", 0, counted.queue_size as u64),
            ];
            for (name, seen, counted) in pairs {
                if seen != counted {
                    let what = format!("{name} of function {site}: {seen} seen, {counted} counted");
                    return Err(Broken::new("counters say what was seen", what));
                }
            }
            (position, site) = (position + 1, site + 1);
        }
    }
    Ok(())
}
