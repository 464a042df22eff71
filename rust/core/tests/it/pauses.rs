// SPDX-License-Identifier: Apache-2.0
//! Destinations that ask for pauses, under an operator on a manual clock: none is called meanwhile,
//! others are, and nobody is too late because of it.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::num::NonZeroUsize;
use std::time::Duration;

use sparkawait_core::flow::ChannelConfig;
use sparkawait_core::operator::{
    Completion, Config, EndOfInput, Ended, Failure, OutputMode, Retry,
};
use sparkawait_core::policy::{
    AdaptiveLimitConfig, CallSign, Gcra, HedgeAfter, HedgeConfig, LimitConfig, PauseConfig,
    PolicyConfig, Rate, RetryBudgetConfig,
};
use sparkawait_core::retry::AsyncRetryStrategy;
use sparkawait_core::time::ProcessingTime;

use crate::support::world::{Answer, CALL, Call, World, at, config};

const SECOND: Duration = Duration::from_secs(1);
const MODES: [OutputMode; 3] = [OutputMode::Ordered, OutputMode::Unordered, OutputMode::KeyOrdered];

fn spread(config: Config) -> Config {
    let channels = ChannelConfig::floating(100, 10_000);
    Config { channels: Some(ChannelConfig { max_per_channel: 50, ..channels }), ..config }
}

/// Refuses the call, and asks for so long a pause.
fn busy(delay: Duration) -> Answer {
    let refused = Completion::failed((), Retry::After(delay), CallSign::Overloaded);
    Answer { after: CALL, completion: Some(refused), pause: Some(delay) }
}

/// Asks for a pause of two seconds once, by the first call to the first destination.
fn busy_once(call: Call) -> Answer {
    let is_first = call.value == 0 && call.attempt == 1;
    if is_first { busy(2 * SECOND) } else { Answer::good() }
}

#[test]
fn no_call_of_a_channel_starts_while_its_destination_asks_for_a_pause() {
    for mode in MODES {
        let mut world = World::new(spread(config(mode)), 2, busy_once);

        world.run(400);

        assert_eq!((world.emitted.len(), world.failed()), (400, 0), "{mode:?}");
        let pause = at(CALL)..at(CALL + 2 * SECOND);
        let is_during = |it: &&Call, channel| it.channel == channel && pause.contains(&it.at);
        let during = |channel| world.made.iter().filter(|it| is_during(it, channel)).count();
        assert_eq!(during(0), 0, "{mode:?}");
        assert!(during(1) > 100, "{mode:?}: others go on");
    }
}

#[test]
fn a_task_without_channels_has_one_for_all() {
    for mode in MODES {
        let mut world = World::new(config(mode), 0, busy_once);

        world.run(400);

        assert_eq!((world.emitted.len(), world.failed()), (400, 0), "{mode:?}");
        let pause = at(CALL)..at(CALL + 2 * SECOND);
        assert_eq!(world.made.iter().filter(|it| pause.contains(&it.at)).count(), 0, "{mode:?}");
        assert_eq!(world.made.len(), 401);
        // After it, as many are called at a time as before.
        let again = world.made.iter().filter(|it| it.at == pause.end).count();
        assert_eq!(again, if mode == OutputMode::KeyOrdered { 3 } else { 100 }, "{mode:?}");
    }
}

#[test]
fn records_that_were_never_called_do_not_age_in_a_pause() {
    // Every tenth call is refused for longer than a record has, all in all.
    let answer = |call: Call| match (call.value % 10, call.attempt) {
        (0, 1) => busy(4 * SECOND),
        _ => Answer::good(),
    };
    for mode in MODES {
        for channels in [0, 2] {
            let config = if channels == 0 { config(mode) } else { spread(config(mode)) };
            let one = Config { max_concurrency: NonZeroUsize::MIN, ..config };
            let mut world = World::new(one, channels, answer);

            world.run(40);

            assert_eq!((world.emitted.len(), world.failed()), (40, 0), "{mode:?} {channels}");
        }
    }
}

