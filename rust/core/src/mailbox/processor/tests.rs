// SPDX-License-Identifier: Apache-2.0
//! The rules of the loop, one a test.

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
fn main_loop_runs_mail_of_every_priority() {
    let mut processor = processor();
    let checkpoint = Mail::new(0, -1, "checkpoint");
    processor.inbox().put(checkpoint).unwrap();

    assert_eq!(processor.next_step(), Step::RunMail(checkpoint));
}

#[test]
fn suspended_default_action_does_not_run_until_it_is_resumed() {
    let mut processor = processor();
    processor.suspend_default_action();
    assert_eq!(processor.next_step(), Step::Park);
    put(&processor, 0);
    assert_eq!(processor.next_step(), Step::RunMail(mail(0)));
    assert_eq!(processor.next_step(), Step::Park);

    processor.resume_default_action();

    assert_eq!(processor.next_step(), Step::DefaultAction);
}

#[test]
fn a_closed_loop_runs_nothing_and_finishes() {
    let mut processor = processor();
    put(&processor, 0);
    assert_eq!(processor.mailbox_mut().close(), [mail(0)]);

    assert_eq!(processor.next_step(), Step::Finished);
    assert_eq!(processor.next_step(), Step::Finished);
}
