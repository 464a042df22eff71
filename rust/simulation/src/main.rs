// SPDX-License-Identifier: Apache-2.0
//! `simulate 0..10000`: runs scenarios, and shows the first that breaks a rule, made smaller.

#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use std::process::ExitCode;

use sparkawait_simulation::run::run;
use sparkawait_simulation::scenario::Scenario;
use sparkawait_simulation::shrink::shrink;

/// Events that are shown of a scenario, the last ones.
const SHOWN: usize = 60;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // What panics is told as a broken rule.
    std::panic::set_hook(Box::new(|_| {}));
    if let Some(scenario) = arguments.first().and_then(|it| kept(it)) {
        return show(&scenario);
    }
    let Some((first, end)) = arguments.first().and_then(|it| range(it)) else {
        println!("usage: simulate FIRST..END [--keep-going | --first | --show], or SCENARIO.json");
        return ExitCode::from(2);
    };
    let keeps_going = arguments.iter().any(|it| it == "--keep-going");
    let (mut rows, mut events, mut failed) = (0, 0, 0);
    for seed in first..end {
        let scenario = Scenario::draw(seed);
        if arguments.iter().any(|it| it == "--show") {
            return show(&scenario);
        }
        let report = run(&scenario);
        rows += report.rows;
        events += report.events.len();
        let Some(broken) = report.broken else { continue };
        failed += 1;
        println!("seed {seed}: {broken}");
        if arguments.iter().any(|it| it == "--first") {
            return ExitCode::FAILURE;
        }
        if !keeps_going {
            return show(&shrink(&scenario));
        }
    }
    println!("{} seeds, {failed} failed; {rows} rows left, {events} events", end - first);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn range(text: &str) -> Option<(u64, u64)> {
    let (first, end) = text.split_once("..")?;
    Some((first.parse().ok()?, end.parse().ok()?))
}

fn kept(path: &str) -> Option<Scenario> {
    serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()
}

fn show(scenario: &Scenario) -> ExitCode {
    let report = run(scenario);
    let first = report.events.len().saturating_sub(SHOWN);
    for event in &report.events[first..] {
        println!("{:>15} {:?}", event.at, event.what);
    }
    let Some(broken) = report.broken else { return ExitCode::SUCCESS };
    println!("broken: {broken}");
    match serde_json::to_string(scenario) {
        Ok(json) => println!("scenario: {json}"),
        Err(error) => println!("{scenario:?} ({error})"),
    }
    ExitCode::FAILURE
}
