// SPDX-License-Identifier: Apache-2.0
//! What a task publishes about its channels.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sparkawait_core::element::Key;
use sparkawait_core::flow::ChannelReport;
use sparkawait_core::operator::AsyncWaitOperator;
use sparkawait_core::time::ProcessingTime;

use crate::batch_codec::BatchCodec;

/// Channels that are shown by themselves.
const SHOWN: usize = 16;

/// Names that are remembered. A channel has no rows at the end that could name it.
const REMEMBERED: usize = 64 * SHOWN;

/// How old a report gets. Making one looks at every channel.
const INTERVAL: Duration = Duration::from_secs(1);

/// A report with the names of the channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedChannels {
    /// What the channels did.
    pub report: ChannelReport,
    /// The name of each channel of `report.top`, if it is known; that of null has none.
    pub names: Vec<Option<String>>,
}

/// Makes reports of an operator's channels now and then.
#[derive(Debug, Default)]
pub(crate) struct ChannelRecorder {
    names: HashMap<Key, String>,
    latest: Option<Arc<NamedChannels>>,
    recorded_at: Option<ProcessingTime>,
}

impl ChannelRecorder {
    /// Makes a report if the last one is old.
    pub(crate) fn record<X: BatchCodec>(
        &mut self,
        operator: &AsyncWaitOperator<X::Element, X::Results, X::Failure>,
        codec: &X,
        now: ProcessingTime,
    ) {
        if self.recorded_at.is_none_or(|last| now >= last + INTERVAL) {
            self.record_last(operator, codec, now);
        }
    }

    /// Makes a report.
    pub(crate) fn record_last<X: BatchCodec>(
        &mut self,
        operator: &AsyncWaitOperator<X::Element, X::Results, X::Failure>,
        codec: &X,
        now: ProcessingTime,
    ) {
        self.recorded_at = Some(now);
        let Some((report, samples)) = operator.channel_report(SHOWN, now) else { return };
        if self.names.len() > REMEMBERED {
            self.names.clear();
        }
        for (channel, sample) in report.top.iter().zip(samples) {
            let Some(key) = channel.key.filter(|key| !self.names.contains_key(key)) else {
                continue;
            };
            let name = codec.channel_name(key, sample.as_ref());
            self.names.extend(name.map(|name| (key, name)));
        }
        let name = |key: Option<Key>| key.and_then(|key| self.names.get(&key).cloned());
        let names = report.top.iter().map(|it| name(it.key)).collect();
        self.latest = Some(Arc::new(NamedChannels { report, names }));
    }

    /// Returns the last report.
    pub(crate) fn report(&self) -> Option<Arc<NamedChannels>> {
        self.latest.clone()
    }
}
