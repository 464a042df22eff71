// SPDX-License-Identifier: Apache-2.0
//! What does a mail cost, from `put` to the step that runs it, and what a step without mail?
//!
//! `one_thread`: a `VecDeque` behind a `Mutex`, filled and emptied mail by mail, is the
//! baseline; `rounds` is a loop that finds no mail. `producers`: that many threads put
//! into the mailbox of this one, which parks when it has nothing to do; a channel of
//! the standard library is the baseline. Starting the threads is part of the time.
//!
//! Goal: at most 50 ns a mail on one thread.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::{Wake, Waker};
use std::thread::{self, Thread};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sparkawait_core::mailbox::{Inbox, Mail, MailboxProcessor, Step, TaskMailbox};

/// Mails in a burst of one thread.
const BURST: u64 = 1_000;

/// Mails of all producers together.
const MAILS: u64 = 64_000;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn mail(payload: u64) -> Mail<u64> {
    Mail::new(payload, 0, "bench")
}

fn put(inbox: &Inbox<u64>, payload: u64) {
    #[expect(clippy::let_underscore_must_use, reason = "the mailbox stays open while a bench runs")]
    let _ = inbox.put(mail(payload));
}

/// Runs `mails` mails, parking when there are none.
fn run(processor: &mut MailboxProcessor<u64>, mails: u64) {
    let mut left = mails;
    while left > 0 {
        match processor.next_step() {
            Step::RunMail(mail) => {
                black_box(mail.payload);
                left -= 1;
            }
            Step::Park => thread::park(),
            Step::DefaultAction | Step::Finished => break,
        }
    }
}

fn suspended(waker: Waker) -> MailboxProcessor<u64> {
    let mut processor = MailboxProcessor::new(waker);
    processor.suspend_default_action();
    processor
}

fn one_thread(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("mailbox/one_thread");
    group.throughput(Throughput::Elements(BURST));
    group.bench_function("put_then_run_burst", |b| {
        let mut processor = suspended(Waker::noop().clone());
        b.iter(|| {
            (0..BURST).for_each(|payload| put(processor.inbox(), payload));
            run(&mut processor, BURST);
        });
    });
    group.bench_function("put_then_take_each", |b| {
        let mut mailbox = TaskMailbox::new(Waker::noop().clone());
        b.iter(|| {
            for payload in 0..BURST {
                put(mailbox.inbox(), payload);
                black_box(mailbox.try_take(i32::MIN));
            }
        });
    });
    group.bench_function("baseline_mutex_deque_each", |b| {
        let queue = Mutex::new(VecDeque::new());
        let lock = || queue.lock().unwrap_or_else(PoisonError::into_inner);
        b.iter(|| {
            for payload in 0..BURST {
                lock().push_back(mail(payload));
                black_box(lock().pop_front());
            }
        });
    });
    group.bench_function("rounds_without_mail", |b| {
        let mut processor = MailboxProcessor::<u64>::new(Waker::noop().clone());
        b.iter(|| {
            (0..BURST).map(|_| processor.next_step()).for_each(|step| {
                black_box(&step);
            });
        });
    });
    group.finish();
}

/// Splits `MAILS` among `producers` threads, each of which makes a `send` of its own.
fn with_producers<S: FnMut(u64) + Send>(
    producers: u64,
    send: impl Fn() -> S,
    receive: impl FnOnce(),
) {
    thread::scope(|scope| {
        for _ in 0..producers {
            let send = send();
            scope.spawn(move || (0..MAILS / producers).for_each(send));
        }
        receive();
    });
}

fn producers(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("mailbox/producers");
    group.sample_size(20).throughput(Throughput::Elements(MAILS));
    for count in [1, 4, 16] {
        group.bench_function(BenchmarkId::new("mailbox", count), |b| {
            let mut processor = suspended(Arc::new(Unpark(thread::current())).into());
            let inbox = Arc::clone(processor.inbox());
            let send = || |payload| put(&inbox, payload);
            b.iter(|| with_producers(count, send, || run(&mut processor, MAILS)));
        });
        group.bench_function(BenchmarkId::new("baseline_channel", count), |b| {
            let (sender, receiver) = mpsc::channel();
            let send = || {
                let sender = sender.clone();
                move |payload| {
                    #[expect(
                        clippy::let_underscore_must_use,
                        reason = "the receiver outlives the senders"
                    )]
                    let _ = sender.send(mail(payload));
                }
            };
            b.iter(|| {
                with_producers(count, send, || {
                    for _ in 0..MAILS {
                        #[expect(
                            clippy::let_underscore_must_use,
                            reason = "what is measured is not looked at"
                        )]
                        let _ = black_box(receiver.recv());
                    }
                });
            });
        });
    }
    group.finish();
}

criterion_group!(benches, one_thread, producers);
criterion_main!(benches);
