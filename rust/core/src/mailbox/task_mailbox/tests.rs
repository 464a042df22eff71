// SPDX-License-Identifier: Apache-2.0
//! The rules of taking mail, one a test.

use super::super::MailboxClosed;
use super::*;

fn mailbox() -> TaskMailbox<u32> {
    TaskMailbox::new(Waker::noop().clone())
}

fn mail(payload: u32, priority: i32) -> Mail<u32> {
    Mail::new(payload, priority, "test")
}

fn put(mailbox: &TaskMailbox<u32>, payload: u32) {
    mailbox.inbox().put(mail(payload, 0)).unwrap();
}

fn payloads(mails: impl IntoIterator<Item = Mail<u32>>) -> Vec<u32> {
    mails.into_iter().map(|mail| mail.payload).collect()
}

/// What is left, taken singly.
fn rest(mailbox: &mut TaskMailbox<u32>) -> Vec<u32> {
    payloads(std::iter::from_fn(|| mailbox.try_take(i32::MIN)))
}

#[test]
fn mail_is_taken_in_the_order_of_arrival() {
    let mut mailbox = mailbox();
    for payload in 0..4 {
        put(&mailbox, payload);
    }

    assert_eq!(rest(&mut mailbox), [0, 1, 2, 3]);
}

#[test]
fn priority_filters_and_does_not_reorder() {
    let mut mailbox = mailbox();
    for (payload, priority) in [(0, 0), (1, 1), (2, 2), (3, 1)] {
        mailbox.inbox().put(mail(payload, priority)).unwrap();
    }

    assert_eq!(mailbox.try_take(1), Some(mail(1, 1)), "not the 2, which came later");
    assert_eq!(mailbox.try_take(i32::MAX), None);
    assert_eq!(rest(&mut mailbox), [0, 2, 3]);
}

#[test]
fn batch_is_taken_before_the_queue() {
    let mut mailbox = mailbox();
    put(&mailbox, 0);
    put(&mailbox, 1);
    assert!(mailbox.create_batch());
    put(&mailbox, 2);

    assert_eq!(rest(&mut mailbox), [0, 1, 2]);
}

#[test]
fn batch_does_not_see_later_mail() {
    let mut mailbox = mailbox();
    put(&mailbox, 0);
    mailbox.create_batch();
    put(&mailbox, 1);

    assert_eq!(mailbox.try_take_from_batch().map(|mail| mail.payload), Some(0));
    assert_eq!(mailbox.try_take_from_batch(), None);
    assert!(mailbox.has_mail());
}

#[test]
fn second_batch_goes_behind_what_is_left_of_the_first() {
    let mut mailbox = mailbox();
    put(&mailbox, 0);
    put(&mailbox, 1);
    mailbox.create_batch();
    mailbox.try_take_from_batch();
    put(&mailbox, 2);
    mailbox.create_batch();

    assert_eq!(payloads(std::iter::from_fn(|| mailbox.try_take_from_batch())), [1, 2]);
}

#[test]
fn close_returns_what_was_not_run() {
    let mut mailbox = mailbox();
    put(&mailbox, 1);
    mailbox.create_batch();
    put(&mailbox, 2);

    assert_eq!(payloads(mailbox.close()), [1, 2]);
    assert_eq!(mailbox.try_take(i32::MIN), None);
    assert_eq!(mailbox.inbox().put(mail(3, 0)), Err(MailboxClosed(mail(3, 0))));
    assert!(!mailbox.is_open());
}

#[test]
fn length_counts_batch_and_queue() {
    let mut mailbox = mailbox();
    put(&mailbox, 0);
    mailbox.create_batch();
    put(&mailbox, 1);

    assert_eq!(mailbox.len(), 2);
    assert_eq!(mailbox.inbox().len(), 1);
}
