// SPDX-License-Identifier: Apache-2.0
//! The rules of taking mail, one a test.

use super::super::{MAX_PRIORITY, MIN_PRIORITY, MailboxClosed};
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

fn put_first(mailbox: &TaskMailbox<u32>, payload: u32) {
    mailbox.inbox().put_first(mail(payload, 0)).unwrap();
}

fn payloads(mails: impl IntoIterator<Item = Mail<u32>>) -> Vec<u32> {
    mails.into_iter().map(|mail| mail.payload).collect()
}

/// What is left, taken singly.
fn rest(mailbox: &mut TaskMailbox<u32>) -> Vec<u32> {
    payloads(std::iter::from_fn(|| mailbox.try_take(MIN_PRIORITY)))
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
    assert_eq!(mailbox.try_take(MAX_PRIORITY), None);
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
fn urgent_mail_overtakes_the_batch_but_not_earlier_urgent_mail() {
    let mut mailbox = mailbox();
    put(&mailbox, 0);
    mailbox.create_batch();
    put_first(&mailbox, 1);
    put_first(&mailbox, 2);

    assert_eq!(payloads(std::iter::from_fn(|| mailbox.try_take_from_batch())), [1, 2, 0]);
}

#[test]
fn urgent_mail_is_filtered_by_priority_too() {
    let mut mailbox = mailbox();
    put_first(&mailbox, 0);
    mailbox.inbox().put(mail(1, 5)).unwrap();

    assert_eq!(mailbox.try_take(5), Some(mail(1, 5)));
    assert_eq!(rest(&mut mailbox), [0]);
}

#[test]
fn deferrable_mail_is_not_run_by_a_waiting_operator() {
    let mut mailbox = mailbox();
    mailbox.inbox().put(mail(0, 3).deferrable()).unwrap();

    assert_eq!(mailbox.try_take(0), None);
    assert_eq!(mailbox.take_or_arm(0), None);
    assert_eq!(mailbox.try_take(MIN_PRIORITY).map(|mail| mail.payload), Some(0));
}

#[test]
fn deferrable_mail_keeps_its_priority_when_deferring_is_ignored() {
    let mut mailbox = mailbox();
    mailbox.inbox().put(mail(0, 3).deferrable()).unwrap();

    assert_eq!(mailbox.try_take_ignoring_deferrable(4), None);
    assert_eq!(mailbox.try_take_ignoring_deferrable(3).map(|mail| mail.payload), Some(0));
}

#[test]
fn quiesced_mailbox_gives_out_what_it_holds() {
    let mut mailbox = mailbox();
    put(&mailbox, 0);
    mailbox.quiesce();

    assert_eq!(mailbox.inbox().put(mail(1, 0)), Err(MailboxClosed(mail(1, 0))));
    assert_eq!(rest(&mut mailbox), [0]);
}

#[test]
fn close_returns_what_was_not_run() {
    let mut mailbox = mailbox();
    put(&mailbox, 1);
    mailbox.create_batch();
    put(&mailbox, 2);
    put_first(&mailbox, 0);

    assert_eq!(payloads(mailbox.close()), [0, 1, 2]);
    assert_eq!(mailbox.try_take(MIN_PRIORITY), None);
}

#[test]
fn closed_mailbox_does_not_go_back_to_quiesced() {
    let mut mailbox = mailbox();
    mailbox.close();
    mailbox.quiesce();

    assert_eq!(mailbox.state(), MailboxState::Closed);
}

#[test]
fn drain_empties_an_open_mailbox() {
    let mut mailbox = mailbox();
    put(&mailbox, 0);
    mailbox.create_batch();
    put(&mailbox, 1);

    assert_eq!(payloads(mailbox.drain()), [0, 1]);
    assert!(mailbox.is_empty());
    assert_eq!(mailbox.state(), MailboxState::Open);
}

#[test]
fn length_counts_batch_and_queue() {
    let mut mailbox = mailbox();
    put(&mailbox, 0);
    mailbox.create_batch();
    put(&mailbox, 1);
    put_first(&mailbox, 2);

    assert_eq!(mailbox.len(), 3);
    assert_eq!(mailbox.inbox().len(), 2);
}
