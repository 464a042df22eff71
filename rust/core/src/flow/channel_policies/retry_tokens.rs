// SPDX-License-Identifier: Apache-2.0
//! What retries cost, and who waits for that.

use super::{ChannelPolicies, has_tokens_at};
use crate::flow::ChannelId;
use crate::policy::CallSign;
use crate::queue::EntryId;
use crate::time::ProcessingTime;

impl ChannelPolicies {
    /// Notes the end of a try with this number, which may earn retries.
    pub(in crate::flow) fn earn(
        &mut self,
        id: ChannelId,
        number: u32,
        sign: CallSign,
        now: ProcessingTime,
    ) {
        let line = self.channels.get_mut(id.0 as usize).and_then(|it| it.retries.as_mut());
        if let Some(line) = line {
            line.earn(number, sign, now);
            self.schedule_tokens(id, now);
        }
    }

    /// Notes first attempts of the first channel that ended while nobody counted.
    pub(in crate::flow) fn earn_earlier(&mut self, count: u64, now: ProcessingTime) {
        if let Some(line) = self.channels.first_mut().and_then(|it| it.retries.as_mut()) {
            line.earn_earlier(count, now);
        }
    }

    /// Takes a token for the next attempt of a record, which waits in line otherwise.
    pub(in crate::flow) fn take_token(
        &mut self,
        id: ChannelId,
        entry: EntryId,
        now: ProcessingTime,
    ) -> bool {
        let line = self.channels.get_mut(id.0 as usize).and_then(|it| it.retries.as_mut());
        let has_token = line.is_none_or(|it| it.take_or_wait(entry, now));
        if !has_token {
            self.metrics.hold_retry(now);
            self.schedule_tokens(id, now);
        }
        has_token
    }

    fn schedule_tokens(&mut self, id: ChannelId, now: ProcessingTime) {
        let line = self.channels.get_mut(id.0 as usize).and_then(|it| it.retries.as_mut());
        if let Some(at) = line.and_then(|it| it.schedule(now)) {
            self.tokens.push(at, id);
        }
    }

    /// Removes a record that has waited for a token, which is there now.
    pub(in crate::flow) fn pop_token(
        &mut self,
        now: ProcessingTime,
        waits: &mut impl FnMut(EntryId) -> bool,
    ) -> Option<EntryId> {
        while let Some((at, id)) = self.tokens.pop_due_at(now) {
            if !has_tokens_at(&self.channels, id, at) {
                continue;
            }
            let line = self.channels.get_mut(id.0 as usize).and_then(|it| it.retries.as_mut());
            let Some(line) = line else { continue };
            line.wakes_at = None;
            let before = line.waiting();
            let next = line.next(now, waits);
            let released = before - line.waiting();
            self.metrics.release_retries(released as u64, now);
            self.schedule_tokens(id, now);
            if next.is_some() {
                return next;
            }
        }
        None
    }
}
