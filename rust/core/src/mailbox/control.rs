// SPDX-License-Identifier: Apache-2.0
//! Signals to the loop itself.

/// One suspension of the default action; resuming it twice, or late, does nothing.
///
/// Counterpart of Flink's `MailboxDefaultAction.Suspension`; differs in being a
/// number: [`MailboxProcessor::resume`](super::MailboxProcessor::resume) takes it
/// on the mailbox thread, [`Inbox::resume`](super::Inbox::resume) on any thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Suspension(pub(super) u64);

/// Signals to the loop that have not been acted on.
///
/// Flink sends them as urgent "poison" mails. Each is idempotent, so a flag does:
/// the signal takes effect before any mail that has not been taken yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Control {
    /// Number of the latest suspension that was resumed; they are resumed in order.
    pub(super) resumed: u64,
    /// The loop returns once, and goes on when it is run again.
    pub(super) suspend: bool,
    /// The loop returns for good.
    pub(super) all_actions_completed: bool,
}

impl Control {
    pub(super) fn resume(suspension: Suspension) -> Self {
        Self { resumed: suspension.0, ..Self::default() }
    }

    pub(super) fn suspend() -> Self {
        Self { suspend: true, ..Self::default() }
    }

    pub(super) fn all_actions_completed() -> Self {
        Self { all_actions_completed: true, ..Self::default() }
    }

    pub(super) fn is_none(self) -> bool {
        self == Self::default()
    }

    /// Adds the signals of `later`.
    pub(super) fn merge(&mut self, later: Self) {
        self.resumed = self.resumed.max(later.resumed);
        self.suspend |= later.suspend;
        self.all_actions_completed |= later.all_actions_completed;
    }
}
