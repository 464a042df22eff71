// SPDX-License-Identifier: Apache-2.0
//! Every interleaving of the two ends of a mailbox, its inbox and its outlet, up to a bound on
//! preemptions.
//!
//! A lost wake-up leaves a thread waiting, which loom reports as a deadlock. Run with `make loom`.

#![cfg(loom)]
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use sparkawait_core::mailbox::{Demand, Inbox, Mail, MailboxProcessor, Outlet, Step, Taken};

/// A mail that tells who sent it, and its number among those.
type Numbered = (usize, usize);

/// How the runtime waits: a wake-up is remembered until somebody waits for it.
struct Parker {
    is_notified: Mutex<bool>,
    condvar: Condvar,
    /// Not modelled: only read after all threads ended.
    wakes: AtomicUsize,
}

impl Parker {
    fn new() -> std::sync::Arc<Self> {
        let (is_notified, condvar) = (Mutex::new(false), Condvar::new());
        std::sync::Arc::new(Self { is_notified, condvar, wakes: AtomicUsize::new(0) })
    }

    fn park(&self) {
        let mut is_notified = self.is_notified.lock().unwrap();
        while !*is_notified {
            is_notified = self.condvar.wait(is_notified).unwrap();
        }
        *is_notified = false;
    }
}

impl Wake for Parker {
    fn wake(self: std::sync::Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        *self.is_notified.lock().unwrap() = true;
        self.condvar.notify_one();
    }
}

/// The mailbox thread: a loop whose default action is suspended, and its parker.
struct Consumer {
    processor: MailboxProcessor<Numbered>,
    parker: std::sync::Arc<Parker>,
    parks: usize,
}

impl Consumer {
    fn new() -> Self {
        let parker = Parker::new();
        let processor = MailboxProcessor::new(std::sync::Arc::clone(&parker).into());
        Self { processor, parker, parks: 0 }
    }

    fn inbox(&self) -> Arc<Inbox<Numbered>> {
        Arc::clone(self.processor.inbox())
    }

    /// The next step that is not a wait.
    fn next_step(&mut self) -> Step<Numbered> {
        loop {
            match self.processor.next_step() {
                Step::Park => self.park(),
                step => return step,
            }
        }
    }

    fn park(&mut self) {
        self.parks += 1;
        self.parker.park();
    }

    fn run(&mut self, mails: usize) -> Vec<Numbered> {
        (0..mails).map(|_| payload(self.next_step())).collect()
    }
}

fn payload(step: Step<Numbered>) -> Numbered {
    match step {
        Step::RunMail(mail) => mail.payload,
        step => panic!("expected a mail, got {step:?}"),
    }
}

fn mail(producer: usize, number: usize) -> Mail<Numbered> {
    Mail::new((producer, number), 0, "test")
}

/// Sends `count` mails from a thread of its own; returns those that were refused.
fn produce(
    inbox: Arc<Inbox<Numbered>>,
    producer: usize,
    count: usize,
) -> thread::JoinHandle<Vec<Numbered>> {
    thread::spawn(move || {
        let refused = (0..count).filter_map(|number| inbox.put(mail(producer, number)).err());
        refused.map(|refused| refused.0.payload).collect()
    })
}

/// The numbers of one producer's mails, in the order in which they ran.
fn numbers(mails: &[Numbered], producer: usize) -> Vec<usize> {
    mails.iter().filter(|mail| mail.0 == producer).map(|mail| mail.1).collect()
}

#[test]
fn no_mail_and_no_wake_up_is_lost_and_each_producer_keeps_its_order() {
    loom::model(|| {
        let mut consumer = Consumer::new();
        consumer.processor.suspend_default_action();
        let first = produce(consumer.inbox(), 0, 2);
        let second = produce(consumer.inbox(), 1, 1);

        let mails = consumer.run(3);

        assert!(first.join().unwrap().is_empty() && second.join().unwrap().is_empty());
        assert_eq!(numbers(&mails, 0), [0, 1]);
        assert_eq!(numbers(&mails, 1), [0]);
        assert!(consumer.processor.mailbox().is_empty());
    });
}

#[test]
fn thread_is_woken_at_most_once_for_each_time_it_waits() {
    loom::model(|| {
        let mut consumer = Consumer::new();
        consumer.processor.suspend_default_action();
        let producer = produce(consumer.inbox(), 0, 3);

        consumer.run(3);
        producer.join().unwrap();

        assert_eq!(consumer.parker.wakes.load(Ordering::Relaxed), consumer.parks);
    });
}

