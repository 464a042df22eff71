// SPDX-License-Identifier: Apache-2.0
//! How much of what a function has one channel may take.

use sparkawait_core::operator::Config;

/// The share that one channel has of the calls of an operator, for what a function spreads over
/// channels by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelShare {
    of_channel: usize,
    of_all: usize,
}

impl ChannelShare {
    /// Returns the share of a channel in the calls of an operator; `None` without channels.
    #[must_use]
    pub fn of_calls(operator: &Config) -> Option<Self> {
        let channels = operator.channels.filter(|it| !it.is_single)?;
        let of_channel = channels.max_per_channel as usize;
        Some(Self { of_channel, of_all: operator.max_concurrency.get() })
    }

    /// Returns how many of `things` a channel may hold: its share, at least one, and not the last
    /// one of several, which is always left for another channel.
    #[must_use]
    pub fn of(self, things: usize) -> usize {
        let share = things.saturating_mul(self.of_channel) / self.of_all;
        share.min(things.saturating_sub(1)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use sparkawait_core::flow::ChannelConfig;
    use sparkawait_core::operator::OutputMode;
    use sparkawait_core::policy::PolicyConfig;

    use super::*;

    fn share(of_channel: u32, of_all: usize, things: usize) -> Option<usize> {
        let mut operator = Config::new(OutputMode::Ordered, NonZeroUsize::new(of_all).unwrap());
        let floating = ChannelConfig::floating(1, 1);
        operator.channels = Some(ChannelConfig { max_per_channel: of_channel, ..floating });
        ChannelShare::of_calls(&operator).map(|it| it.of(things))
    }

    #[test]
    fn a_channel_has_its_share_but_never_the_last_one() {
        assert_eq!(share(10, 100, 4), Some(1));
        assert_eq!(share(50, 100, 4), Some(2));
        assert_eq!(share(100, 100, 4), Some(3));
        assert_eq!(share(100, 100, 1), Some(1));
        assert_eq!(share(1, 1, 1), Some(1));
    }

    #[test]
    fn without_channels_there_is_no_share() {
        let mut operator = Config::new(OutputMode::Ordered, NonZeroUsize::MIN);
        assert_eq!(ChannelShare::of_calls(&operator), None);

        // As many as there are with a limit in time, which needs one channel for all.
        operator.channels = Some(ChannelConfig::single(PolicyConfig::NONE));
        assert_eq!(ChannelShare::of_calls(&operator), None);
    }
}