#[test]
fn a_pause_beyond_the_deadline_of_the_refused_record_fails_it_at_once() {
    let mut world = World::new(config(OutputMode::Unordered), 0, |call: Call| {
        if call.value == 0 { busy(60 * SECOND) } else { Answer::good() }
    });

    world.run(1);

    let (_, outcome, when) = world.emitted.pop().unwrap();
    assert_eq!(when, at(CALL));
    let Err(Failure::Ended(reason)) = outcome else { unreachable!("it has failed") };
    assert!(matches!(reason.0, Ended::TooLate { .. }));
}

#[test]
fn a_destination_that_asks_for_ever_is_asked_again_after_an_hour() {
    let mut world = World::new(config(OutputMode::Unordered), 0, |call: Call| match call.value {
        0 => busy(Duration::MAX),
        _ => Answer::good(),
    });
    world.run(101);
    assert_eq!(world.failed(), 1);
    assert_eq!(world.made.last().unwrap().at, at(CALL + 3600 * SECOND));
}

#[test]
fn old_news_of_calls_that_started_earlier_changes_nothing() {
    // The first call is answered last, and asks for more than the second one did.
    let answer = |call: Call| match call.value {
        0 => Answer { after: 10 * CALL, ..busy(4 * SECOND) },
        1 => busy(SECOND),
        _ => Answer::good(),
    };
    let first =
        Config { max_concurrency: NonZeroUsize::new(2).unwrap(), ..config(OutputMode::Unordered) };
    let mut world = World::new(first, 0, answer);
    world.gap = CALL / 2;

    world.run(4);

    let third = world.made.iter().find(|it| it.value == 2).unwrap();
    assert_eq!(third.at, at(CALL / 2 + CALL + SECOND));
}

#[test]
fn a_pause_holds_whatever_becomes_of_the_record() {
    // Without a strategy the record fails; the others wait all the same.
    let config = Config { retry: None, ..config(OutputMode::Unordered) };
    let mut world = World::new(config, 0, busy_once);
    world.run(200);
    assert_eq!(world.failed(), 1);
    let second = world.made.iter().find(|it| it.at > at(Duration::ZERO)).unwrap();
    assert_eq!(second.at, at(CALL + 2 * SECOND));
}

#[test]
fn a_hedged_task_takes_its_second_calls_along() {
    let hedge = HedgeConfig { after: HedgeAfter::Time(CALL), max_extra: 1.0 };
    let config = Config { hedge: Some(hedge), ..config(OutputMode::Unordered) };
    let mut world = World::new(config, 0, |call: Call| match call.value {
        // A slow one: a second call runs beside it when the pause is asked for.
        1 if call.is_hedge => Answer { after: 5 * CALL, ..Answer::good() },
        1 => Answer { after: 20 * CALL, ..Answer::good() },
        2 if call.attempt == 1 => Answer { after: 3 * CALL, ..busy(SECOND) },
        _ => Answer::good(),
    });
    world.run(300);
    assert_eq!((world.emitted.len(), world.failed()), (300, 0));
    assert_eq!(world.operator.in_flight(), 0);
}

/// A service that lets 100 calls a second pass, and saves up as many.
struct Service {
    /// What others have left of it.
    saved: f64,
    as_of: ProcessingTime,
    refused: u64,
}

impl Service {
    fn answer(&mut self, call: Call) -> Answer {
        let come = call.at.saturating_since(self.as_of).as_secs_f64() * 100.0;
        (self.saved, self.as_of) = ((self.saved + come).min(100.0), call.at);
        if self.saved < 1.0 {
            self.refused += 1;
            return busy(SECOND / 2);
        }
        self.saved -= 1.0;
        Answer::good()
    }
}

/// This many calls a second; it saves a second's worth.
fn limited(permits: u64, is_per_channel: bool) -> PolicyConfig {
    let permits = permits.try_into().unwrap();
    let limit = Gcra::new(Rate::new(permits, SECOND).unwrap(), permits);
    PolicyConfig::limited(LimitConfig { is_per_channel, ..LimitConfig::new(limit) })
}

#[test]
fn what_a_limit_has_saved_is_given_up_when_its_service_has_nothing_left() {
    for (channels, is_per_channel) in [(0, false), (0, true), (1, true)] {
        let policy = limited(100, is_per_channel);
        let few = Config {
            max_concurrency: NonZeroUsize::new(10).unwrap(),
            ..bounded(OutputMode::Unordered, &policy, channels)
        };
        let mut service = Service { saved: 0.0, as_of: at(Duration::ZERO), refused: 0 };
        let mut world = World::new(few, channels, |call| service.answer(call));

        world.run(600);

        let took = world.now;
        assert_eq!((world.emitted.len(), world.failed()), (600, 0));
        // Those that were on their way when the first one was refused, and no more of them.
        assert_eq!(service.refused, 10, "{channels} {is_per_channel}");
        assert!(took <= at(6 * SECOND + SECOND / 4), "{took:?}");
    }
}

