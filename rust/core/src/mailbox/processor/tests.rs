// SPDX-License-Identifier: Apache-2.0
//! The rules of the loop, one a test.

use super::super::{MAX_PRIORITY, MIN_PRIORITY};
use super::*;

fn processor() -> MailboxProcessor<u32> {
    MailboxProcessor::new(Waker::noop().clone())
}

fn mail(payload: u32) -> Mail<u32> {
    Mail::new(payload, 0, "test")
}

fn put(processor: &MailboxProcessor<u32>, payload: u32) {
    processor.inbox().put(mail(payload)).unwrap();
}

#[test]
fn default_action_runs_once_after_each_batch() {
    let mut processor = processor();
    put(&processor, 0);
    put(&processor, 1);

    assert_eq!(processor.next_step(), Step::RunMail(mail(0)));
    assert_eq!(processor.next_step(), Step::RunMail(mail(1)));
    assert_eq!(processor.next_step(), Step::DefaultAction);
    assert_eq!(processor.next_step(), Step::DefaultAction);
}

#[test]
fn mail_that_sends_itself_again_runs_once_a_round() {
    let mut processor = processor();
    put(&processor, 7);

    for _ in 0..3 {
        assert_eq!(processor.next_step(), Step::RunMail(mail(7)));
        put(&processor, 7);
        assert_eq!(processor.next_step(), Step::DefaultAction);
    }
}

#[test]
fn urgent_mail_runs_in_the_middle_of_a_batch() {
    let mut processor = processor();
    put(&processor, 0);
    put(&processor, 1);
    assert_eq!(processor.next_step(), Step::RunMail(mail(0)));
    processor.inbox().put_first(mail(9)).unwrap();

    assert_eq!(processor.next_step(), Step::RunMail(mail(9)));
    assert_eq!(processor.next_step(), Step::RunMail(mail(1)));
}

#[test]
fn main_loop_runs_mail_of_every_priority() {
    let mut processor = processor();
    let checkpoint = Mail::new(0, MIN_PRIORITY, "checkpoint").deferrable();
    processor.inbox().put(checkpoint).unwrap();

    assert_eq!(processor.next_step(), Step::RunMail(checkpoint));
}

#[test]
fn suspended_default_action_does_not_run_until_it_is_resumed() {
    let mut processor = processor();
    let suspension = processor.suspend_default_action().unwrap();
    assert_eq!(processor.next_step(), Step::Park);
    put(&processor, 0);
    assert_eq!(processor.next_step(), Step::RunMail(mail(0)));
    assert_eq!(processor.next_step(), Step::Park);

    processor.resume(suspension);

    assert_eq!(processor.next_step(), Step::DefaultAction);
}

#[test]
fn resume_from_another_thread_takes_effect_at_the_next_step() {
    let mut processor = processor();
    let suspension = processor.suspend_default_action().unwrap();
    assert_eq!(processor.next_step(), Step::Park);

    processor.inbox().resume(suspension);

    assert_eq!(processor.next_step(), Step::DefaultAction);
}

#[test]
fn second_suspend_without_resume_is_an_error() {
    let mut processor = processor();
    let first = processor.suspend_default_action().unwrap();

    assert_eq!(processor.suspend_default_action(), Err(AlreadySuspended(first)));

    processor.inbox().resume(first);
    assert!(processor.suspend_default_action().is_ok());
}

#[test]
fn resuming_twice_does_not_end_the_next_suspension() {
    let mut processor = processor();
    let first = processor.suspend_default_action().unwrap();
    processor.resume(first);
    processor.suspend_default_action().unwrap();

    processor.resume(first);
    processor.inbox().resume(first);

    assert_eq!(processor.next_step(), Step::Park);
}

#[test]
fn signals_to_a_closed_mailbox_are_ignored() {
    let mut processor = processor();
    let suspension = processor.suspend_default_action().unwrap();
    processor.mailbox_mut().close();

    processor.inbox().resume(suspension);
    processor.inbox().suspend();
    processor.inbox().all_actions_completed();

    assert!(!processor.is_default_action_available());
    assert_eq!(processor.next_step(), Step::Finished);
}

