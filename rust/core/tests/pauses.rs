// SPDX-License-Identifier: Apache-2.0
//! Destinations that ask for pauses, under an operator on a manual clock: none is called meanwhile,
//! others are, and nobody is too late because of it.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::num::NonZeroUsize;
use std::time::Duration;

use sparkawait_core::flow::ChannelConfig;
use sparkawait_core::operator::{
    Completion, Config, Failure, NotCalled, OutputMode, Retry, TooLate,
};
use sparkawait_core::policy::{CallSign, HedgeAfter, HedgeConfig};

use world::{Answer, CALL, Call, World, at, config};

#[path = "support/world.rs"]
mod world;

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
    let Err(Failure::NotCalled(reason)) = outcome else { unreachable!("it has failed") };
    assert!(matches!(reason.0, NotCalled::TooLate(TooLate::Retry { .. })));
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
        // A slow one, beside which a second call runs when the pause is asked for.
        1 if call.is_hedge => Answer { after: 5 * CALL, ..Answer::good() },
        1 => Answer { after: 20 * CALL, ..Answer::good() },
        2 if call.attempt == 1 => Answer { after: 3 * CALL, ..busy(SECOND) },
        _ => Answer::good(),
    });
    world.run(300);
    assert_eq!((world.emitted.len(), world.failed()), (300, 0));
    assert_eq!(world.operator.in_flight(), 0);
}
