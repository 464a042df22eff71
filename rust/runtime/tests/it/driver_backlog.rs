// SPDX-License-Identifier: Apache-2.0
//! What the log says of input that stands still.

use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::support::{Task, Told, Turns as _, World, config, echo};
use sparkawait_core::flow::ChannelConfig;
use sparkawait_core::operator::Config;
use sparkawait_core::policy::PolicyConfig;
use sparkawait_runtime::DriverConfig;
use sparkawait_runtime::log::Log;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::set_default;

fn channels() -> (Config, DriverConfig) {
    let (mut operator, driver) = config();
    operator.max_concurrency = NonZeroUsize::MIN.saturating_add(3);
    operator.channels = Some(ChannelConfig {
        exclusive: 1,
        floating: 2,
        max_per_channel: 2,
        max_backlog: 5,
        max_backlog_per_channel: 5,
        policy: PolicyConfig::NONE,
        is_single: false,
    });
    (operator, driver)
}

#[test]
fn a_channel_that_fills_the_backlog_is_named_once() {
    let log = Arc::new(Log::new().unwrap());
    let _log = set_default(log.subscriber(LevelFilter::WARN));
    let mut even = Task::new(channels(), |_: &World, _| {});
    even.feed(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 11]);
    even.world.clock.tick(10_000_000);
    even.pause();
    assert_eq!(log.take().0, [], "each of the channels has as much to wait for");

    // Channel 3 answers its first row, after two seconds.
    let mut task = Task::new(channels(), |world: &World, told| match told {
        Told::Call(3, _) => {
            world.clock.advance(2_000_000_000);
            echo(world, told);
        }
        Told::Call(row, _) if row % 10 == 3 => {}
        told => echo(world, told),
    });
    task.feed(&[1, 3]);
    task.pause();
    assert_eq!(log.take().0, [], "there is room");

    task.feed(&(1..=8).map(|row| 10 * row + 3).collect::<Vec<_>>());
    task.feed(&[11]);
    task.world.clock.tick(10_000_000);
    task.pause();
    task.pause();

    let texts: Vec<String> = log.take().0.into_iter().map(|line| line.text).collect();
    let [text] = texts.as_slice() else { panic!("expected one line, got {texts:?}") };
    for part in
        ["channel=host-3", "rows_waiting=5", "calls_in_flight=2", "limit=2", "`max_backlog`"]
    {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert!(text.contains("calls_per_second=0."), "{text}");
}

#[test]
fn input_that_waits_for_room_is_told_once_for_each_wait() {
    let log = Arc::new(Log::new().unwrap());
    let _log = set_default(log.subscriber(LevelFilter::WARN));
    let said = || log.take().0.into_iter().map(|line| line.text).collect::<Vec<_>>();
    let (mut operator, driver) = config();
    operator.capacity = NonZeroUsize::new(3).unwrap();
    let mut task = Task::new((operator, driver), |_: &World, _| {});
    task.feed(&[1, 2, 3, 4]);
    task.world.clock.tick(10_000_000);
    let wait = |task: &mut Task<_>, seconds: u64| {
        task.pause();
        task.driver.check_room();
        task.world.clock.advance(seconds * 1_000_000_000);
        task.pause();
        task.driver.check_room();
    };

    wait(&mut task, 29);
    assert_eq!(said(), [""; 0], "not for long yet");
    wait(&mut task, 2);
    let texts = said();
    let [text] = texts.as_slice() else { panic!("expected one line, got {texts:?}") };
    for part in ["waited for 3", "rows_held=3", "calls_in_flight=3", "oldest_seconds=3"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    wait(&mut task, 97);
    assert_eq!(said(), [""; 0], "it was told");

    // Row 4 gets in, and nothing waits; then another row does.
    let first = task.first_call();
    assert!(task.world.reply(1, first));
    wait(&mut task, 61);
    assert_eq!(said(), [""; 0], "all rows are in");
    task.feed(&[6]);
    wait(&mut task, 31);
    assert_eq!(said().len(), 1);
}