#[test]
fn all_actions_completed_ends_the_loop_for_good() {
    let mut processor = processor();
    put(&processor, 0);
    processor.inbox().all_actions_completed();

    assert_eq!(processor.next_step(), Step::Finished);
    assert_eq!(processor.next_step(), Step::Finished);
    assert_eq!(processor.mailbox_mut().drain(), [mail(0)]);
}

#[test]
fn suspended_loop_goes_on_where_it_stopped() {
    let mut processor = processor();
    put(&processor, 0);
    put(&processor, 1);
    assert_eq!(processor.next_step(), Step::RunMail(mail(0)));

    processor.inbox().suspend();

    assert_eq!(processor.next_step(), Step::Finished);
    assert_eq!(processor.next_step(), Step::RunMail(mail(1)));
    assert_eq!(processor.next_step(), Step::DefaultAction);
}

#[test]
fn yield_runs_one_mail_of_its_own_or_a_downstream_operator() {
    let mut processor = processor();
    let downstream = Mail::new(1, 2, "downstream");
    put(&processor, 0);
    processor.inbox().put(downstream).unwrap();

    assert_eq!(processor.yield_to_mailbox(2), Step::RunMail(downstream));
    assert_eq!(processor.yield_to_mailbox(2), Step::Park);
    assert_eq!(processor.next_step(), Step::RunMail(mail(0)));
}

#[test]
fn yield_leaves_signals_to_the_loop() {
    let mut processor = processor();
    put(&processor, 0);
    processor.inbox().suspend();

    assert_eq!(processor.yield_to_mailbox(0), Step::RunMail(mail(0)));
    assert_eq!(processor.yield_to_mailbox(0), Step::Park);
    assert_eq!(processor.next_step(), Step::Finished);
}

#[test]
fn yield_on_an_empty_quiesced_mailbox_does_not_wait() {
    let mut processor = processor();
    processor.mailbox_mut().quiesce();

    assert_eq!(processor.yield_to_mailbox(MAX_PRIORITY), Step::Finished);
}

#[test]
fn quiesced_loop_runs_what_is_left_and_finishes() {
    let mut processor = processor();
    assert_eq!(processor.next_step(), Step::DefaultAction);
    put(&processor, 0);
    put(&processor, 1);
    processor.mailbox_mut().quiesce();

    assert_eq!(processor.next_step(), Step::RunMail(mail(0)));
    assert_eq!(processor.next_step(), Step::RunMail(mail(1)));
    assert_eq!(processor.next_step(), Step::Finished);
}

#[test]
fn idle_is_suspended_without_mail_but_open_to_it() {
    let mut processor = processor();
    assert!(!processor.is_idle(), "the default action can run");
    let suspension = processor.suspend_default_action().unwrap();
    assert!(processor.is_idle());
    put(&processor, 0);
    assert!(!processor.is_idle(), "a mail can run");
    processor.mailbox_mut().drain();
    processor.inbox().resume(suspension);
    assert!(!processor.is_idle(), "the resume can run");
    assert_eq!(processor.next_step(), Step::DefaultAction);
    processor.suspend_default_action().unwrap();
    processor.mailbox_mut().quiesce();
    assert!(!processor.is_idle(), "nothing can come");
}

#[test]
fn mails_run_by_yield_are_not_counted() {
    let mut processor = processor();
    put(&processor, 0);
    put(&processor, 1);
    #[expect(clippy::let_underscore_must_use, reason = "it runs nothing")]
    let _ = processor.yield_to_mailbox(0);
    assert_eq!(processor.next_step(), Step::RunMail(mail(1)));
    assert_eq!(processor.next_step(), Step::DefaultAction);

    assert_eq!(processor.counters(), Counters { mails: 1, default_actions: 1 });
}
