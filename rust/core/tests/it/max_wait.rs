// SPDX-License-Identifier: Apache-2.0
//! For how long records wait for a destination that is not there, and that they wait for any other.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::num::{NonZeroU64, NonZeroUsize};
use std::time::Duration;

use sparkawait_core::flow::ChannelConfig;
use sparkawait_core::operator::{Completion, Config, Ended, Failure, OutputMode, Retry};
use sparkawait_core::policy::{CallSign, Gcra, LimitConfig, PauseConfig, PolicyConfig, Rate};
use sparkawait_core::time::ProcessingTime;

use crate::support::world::{Answer, CALL, Call, World, at, config};

const SECOND: Duration = Duration::from_secs(1);
/// That of `config`.
const TIMEOUT: Duration = Duration::from_secs(5);
const MODES: [OutputMode; 3] = [OutputMode::Ordered, OutputMode::Unordered, OutputMode::KeyOrdered];

/// Three calls of a channel, of seven, and no retries.
fn spread(mode: OutputMode, policy: &PolicyConfig) -> Config {
    let channels = ChannelConfig { max_per_channel: 3, ..ChannelConfig::floating(7, 10_000) };
    Config {
        max_concurrency: NonZeroUsize::new(7).unwrap(),
        retry: None,
        channels: Some(ChannelConfig { policy: *policy, ..channels }),
        ..config(mode)
    }
}

fn never() -> Answer {
    Answer { completion: None, ..Answer::good() }
}

fn unreachable() -> Answer {
    let lost = Completion::failed((), Retry::No, CallSign::Unreachable);
    Answer { completion: Some(lost), ..Answer::good() }
}

/// Opens after two lost calls, and probes once in 700 ms or so.
fn breaker() -> PolicyConfig {
    let every = Duration::from_millis(700);
    let pause = PauseConfig { initial: every, maximum: every, ..PauseConfig::new(Some(2), 3, 7) };
    PolicyConfig { pause: Some(pause), ..PolicyConfig::NONE }
}

/// What a record has waited for in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unavailable {
    waited: Duration,
    is_paused: bool,
}

/// Values, when they left, and why, of those that were not called.
fn given_up<A: FnMut(Call) -> Answer>(world: &World<A>) -> Vec<(u64, ProcessingTime, Unavailable)> {
    let unavailable = |failure: &Failure<()>| match failure {
        Failure::Ended(why) => match why.0 {
            Ended::Unavailable { waited, is_paused } => Some(Unavailable { waited, is_paused }),
            _ => None,
        },
        _ => None,
    };
    let found = world.emitted.iter().filter_map(|(value, outcome, when)| {
        Some((*value, *when, unavailable(outcome.as_ref().err()?)?))
    });
    found.collect()
}

#[test]
fn records_of_a_destination_that_answers_wait_as_long_as_it_takes() {
    for mode in MODES {
        let rate = Rate::new(NonZeroU64::new(7).unwrap(), SECOND).unwrap();
        let limit = LimitConfig::new(Gcra::new(rate, NonZeroU64::MIN));
        for policy in [PolicyConfig::NONE, PolicyConfig::limited(limit)] {
            let config =
                Config { max_wait: Some(Duration::from_nanos(1)), ..spread(mode, &policy) };
            let slow = |_: Call| Answer { after: 4 * SECOND, ..Answer::good() };
            let mut world = World::new(config, 2, slow);

            world.run(53);

            assert_eq!((world.emitted.len(), world.failed()), (53, 0), "{mode:?} {policy:?}");
            assert!(world.now > at(5 * TIMEOUT), "{mode:?}: they have waited for long");
        }
    }
}

#[test]
fn one_call_that_hangs_ends_no_record_behind_it() {
    for mode in MODES {
        for rate in [None, Some(Rate::new(NonZeroU64::MIN, 61 * SECOND).unwrap())] {
            let limit = rate.map(|it| LimitConfig::new(Gcra::new(it, NonZeroU64::MIN)));
            let policy = limit.map_or(PolicyConfig::NONE, PolicyConfig::limited);
            let one = Config { max_concurrency: NonZeroUsize::MIN, ..spread(mode, &policy) };
            let hangs = |it: Call| if it.value == 1 { never() } else { Answer::good() };
            let mut world = World::new(one, 1, hangs);

            world.run(11);

            assert_eq!((world.emitted.len(), world.failed()), (11, 1), "{mode:?} {rate:?}");
            assert!(given_up(&world).is_empty());
        }
    }
}