#[test]
fn slow_calls_that_are_answered_still_are_not_paid_for_again_when_another_one_is_refused() {
    let refused_at = at(20 * SECOND);
    let slow = |call: Call| match call.value {
        200 if call.attempt == 1 => busy(SECOND),
        _ => Answer { after: 30 * SECOND, ..Answer::good() },
    };
    let patient = Config {
        timeout: None,
        max_concurrency: NonZeroUsize::new(400).unwrap(),
        ..bounded(OutputMode::Unordered, &limited(10, false), 0)
    };
    let mut world = World::new(patient, 0, slow);
    // Two hundred are in flight when the next one is refused.
    world.gap = SECOND / 10;

    world.run(300);

    assert_eq!((world.emitted.len(), world.failed()), (300, 0));
    let refused = world.made.iter().find(|it| it.value == 200).unwrap().at;
    assert!(refused >= refused_at && refused < refused_at + SECOND, "{refused:?}");
    let next = world.made.iter().find(|it| it.at > refused + CALL).unwrap().at;
    assert!(next >= refused + CALL + SECOND && next <= refused + CALL + 2 * SECOND, "{next:?}");
}

/// What bounds the calls of a destination, for a task without channels or with them.
fn bounded(mode: OutputMode, policy: &PolicyConfig, channels: u64) -> Config {
    let single = ChannelConfig::single(*policy);
    let several = ChannelConfig {
        policy: *policy,
        max_per_channel: 50,
        ..ChannelConfig::floating(100, 20_000)
    };
    Config { channels: Some(if channels == 0 { single } else { several }), ..config(mode) }
}

fn lost() -> Answer {
    let failed = Completion::failed((), Retry::Yes, CallSign::Unreachable);
    Answer { completion: Some(failed), ..Answer::good() }
}

fn pausing(refuses: bool) -> PolicyConfig {
    let pause = PauseConfig { refuses, ..PauseConfig::new(Some(20), 100, 7) };
    PolicyConfig { pause: Some(pause), ..PolicyConfig::NONE }
}

#[test]
fn a_dead_destination_is_probed_at_most_twelve_times_in_five_minutes_and_others_are_untouched() {
    let (dead_for, minutes) = (at(300 * SECOND), 6);
    let dead = move |call: Call| match call.channel {
        0 if call.at < dead_for => lost(),
        _ => Answer::good(),
    };
    let patient = Config {
        timeout: None,
        retry: Some(AsyncRetryStrategy::fixed_delay(1_000, CALL)),
        ..bounded(OutputMode::Unordered, &pausing(false), 2)
    };
    let mut world = World::new(patient, 2, dead);
    world.gap = Duration::from_millis(20);
    let records = minutes * 60 * 50;

    world.run(records);

    assert_eq!((world.emitted.len() as u64, world.failed()), (records, 0));
    let to_dead = world.made.iter().filter(|it| it.channel == 0 && it.at < dead_for);
    let first = world.made.iter().filter(|it| it.channel == 0).nth(20).unwrap().at;
    // Those that were in flight when it was given up, and probes.
    let probes = to_dead.filter(|it| it.at > first + SECOND / 2).count();
    assert!((6..=12).contains(&probes), "{probes} probes");
    let is_late = |it: &&(u64, _, ProcessingTime)| {
        it.2.saturating_since(at(world.gap * u32::try_from(it.0).unwrap())) > CALL
    };
    let late = world.emitted.iter().filter(|it| it.0 % 2 == 1).filter(is_late).count();
    assert_eq!(late, 0, "others notice nothing");
}

