// SPDX-License-Identifier: Apache-2.0
//! Destinations that have dropped their calls, and the probes that are made then.

use std::collections::BTreeMap;

use crate::scenario::CallPlan;
use crate::trace::{Asks, Broken, Checked, Said};

/// What is known of one.
#[derive(Clone, Copy, Debug, Default)]
struct Dropping {
    /// Calls that it has dropped since its last answer, of those that were made after that.
    drops: u32,
    /// When it answered last.
    answered_at: u64,
    /// Since when the task has seen that there were too many.
    down_since: Option<u64>,
}

/// The destinations of a function whose calls end with answers only.
#[derive(Clone, Debug)]
pub(super) struct Probes {
    after_drops: u32,
    channels: BTreeMap<Option<i64>, Dropping>,
}

impl Probes {
    /// `None` where drops pause nothing, or calls end that nobody has answered.
    pub(super) fn new(plan: &CallPlan, has_parts: bool) -> Option<Self> {
        let is_known = plan.is_answered() && !has_parts;
        let pause = plan.pause.filter(|_| is_known)?;
        Some(Self { after_drops: pause.after_drops, channels: BTreeMap::new() })
    }

    /// A call has ended; what it said is in the mail.
    pub(super) fn ended(&mut self, channel: Option<i64>, started: u64, said: Said, now: u64) {
        let known = self.channels.entry(channel).or_default();
        match said {
            Said::Failure { asks: Asks::InPart(_), .. } => {}
            Said::Failure { asks: Asks::Yes | Asks::IfRepeatable, after: None, pause: None } => {
                known.drops += u32::from(started > known.answered_at);
            }
            _ => *known = Dropping { drops: 0, answered_at: now, down_since: None },
        }
    }

    /// The task has seen its mail.
    pub(super) fn parked(&mut self, now: u64) {
        for known in self.channels.values_mut().filter(|it| it.drops >= self.after_drops) {
            known.down_since.get_or_insert(now);
        }
    }

    /// A call is made beside others of its destination, which began then.
    pub(super) fn check(
        &self,
        channel: Option<i64>,
        mut beside: impl Iterator<Item = u64>,
        now: u64,
    ) -> Checked {
        let Some(since) = self.channels.get(&channel).and_then(|it| it.down_since) else {
            return Ok(());
        };
        match beside.find(|it| *it > since) {
            Some(probe) => {
                let what = format!("channel {channel:?} at {now}, beside that of {probe}");
                Err(Broken::new("one probe at a time", what))
            }
            None => Ok(()),
        }
    }
}
