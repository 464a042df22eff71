// SPDX-License-Identifier: Apache-2.0
//! What the log says of a channel that fills the backlog. One test: a process has one log.

use std::num::NonZeroUsize;

use crate::support::{Task, Told, Turns as _, World, config, echo};
use sparkawait_core::flow::ChannelConfig;
use sparkawait_core::operator::Config;
use sparkawait_core::policy::PolicyConfig;
use sparkawait_runtime::DriverConfig;
use sparkawait_runtime::log::Log;
use tracing::level_filters::LevelFilter;

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
    let log = Log::open(LevelFilter::WARN).unwrap();
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