#[test]
fn records_wait_for_a_silent_destination_as_long_as_they_are_to() {
    for (max_wait, waits) in [(None, 5_000), (Some(13), 13), (Some(31_007), 31_007)] {
        let max_wait = max_wait.map(Duration::from_millis);
        let config = Config { max_wait, ..spread(OutputMode::Unordered, &PolicyConfig::NONE) };
        let is_dead = |it: Call| if it.channel == 0 { never() } else { Answer::good() };
        let mut world = World::new(config, 2, is_dead);

        world.run(61);

        assert_eq!(world.emitted.len(), 61);
        let given_up = given_up(&world);
        let due = at(TIMEOUT + Duration::from_millis(waits));
        assert!(given_up.iter().all(|it| it.1 == due && it.0 % 2 == 0), "{max_wait:?}");
        let called = world.made.iter().filter(|it| it.channel == 0).count();
        // Three each time that the timeout has passed.
        let rounds = usize::try_from(1 + (5_000 + waits - 1) / 5_000).unwrap();
        assert_eq!((given_up.len() + called, called), (31, (3 * rounds).min(31)), "{max_wait:?}");
        assert_eq!(world.failed(), 31, "the others notice nothing");
    }
}

#[test]
fn records_wait_while_a_circuit_breaker_is_open_but_not_for_ever() {
    for mode in MODES {
        for channels in [0, 2] {
            let mut config = spread(mode, &breaker());
            if channels == 0 {
                config.channels = Some(ChannelConfig::single(breaker()));
            }
            let mut world = World::new(config, channels, |_| unreachable());

            world.run(997);

            assert_eq!((world.emitted.len(), world.failed()), (997, 997), "{mode:?} {channels}");
            let given_up = given_up(&world);
            assert!(given_up.iter().all(|it| it.2.is_paused && it.2.waited >= TIMEOUT));
            // A probe in 630 ms at the earliest finds that nothing has changed.
            let most = 14 + 2 * usize::try_from(world.now.as_nanos() / 630_000_000).unwrap();
            assert!(world.made.len() <= most, "{} calls", world.made.len());
            // Those that have waited end together, and not one with each probe.
            let ends = 997 / 800 + 1;
            assert!(world.now < at(TIMEOUT * (ends + 2)), "{mode:?} {channels}: {:?}", world.now);
        }
    }
}

#[test]
fn a_pause_that_a_destination_asks_for_is_waited_out_unless_somebody_says_for_how_long() {
    let pause = 61 * SECOND;
    for mode in MODES {
        for (max_wait, fails) in [(None, 0), (Some(7 * SECOND), 16), (Some(62 * SECOND), 0)] {
            let config = Config { max_wait, ..spread(mode, &PolicyConfig::NONE) };
            let busy = Completion::failed((), Retry::No, CallSign::Overloaded);
            let asks = |it: Call| match it.value {
                0 => Answer { after: CALL, completion: Some(busy), pause: Some(pause) },
                _ => Answer::good(),
            };
            let mut world = World::new(config, 1, asks);

            world.run(19);

            assert_eq!(world.emitted.len(), 19);
            assert_eq!(given_up(&world).len(), fails, "{mode:?} {max_wait:?}");
            assert_eq!(world.failed(), 1 + fails, "{mode:?} {max_wait:?}");
        }
    }
}

#[test]
fn without_a_timeout_silence_says_nothing_and_a_circuit_breaker_does_if_there_is_a_bound() {
    let slow = |_: Call| Answer { after: 977 * SECOND, ..Answer::good() };
    let config = Config { timeout: None, ..spread(OutputMode::Unordered, &PolicyConfig::NONE) };
    let mut world = World::new(Config { max_wait: Some(SECOND), ..config }, 1, slow);
    world.run(13);
    assert_eq!((world.emitted.len(), world.failed()), (13, 0));

    let config = Config { timeout: None, ..spread(OutputMode::Unordered, &breaker()) };
    let mut world =
        World::new(Config { max_wait: Some(3 * SECOND), ..config }, 1, |_| unreachable());
    world.run(101);

    assert_eq!((world.emitted.len(), world.failed()), (101, 101));
    assert!(world.now < at(5 * SECOND), "{:?}", world.now);
}

#[test]
fn the_function_is_asked_what_a_record_puts_out_that_has_waited_too_long() {
    let mut config = spread(OutputMode::Unordered, &PolicyConfig::NONE);
    config.asks_on_timeout = true;
    let mut world = World::new(config, 1, |_| never());
    world.run_until(7, at(TIMEOUT + TIMEOUT));
    let asked = std::mem::take(&mut world.operator.actions().ask_timeout);

    // Three were called at first, three after them, and one was not.
    assert_eq!(asked.len(), 7);
    for it in asked {
        let answer = Completion::answered((), Retry::No);
        world.operator.handle_completion(it.attempt, answer, world.now);
    }
    world.run_until(0, ProcessingTime::NEVER);

    assert_eq!((world.emitted.len(), world.failed()), (7, 0));
}
