// SPDX-License-Identifier: Apache-2.0
//! What a circuit breaker holds ends with no outage, however few records there are.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::num::NonZeroUsize;
use std::time::Duration;

use sparkawait_core::flow::ChannelConfig;
use sparkawait_core::operator::{Completion, Config, Ended, Failure, OutputMode, Retry};
use sparkawait_core::policy::RetryBudgetConfig;
use sparkawait_core::policy::{CallSign, HedgeAfter, HedgeConfig, PauseConfig, PolicyConfig};
use sparkawait_core::retry::AsyncRetryStrategy;

use crate::support::world::{Answer, CALL, Call, World, at, config};

const SECOND: Duration = Duration::from_secs(1);
const MODES: [OutputMode; 3] = [OutputMode::Ordered, OutputMode::Unordered, OutputMode::KeyOrdered];
const OUTAGE: Duration = Duration::from_secs(180);

/// The circuit breaker that `True` means.
fn breaker() -> PolicyConfig {
    PolicyConfig { pause: Some(PauseConfig::new(Some(20), 100, 7)), ..PolicyConfig::NONE }
}

/// Three retries, and records that wait for 17 minutes.
fn patient(mode: OutputMode, policy: &PolicyConfig, channels: u64) -> Config {
    let spread = ChannelConfig { policy: *policy, ..ChannelConfig::floating(100, 10_000) };
    Config {
        max_concurrency: NonZeroUsize::new(100).unwrap(),
        max_wait: Some(1_021 * SECOND),
        retry: Some(AsyncRetryStrategy::fixed_delay(3, Duration::from_millis(97))),
        channels: Some(if channels == 0 { ChannelConfig::single(*policy) } else { spread }),
        ..config(mode)
    }
}

fn dropped(retry: Retry, sign: CallSign) -> Answer {
    Answer { after: CALL, completion: Some(Completion::failed((), retry, sign)), pause: None }
}

fn lost() -> Answer {
    dropped(Retry::Yes, CallSign::Overloaded)
}

/// Drops its calls until then, and answers those that come later.
fn down_until(end: Duration) -> impl FnMut(Call) -> Answer {
    move |it: Call| if it.at < at(end) { lost() } else { Answer::good() }
}

/// How many ended because no try was left, and because they had waited for too long.
fn ended<A: FnMut(Call) -> Answer>(world: &World<A>) -> (usize, usize) {
    let count = |is: fn(&Failure<()>) -> bool| {
        world.emitted.iter().filter_map(|it| it.1.as_ref().err()).filter(|it| is(it)).count()
    };
    let is_unavailable = |it: &Failure<()>| matches!(it, Failure::Ended(why) if matches!(why.0, Ended::Unavailable { .. }));
    (count(|it| matches!(it, Failure::RetriesExhausted(()))), count(is_unavailable))
}

#[test]
fn a_few_records_wait_for_a_destination_that_is_down_for_minutes() {
    for mode in MODES {
        for records in [1, 2, 4, 13, 53] {
            let mut world = World::new(patient(mode, &breaker(), 0), 0, down_until(OUTAGE));

            world.run(records);

            let count = usize::try_from(records).unwrap();
            assert_eq!((world.emitted.len(), world.failed()), (count, 0), "{mode:?} {records}");
            // Four attempts of each at most, a probe at 1, 3, 7, 15 s .., and the calls that are answered.
            let probes = world.made.iter().filter(|it| it.at > at(SECOND)).count() - count;
            assert!(probes <= 9, "{mode:?} {records}: {probes} probes");
            assert!(world.made.len() <= 4 * count + 9 + count, "{} calls", world.made.len());
        }
    }
}

#[test]
fn each_destination_is_waited_for_on_its_own() {
    for mode in MODES {
        let mut down = down_until(OUTAGE);
        let answer = move |it: Call| if it.channel == 2 { down(it) } else { Answer::good() };
        let mut world = World::new(patient(mode, &breaker(), 3), 3, answer);

        world.run(13);

        assert_eq!((world.emitted.len(), world.failed()), (13, 0), "{mode:?}");
        let well = world.made.iter().filter(|it| it.channel != 2);
        assert!(well.clone().all(|it| it.at < at(SECOND)) && well.count() == 9);
    }
}

#[test]
fn an_outage_takes_one_try_however_often_it_comes_back() {
    // It answers one call after half a minute, and then none for half a minute.
    let mut up_at = at(30 * SECOND);
    let flaps = |it: Call| {
        if it.at < up_at {
            return lost();
        }
        up_at = it.at + 30 * SECOND;
        Answer::good()
    };
    let mut world = World::new(patient(OutputMode::Unordered, &breaker(), 0), 0, flaps);

    world.run(4);

    assert_eq!((world.emitted.len(), world.failed()), (4, 0));
    assert!(world.now > at(120 * SECOND));
}

#[test]
fn a_record_that_is_dropped_for_what_is_in_it_ends_as_others_are_answered() {
    for mode in MODES {
        let poison = |it: Call| if it.value == 5 { lost() } else { Answer::good() };
        let mut world = World::new(patient(mode, &breaker(), 0), 0, poison);
        world.gap = Duration::from_millis(70);

        world.run(97);

        assert_eq!((world.emitted.len(), world.failed()), (97, 1), "{mode:?}");
        assert_eq!(ended(&world), (1, 0), "{mode:?}");
        let calls = world.made.iter().filter(|it| it.value == 5).count();
        assert_eq!(calls, 4, "{mode:?}");
    }
}