#[test]
fn records_of_a_dead_destination_fail_at_once_where_they_are_not_to_wait() {
    for mode in MODES {
        for channels in [0, 2] {
            let dead_for = at(2 * SECOND);
            let answer = move |call: Call| match call.channel {
                0 if call.at < dead_for => lost(),
                _ => Answer::good(),
            };
            let config = Config { retry: None, ..bounded(mode, &pausing(true), channels) };
            let mut world = World::new(config, channels, answer);
            world.gap = Duration::from_millis(10);

            world.run(4_000);

            assert_eq!(world.emitted.len(), 4_000, "{mode:?} {channels}");
            let others = world.emitted.iter().filter(|it| channels > 0 && it.0 % 2 == 1);
            let failed: Vec<_> = others.filter(|it| it.1.is_err()).take(3).collect();
            assert!(failed.is_empty(), "{mode:?} {channels}: {failed:?}");
            let refused = world.emitted.iter().filter(|it| {
                matches!(&it.1,
                Err(Failure::Ended(it)) if matches!(it.0, Ended::Refused { .. }))
            });
            let refused: Vec<_> = refused.collect();
            assert!(refused.len() > 60, "{} refused, {mode:?} {channels}", refused.len());
            let came = |value: u64| at(world.gap * u32::try_from(value).unwrap());
            let waited = refused.iter().map(|it| it.2.saturating_since(came(it.0))).max().unwrap();
            // Nobody waits for more than the calls that were in flight.
            assert!(mode != OutputMode::Unordered || waited <= CALL, "{waited:?} {channels}");
            let is_back =
                world.emitted.iter().any(|it| it.0 % 2 == 0 && it.0 > 3_500 && it.1.is_ok());
            assert!(is_back, "{mode:?} {channels}");
        }
    }
}

#[test]
fn beside_a_probe_nobody_waits_who_is_not_to() {
    let retry = Some(AsyncRetryStrategy::fixed_delay(1, 2 * SECOND));
    for mode in [OutputMode::Ordered, OutputMode::Unordered] {
        let slow = Answer { after: SECOND, ..Answer::good() };
        let answer = move |call: Call| if call.attempt == 1 { lost() } else { slow };
        let config = Config { retry, ..bounded(mode, &pausing(true), 0) };
        let mut world = World::new(config, 0, answer);

        // They come back together, when the pause is over.
        world.run_until(20, at(2 * SECOND + CALL));

        let probes: Vec<_> = world.made.iter().filter(|it| it.attempt > 1).collect();
        assert_eq!(probes.len(), 1, "{mode:?}");
        let pending = world.operator.active_timers();
        assert_eq!(pending, 1, "{mode:?}: the probe is all that has a deadline");
    }
}

#[test]
fn retries_are_a_share_of_the_calls_and_what_waits_for_one_fails_nobody() {
    for channels in [0, 2] {
        let (failing_for, ratio) = (at(60 * SECOND), 0.2);
        let answer = move |call: Call| if call.at < failing_for { lost() } else { Answer::good() };
        let policy = PolicyConfig {
            retry_budget: Some(RetryBudgetConfig::new(ratio, 1)),
            ..PolicyConfig::NONE
        };
        let patient = Config {
            timeout: Some(600 * SECOND),
            retry: Some(AsyncRetryStrategy::fixed_delay(1_000, CALL)),
            capacity: NonZeroUsize::new(20_000).unwrap(),
            ..bounded(OutputMode::Unordered, &policy, channels)
        };
        let mut world = World::new(patient, channels, answer);
        world.gap = Duration::from_millis(20);

        world.run(4_000);

        assert_eq!((world.emitted.len(), world.failed()), (4_000, 0), "{channels}");
        let during = world.made.iter().filter(|it| it.at < failing_for);
        let (first, again): (Vec<&Call>, Vec<&Call>) = during.partition(|it| it.attempt == 1);
        let most = first.len() / 5 + 60 * usize::try_from(channels.max(1)).unwrap();
        assert!(again.len() <= most, "{} retries of {}", again.len(), first.len());
        assert!(again.len() * 10 >= most * 9, "{} retries of {most}", again.len());
    }
}

#[test]
fn results_that_are_not_there_yet_and_calls_that_were_told_when_to_come_again_cost_no_token() {
    let policy =
        PolicyConfig { retry_budget: Some(RetryBudgetConfig::new(0.01, 0)), ..PolicyConfig::NONE };
    let mut world = World::new(bounded(OutputMode::Unordered, &policy, 0), 0, |call: Call| {
        let completion = match (call.attempt, call.value % 2) {
            (1, 0) => Completion::answered((), Retry::Yes),
            (1, _) => Completion::failed((), Retry::After(CALL), CallSign::Overloaded),
            _ => Completion::answered((), Retry::No),
        };
        Answer { completion: Some(completion), ..Answer::good() }
    });
    world.run(300);
    assert_eq!((world.failed(), world.made.len()), (0, 600));
}

