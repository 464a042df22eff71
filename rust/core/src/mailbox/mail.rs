// SPDX-License-Identifier: Apache-2.0
//! A piece of work for the mailbox thread.

use std::fmt;

/// A piece of work for the mailbox thread.
///
/// Counterpart of Flink's `Mail`; differs in carrying data instead of code, so
/// that the driver's `match` decides what is run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mail<M> {
    /// What to do, in the driver's terms.
    pub payload: M,
    /// Index of the operator in its chain, downstream is larger. A filter: it changes no order.
    pub priority: i32,
    /// Names the mail in errors: "emit row 3" rather than what is in row 3.
    pub description: &'static str,
}

impl<M> Mail<M> {
    /// Makes a mail.
    pub const fn new(payload: M, priority: i32, description: &'static str) -> Self {
        Self { payload, priority, description }
    }
}

// Leaves the payload out: rows do not belong in logs.
crate::opaque_debug!([M] Mail<M>, description: description, priority: priority);

/// The mailbox takes no more mail; gives back the one that was refused.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MailboxClosed<M>(
    /// The refused mail.
    pub Mail<M>,
);

impl<M> fmt::Debug for MailboxClosed<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MailboxClosed").field(&self.0).finish()
    }
}

impl<M> fmt::Display for MailboxClosed<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mailbox is closed: `{}` was not run", self.0.description)
    }
}

impl<M> std::error::Error for MailboxClosed<M> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_mail_is_named_without_its_payload() {
        let refused = MailboxClosed(Mail::new("secret", 0, "emit row 3"));

        assert_eq!(refused.to_string(), "mailbox is closed: `emit row 3` was not run");
        assert!(!format!("{refused:?}").contains("secret"));
    }
}