#[test]
fn several_of_them_keep_no_other_from_being_called() {
    for mode in [OutputMode::Ordered, OutputMode::Unordered] {
        let poison = |it: Call| if it.value % 11 == 7 { lost() } else { Answer::good() };
        let narrow = Config {
            max_concurrency: NonZeroUsize::new(3).unwrap(),
            ..patient(mode, &breaker(), 0)
        };
        let mut world = World::new(narrow, 0, poison);

        world.run(143);

        assert_eq!((world.emitted.len(), world.failed()), (143, 13), "{mode:?}");
        // Those that are left at the end have nobody whose answer would tell.
        let (exhausted, waited) = ended(&world);
        assert_eq!((exhausted + waited, waited), (13, 3), "{mode:?}");
    }
}

#[test]
fn one_that_is_alone_ends_before_those_that_wait_for_it_have_waited_too_long() {
    for max_wait in [7 * SECOND, 61 * SECOND, 1_021 * SECOND] {
        for mode in MODES {
            let config = Config { max_wait: Some(max_wait), ..patient(mode, &breaker(), 0) };
            let poison = |it: Call| if it.value == 5 { lost() } else { Answer::good() };
            let mut world = World::new(config, 0, poison);
            world.keys = 1;

            world.run(13);

            // Without keys it is the last one, and nobody waits for it.
            let is_last = usize::from(mode != OutputMode::KeyOrdered);
            let ended = ended(&world);
            assert_eq!((world.emitted.len(), world.failed()), (13, 1), "{max_wait:?} {mode:?}");
            assert_eq!(ended, (1 - is_last, is_last), "{max_wait:?} {mode:?}");
            let calls = world.made.iter().filter(|it| it.value == 5).count();
            assert!(calls <= 4 + 7 + 17, "{max_wait:?} {mode:?}: {calls} calls");
        }
    }
}

#[test]
fn without_a_circuit_breaker_or_with_one_that_refuses_each_drop_takes_a_try() {
    let refuses = PauseConfig { refuses: true, ..PauseConfig::new(Some(20), 100, 7) };
    let refuses = PolicyConfig { pause: Some(refuses), ..PolicyConfig::NONE };
    for policy in [PolicyConfig::NONE, refuses] {
        let config = patient(OutputMode::Unordered, &policy, 0);
        let mut world = World::new(config, 0, down_until(OUTAGE));

        world.run(4);

        assert_eq!((world.emitted.len(), ended(&world)), (4, (4, 0)), "{policy:?}");
        assert_eq!(world.made.len(), 16);
    }
}

#[test]
fn without_retries_a_drop_is_final() {
    let config = Config { retry: None, ..patient(OutputMode::Unordered, &breaker(), 0) };
    let mut world = World::new(config, 0, down_until(OUTAGE));

    world.run(4);

    assert_eq!((world.failed(), world.made.len()), (4, 4));
}

#[test]
fn attempts_that_get_no_answer_and_second_calls_are_drops_like_others() {
    let attempt_timeout = Some(Duration::from_millis(331));
    let hedge = HedgeConfig { after: HedgeAfter::Time(Duration::from_millis(31)), max_extra: 1.0 };
    for hedge in [None, Some(hedge)] {
        let base = patient(OutputMode::Unordered, &breaker(), 0);
        let config = Config { attempt_timeout, hedge, ..base };
        let silent = |it: Call| Answer {
            completion: Answer::good().completion.filter(|_| it.at >= at(OUTAGE)),
            ..Answer::good()
        };
        let mut world = World::new(config, 0, silent);

        world.run(4);

        assert_eq!((world.emitted.len(), world.failed()), (4, 0), "{hedge:?}");
        assert!(world.made.len() < 60, "{} calls", world.made.len());
    }
}

#[test]
fn a_probe_pays_its_budget_as_any_retry() {
    let budget = RetryBudgetConfig::new(0.2, 3);
    let policy = PolicyConfig { retry_budget: Some(budget), ..breaker() };
    let config = patient(OutputMode::Unordered, &policy, 0);
    let config = Config { timeout: Some(17 * SECOND), ..config };
    let mut world = World::new(config, 0, down_until(OUTAGE));

    world.run(13);

    assert_eq!((world.emitted.len(), world.failed()), (13, 0));
    for second in 0..180 {
        let from = at(SECOND * second);
        let of_it = |it: &&Call| it.attempt > 1 && it.at >= from && it.at < from + SECOND;
        let retries = world.made.iter().filter(of_it).count();
        assert!(retries <= 3 + 3, "{retries} in second {second}");
    }
}

#[test]
fn an_outage_takes_one_try_however_often_the_job_starts_again() {
    for mode in MODES {
        for channels in [0, 3] {
            let config = || patient(mode, &breaker(), channels);
            let mut world = World::new(config(), channels, down_until(OUTAGE));
            world.run_until(4, at(3 * SECOND));
            for restarts in 1..13 {
                world.restart(config());
                world.run_until(0, at((3 + 7 * restarts) * SECOND));
            }

            world.run(0);

            assert_eq!((world.emitted.len(), world.failed()), (4, 0), "{mode:?} {channels}");
        }
    }
}

#[test]
fn second_calls_change_nothing_for_those_that_wait_for_one_that_is_at_fault() {
    let hedge = HedgeConfig { after: HedgeAfter::Time(Duration::from_millis(3)), max_extra: 1.0 };
    let base = patient(OutputMode::KeyOrdered, &breaker(), 0);
    let config = Config { hedge: Some(hedge), is_repeatable: true, ..base };
    let poison = |it: Call| if it.value == 5 { lost() } else { Answer::good() };
    let mut world = World::new(config, 0, poison);
    world.keys = 1;

    world.run(13);

    assert!(world.made.iter().any(|it| it.value == 5 && it.is_hedge));
    assert_eq!((world.emitted.len(), world.failed(), ended(&world)), (13, 1, (1, 0)));
}