#[test]
fn close_gives_each_mail_to_exactly_one_side() {
    loom::model(|| {
        let mut consumer = Consumer::new();
        let first = produce(consumer.inbox(), 0, 2);
        let second = produce(consumer.inbox(), 1, 1);

        let mut mails = Vec::new();
        if let Some(mail) = consumer.processor.mailbox_mut().try_take(i32::MIN) {
            mails.push(mail.payload);
        }
        mails.extend(consumer.processor.mailbox_mut().close().into_iter().map(|mail| mail.payload));

        // Refused mail comes after accepted mail: the state never goes back.
        mails.extend(first.join().unwrap());
        mails.extend(second.join().unwrap());
        assert_eq!(numbers(&mails, 0), [0, 1]);
        assert_eq!(numbers(&mails, 1), [0]);
        assert_eq!(consumer.processor.mailbox().len(), 0);
    });
}

#[test]
fn dropped_mailbox_gives_back_what_comes_later() {
    loom::model(|| {
        let consumer = Consumer::new();
        let producer = produce(consumer.inbox(), 0, 2);

        drop(consumer);

        assert!([&[][..], &[(0, 1)], &[(0, 0), (0, 1)]].contains(&&producer.join().unwrap()[..]));
    });
}

/// The outlet of a task, and where its two threads wait.
struct Ends {
    outlet: Outlet<usize, &'static str>,
    driver: std::sync::Arc<Parker>,
    consumer: std::sync::Arc<Parker>,
}

impl Ends {
    fn new() -> Arc<Self> {
        let (driver, consumer) = (Parker::new(), Parker::new());
        let outlet = Outlet::new(
            std::sync::Arc::clone(&driver).into(),
            std::sync::Arc::clone(&consumer).into(),
        );
        Arc::new(Self { outlet, driver, consumer })
    }

    /// Puts as many batches as the consumer takes of `batches`; returns their number.
    fn drive(&self, batches: usize, wanted: &[Demand]) -> usize {
        let mut put = 0;
        while put < batches {
            match self.outlet.demand() {
                Demand::Closed => break,
                demand if wanted.contains(&demand) => {
                    // The consumer may have gone since.
                    put += usize::from(self.outlet.put(put).is_ok());
                }
                _ => self.driver.park(),
            }
        }
        put
    }

    /// The next batch, or how the driver has ended; waits for it.
    fn take(&self) -> Taken<usize, &'static str> {
        loop {
            match self.outlet.take() {
                Taken::Nothing => self.consumer.park(),
                taken => return taken,
            }
        }
    }
}

#[test]
fn each_batch_is_taken_once_and_in_its_order() {
    for wanted in [&[Demand::Any][..], &[Demand::Any, Demand::Whole]] {
        let wanted: &'static [Demand] = Box::leak(wanted.into());
        loom::model(move || {
            let ends = Ends::new();
            let of_driver = Arc::clone(&ends);
            let driver = thread::spawn(move || of_driver.drive(3, wanted));

            let taken = [ends.take(), ends.take(), ends.take()];

            assert_eq!(taken, [0, 1, 2].map(Taken::Output));
            assert_eq!(driver.join().unwrap(), 3);
        });
    }
}

#[test]
fn a_consumer_that_goes_ends_the_wait_of_the_driver() {
    loom::model(|| {
        let ends = Ends::new();
        let of_driver = Arc::clone(&ends);
        let driver = thread::spawn(move || of_driver.drive(3, &[Demand::Any, Demand::Whole]));

        let first = ends.take();
        ends.outlet.close();

        assert_eq!(first, Taken::Output(0));
        assert!(driver.join().unwrap() <= 2, "the third one had no place");
        assert_eq!((ends.outlet.take(), ends.outlet.demand()), (Taken::Nothing, Demand::Closed));
    });
}

/// The driver does not wait for demand before it says how it has ended: mostly a batch waits then.
#[test]
fn an_end_is_told_behind_the_batch_that_waits_whatever_it_is() {
    for end in [Ok(()), Err("down")] {
        loom::model(move || {
            let ends = Ends::new();
            let of_driver = Arc::clone(&ends);
            let driver = thread::spawn(move || {
                of_driver.drive(1, &[Demand::Any, Demand::Whole]);
                of_driver.outlet.end(end);
            });

            let again = if end.is_ok() { Taken::End(end) } else { Taken::Failed };
            let taken = [ends.take(), ends.take(), ends.take()];
            assert_eq!(taken, [Taken::Output(0), Taken::End(end), again]);

            driver.join().unwrap();
        });
    }
}

#[test]
fn an_end_and_a_consumer_that_goes_do_not_wait_for_each_other() {
    loom::model(|| {
        let ends = Ends::new();
        let of_driver = Arc::clone(&ends);
        let driver = thread::spawn(move || {
            of_driver.drive(1, &[Demand::Any, Demand::Whole]);
            of_driver.outlet.end(Err("down"));
        });

        ends.outlet.close();
        driver.join().unwrap();

        assert_eq!(ends.outlet.take(), Taken::End(Err("down")));
    });
}