#[test]
fn a_retry_without_a_token_ends_with_its_record() {
    let policy =
        PolicyConfig { retry_budget: Some(RetryBudgetConfig::new(0.1, 0)), ..PolicyConfig::NONE };
    let mut world = World::new(bounded(OutputMode::Unordered, &policy, 0), 0, |_| lost());
    world.run(100);
    // The first calls have earned ten, and nobody earns more.
    assert_eq!((world.failed(), world.made.len()), (100, 110));
    assert!(world.emitted.iter().all(|it| it.2 <= at(6 * SECOND)));
}

#[test]
fn a_token_that_comes_after_the_end_of_the_input_is_used_at_once() {
    let policy =
        PolicyConfig { retry_budget: Some(RetryBudgetConfig::new(0.0, 10)), ..PolicyConfig::NONE };
    let config = Config {
        retry: Some(AsyncRetryStrategy::fixed_delay(1, 3 * SECOND)),
        at_end_of_input: EndOfInput::LastAttempt,
        ..bounded(OutputMode::Unordered, &policy, 0)
    };
    let is_lost = |call: Call| call.value == 0 && call.attempt == 1;
    let mut world =
        World::new(config, 0, |call| if is_lost(call) { lost() } else { Answer::good() });
    world.gap = Duration::from_millis(50);

    world.run(2);

    let again = world.made.iter().find(|it| it.attempt == 2).map(|it| it.at);
    assert_eq!((world.failed(), again), (0, Some(at(Duration::from_millis(100)))));
}

#[test]
fn all_that_bounds_calls_holds_together() {
    let (rate, failing_for) = (100, at(30 * SECOND));
    let limit =
        Gcra::new(Rate::new(rate.try_into().unwrap(), SECOND).unwrap(), 10.try_into().unwrap());
    let adaptive = AdaptiveLimitConfig { initial: 1, min: 1, max: 50, max_latency: None };
    let policy = PolicyConfig {
        limits: PolicyConfig::limited(LimitConfig::new(limit)).limits,
        retry_budget: Some(RetryBudgetConfig::new(0.2, 1)),
        adaptive_limit: Some(adaptive),
        is_rate_adaptive: true,
        ..pausing(false)
    };
    for mode in MODES {
        let answer = move |call: Call| match call.channel {
            0 if call.at < failing_for => lost(),
            // Asks for a pause now and then.
            1 if call.attempt == 1 && call.value.is_multiple_of(301) => busy(SECOND / 5),
            _ => Answer::good(),
        };
        let patient = Config {
            timeout: Some(600 * SECOND),
            retry: Some(AsyncRetryStrategy::fixed_delay(1_000, CALL)),
            capacity: NonZeroUsize::new(20_000).unwrap(),
            ..bounded(mode, &policy, 2)
        };
        let mut world = World::new(patient, 2, answer);
        world.gap = Duration::from_millis(20);

        world.run(3_000);

        assert_eq!((world.emitted.len(), world.failed()), (3_000, 0), "{mode:?}");
        for (index, first) in world.made.iter().enumerate() {
            let in_second =
                world.made.iter().skip(index).take_while(|it| it.at < first.at + SECOND);
            assert!(in_second.count() <= 111, "{mode:?}: more calls than rate and burst");
        }
        let asked = world.made.iter().filter(|it| it.channel == 1 && it.value.is_multiple_of(301));
        for asked in asked.filter(|it| it.attempt == 1) {
            let pause = asked.at + CALL..asked.at + CALL + SECOND / 5;
            let is_early = |it: &Call| it.channel == 1 && pause.contains(&it.at);
            assert!(!world.made.iter().any(is_early), "{mode:?}: a call in a pause");
        }
        let to_dead = world.made.iter().filter(|it| it.channel == 0 && it.at < failing_for);
        assert!(to_dead.count() < 20 + 50 + 12, "{mode:?}: a dead service is left alone");
    }
}
