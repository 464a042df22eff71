// SPDX-License-Identifier: Apache-2.0
//! Operators whose calls take from budgets and from calls at a time, on a manual clock.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::VecDeque;
use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sparkawait_core::element::{Key, StreamElement, StreamRecord};
use sparkawait_core::flow::ChannelConfig;
use sparkawait_core::operator::{
    AsyncWaitOperator, AttemptId, Completion, Config, EndOfInput, Ended, Failure, FailurePolicy,
    OutputMode, Remark, Retry,
};
use sparkawait_core::policy::{
    Answer, CallSign, Costs, Gcra, HedgeAfter, HedgeConfig, Ledger, Ledgers, LimitConfig,
    LimitLeft, PolicyConfig, Price, Rate, Spent, Stock, Terms,
};
use sparkawait_core::retry::AsyncRetryStrategy;
use sparkawait_core::time::ProcessingTime;

const CALL: Duration = Duration::from_millis(7);
const MODES: [OutputMode; 3] = [OutputMode::Ordered, OutputMode::Unordered, OutputMode::KeyOrdered];

const fn permits(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap()
}

fn budget(number: u64) -> LimitConfig {
    LimitConfig::new(Terms::Spends(permits(number)))
}

fn at_a_time(number: u64) -> LimitConfig {
    LimitConfig::new(Terms::ComesBack(permits(number)))
}

/// Three calls a second, one at once.
fn slow() -> Gcra {
    Gcra::new(Rate::new(permits(3), Duration::from_secs(1)).unwrap(), NonZeroU64::MIN)
}

/// Permits that operators share.
#[derive(Debug)]
struct Shared {
    stock: Mutex<Stock>,
}

impl Shared {
    fn new(stock: Stock) -> Arc<Self> {
        Arc::new(Self { stock: Mutex::new(stock) })
    }
}

impl Ledger for Shared {
    fn ask(&self, cost: u64, now: ProcessingTime) -> Answer {
        match self.stock.lock().unwrap().ask(cost, now) {
            // Nobody here is told of what others settle.
            Answer::OnSettle => Answer::At(now + Duration::from_millis(3)),
            answer => answer,
        }
    }

    fn settle(&self, taken: u64, actual: u64) {
        self.stock.lock().unwrap().settle(taken, actual);
    }

    fn recharge(&self, taken: u64, anew: u64) {
        self.stock.lock().unwrap().recharge(taken, anew);
    }

    fn lower_to(&self, _: &LimitLeft, in_flight: u64, _: ProcessingTime, _: ProcessingTime) -> u64 {
        in_flight
    }

    fn drain(&self, _owed: u64, _now: ProcessingTime) {}
}

/// A rate that operators share.
#[derive(Debug)]
struct SharedRate(Gcra, Mutex<ProcessingTime>);

impl Ledger for SharedRate {
    fn ask(&self, cost: u64, now: ProcessingTime) -> Answer {
        let mut tat = self.1.lock().unwrap();
        let ready = self.0.ready_at(*tat, cost).max(now);
        *tat = self.0.take(*tat, cost, now);
        Answer::Ticket(ready)
    }

    fn settle(&self, taken: u64, actual: u64) {
        let mut tat = self.1.lock().unwrap();
        *tat = self.0.settle(*tat, taken, actual);
    }

    fn lower_to(&self, _: &LimitLeft, in_flight: u64, _: ProcessingTime, _: ProcessingTime) -> u64 {
        in_flight
    }

    fn drain(&self, _owed: u64, _now: ProcessingTime) {}
}

/// Limits of an operator in an order of its own.
#[derive(Debug)]
struct InOrder(Vec<Arc<dyn Ledger>>);

impl Ledgers for InOrder {
    fn open(&self, limit: usize, _channel: Option<u64>) -> Option<Arc<dyn Ledger>> {
        self.0.get(limit).cloned()
    }
}

type Operator = AsyncWaitOperator<u64, (), ()>;

/// What a record came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    Good,
    Spent(Spent),
    Else,
}

fn spent(total: u64, left: u64, cost: u64) -> Came {
    Came::Spent(Spent { limit: 0, total, left, cost })
}

/// An operator whose records all are there at once, and what each came to.
struct Task {
    operator: Operator,
    next: u64,
    records: u64,
    /// Those that are there by now.
    there: u64,
    channels: u64,
    calls: VecDeque<(ProcessingTime, AttemptId, u64)>,
    made: u64,
    most: usize,
    came: Vec<(Came, u32)>,
}

impl Task {
    fn new(
        mode: OutputMode,
        limits: &[LimitConfig],
        channels: u64,
        records: u64,
        adapt: impl FnOnce(&mut Config),
    ) -> Self {
        let mut policy = PolicyConfig::NONE;
        for (place, limit) in policy.limits.iter_mut().zip(limits) {
            *place = Some(*limit);
        }
        let mut config = Config::new(mode, NonZeroUsize::new(31).unwrap());
        config.max_concurrency = NonZeroUsize::new(13).unwrap();
        config.on_failure = FailurePolicy::Emit;
        config.at_end_of_input = EndOfInput::KeepRetrying;
        config.channels = Some(match channels {
            0 => ChannelConfig::single(policy),
            _ => ChannelConfig { policy, ..ChannelConfig::floating(13, 331) },
        });
        adapt(&mut config);
        Self {
            operator: AsyncWaitOperator::new(config),
            next: 0,
            records,
            there: records,
            channels,
            calls: VecDeque::new(),
            made: 0,
            most: 0,
            came: Vec::new(),
        }
    }

    fn start(&mut self, now: ProcessingTime) {
        for call in std::mem::take(&mut self.operator.actions().invoke) {
            self.made += 1;
            self.calls.push_back((now + CALL, call.attempt, call.value));
        }
        self.most = self.most.max(self.calls.len());
        self.operator.actions().cancel.clear();
    }

    fn feed(&mut self, price: fn(u64) -> Price, now: ProcessingTime) {
        while self.next < self.there && self.operator.free_slots() > 0 {
            let channel = (self.channels > 0).then(|| Key::new(self.next % self.channels.max(1)));
            let (record, key) = (StreamRecord::new(self.next, None), Some(Key::new(self.next % 3)));
            let price = price(self.next);
            self.operator.process_element_for(price, channel, record, key, now).unwrap();
            self.next += 1;
            self.start(now);
        }
        if self.next == self.records {
            self.operator.end_input(now);
        }
    }

    fn next_at(&mut self) -> Option<ProcessingTime> {
        let due = self.operator.poll_timeout();
        due.into_iter().chain(self.calls.front().map(|it| it.0)).min()
    }

    fn pass(
        &mut self,
        answer: &mut impl FnMut(&mut Operator, AttemptId, u64),
        now: ProcessingTime,
    ) {
        while self.calls.front().is_some_and(|it| it.0 <= now) {
            let (_, attempt, value) = self.calls.pop_front().unwrap();
            answer(&mut self.operator, attempt, value);
            self.start(now);
        }
        self.operator.handle_time(now);
        self.start(now);
        while let Some(element) = self.operator.pop_output() {
            let StreamElement::Record(emitted) = element else { continue };
            let came = match emitted.outcome {
                Ok(()) => Came::Good,
                Err(Failure::Ended(ended)) => match *ended {
                    (Ended::Spent(spent), _) => Came::Spent(spent),
                    _ => Came::Else,
                },
                Err(_) => Came::Else,
            };
            self.came.push((came, emitted.attempts));
        }
    }

    fn count(&self, came: Came) -> usize {
        self.came.iter().filter(|it| it.0 == came).count()
    }
}

/// Runs tasks side by side until each has put out all its records; returns when.
fn run(
    tasks: &mut [Task],
    price: fn(u64) -> Price,
    mut answer: impl FnMut(&mut Operator, AttemptId, u64),
) -> Duration {
    let (mut now, mut idle, mut came) = (ProcessingTime::ZERO, 0, 0);
    loop {
        for task in tasks.iter_mut() {
            task.feed(price, now);
        }
        for task in tasks.iter_mut() {
            task.pass(&mut answer, now);
        }
        if tasks.iter().all(|it| it.operator.is_finished()) {
            return now.saturating_since(ProcessingTime::ZERO);
        }
        let next = tasks.iter_mut().filter_map(Task::next_at).min();
        // With nothing to come there is room for records, or they would wait for ever.
        let before = std::mem::replace(&mut came, tasks.iter().map(|it| it.came.len()).sum());
        idle = if next.is_none() && came == before { idle + 1 } else { 0 };
        assert!(idle < 3, "they wait for ever");
        now = now.max(next.unwrap_or(now));
    }
}

fn usual(_: u64) -> Price {
    Price::Usual
}

fn good(operator: &mut Operator, attempt: AttemptId, _: u64) {
    operator.handle_completion(attempt, Completion::answered((), Retry::No), ProcessingTime::ZERO);
}

#[test]
fn a_budget_lets_as_many_calls_start_as_it_has_and_the_other_records_say_why() {
    for (mode, channels) in MODES.into_iter().flat_map(|mode| [0, 1, 3].map(|it| (mode, it))) {
        let mut tasks = [Task::new(mode, &[budget(13)], channels, 31, |_| {})];

        run(&mut tasks, usual, good);

        let [task] = tasks;
        let spent = spent(13, 0, 1);
        assert_eq!((task.count(Came::Good), task.count(spent)), (13, 18), "{mode:?} {channels}");
        assert_eq!(task.made, 13);
        let uncalled = task.came.iter().filter(|it| it.0 == spent);
        assert!(uncalled.map(|it| it.1).all(|attempts| attempts == 0));
    }
}

#[test]
fn what_calls_have_not_cost_comes_back_to_a_budget_before_it_says_never() {
    let dear = LimitConfig { cost: 5, ..budget(13) };
    for channels in [0, 3] {
        let mut tasks = [Task::new(OutputMode::Unordered, &[dear], channels, 31, |_| {})];

        run(&mut tasks, usual, |operator, attempt, _| {
            let remark = Remark::Cost { limit: 0, cost: 2 };
            operator.remark(attempt, remark, ProcessingTime::ZERO);
            good(operator, attempt, 0);
        });

        // Five calls have cost ten, and of the thirteen three are left.
        let [task] = tasks;
        let spent = spent(13, 3, 5);
        assert_eq!((task.made, task.count(Came::Good), task.count(spent)), (5, 5, 26));
        assert_eq!(task.most, 2);
    }
}

#[test]
fn a_budget_reserves_what_is_said_whatever_calls_have_cost_of_late() {
    let said = LimitConfig { cost: 7, is_usual: true, ..budget(331) };
    let mut tasks = [Task::new(OutputMode::Unordered, &[said], 0, 400, |_| {})];

    run(&mut tasks, usual, |operator, attempt, _| {
        operator.remark(attempt, Remark::Cost { limit: 0, cost: 1 }, ProcessingTime::ZERO);
        good(operator, attempt, 0);
    });

    // 325 have cost one each, and the six that are left are too few for seven.
    let [task] = tasks;
    let spent = spent(331, 6, 7);
    assert_eq!((task.made, task.count(spent)), (325, 75));
}

#[test]
fn a_record_that_a_budget_has_too_little_for_does_not_keep_cheaper_ones_from_being_called() {
    fn price(record: u64) -> Price {
        Price::Of(Costs::NONE.with(0, if record.is_multiple_of(7) { 11 } else { 1 }))
    }
    for channels in [0, 1, 3] {
        let mut tasks = [Task::new(OutputMode::Ordered, &[budget(17)], channels, 31, |_| {})];

        run(&mut tasks, price, good);

        let [task] = tasks;
        let dear =
            task.came.iter().filter(|it| matches!(it.0, Came::Spent(Spent { cost: 11, .. })));
        assert_eq!((dear.count(), task.made), (4, 1 + 6), "channels: {channels}");
    }
}

#[test]
fn no_more_calls_are_in_flight_than_at_a_time() {
    for (mode, channels) in MODES.into_iter().flat_map(|mode| [0, 1, 3].map(|it| (mode, it))) {
        let mut tasks = [Task::new(mode, &[at_a_time(2)], channels, 31, |_| {})];

        let took = run(&mut tasks, usual, good);

        let [task] = tasks;
        assert_eq!((task.count(Came::Good), task.most), (31, 2), "{mode:?} {channels}");
        assert_eq!(took, CALL * 16, "{mode:?} {channels}");
    }
}

#[test]
fn a_retry_that_its_budget_has_nothing_for_ends_with_the_failure_before_it() {
    let mut tasks = [Task::new(OutputMode::Ordered, &[budget(1)], 0, 1, |config| {
        config.retry = Some(AsyncRetryStrategy::fixed_delay(3, Duration::from_millis(7)));
    })];

    run(&mut tasks, usual, |operator, attempt, _| {
        let failed = Completion::failed((), Retry::Yes, CallSign::Unreachable);
        operator.handle_completion(attempt, failed, ProcessingTime::ZERO);
    });

    let [task] = tasks;
    assert_eq!(task.came, [(spent(1, 0, 1), 1)]);
}

#[test]
fn a_second_call_that_a_budget_has_nothing_for_is_not_made_and_its_record_is_answered() {
    let mut tasks = [Task::new(OutputMode::Ordered, &[budget(1)], 0, 1, |config| {
        let after = HedgeAfter::Time(Duration::from_millis(3));
        config.hedge = Some(HedgeConfig { after, max_extra: 1.0 });
    })];

    run(&mut tasks, usual, good);

    let [task] = tasks;
    assert_eq!((task.made, task.came), (1, vec![(Came::Good, 1)]));
}

/// Two tasks that share a rate, a budget and calls at a time, which they ask in opposite orders.
fn in_both_orders(budget_of: u64, calls: u64, channels: u64) -> ([Task; 2], [Arc<Shared>; 2]) {
    let shared = [
        Shared::new(Stock::budget(permits(budget_of))),
        Shared::new(Stock::at_a_time(permits(calls))),
    ];
    let rate: Arc<dyn Ledger> = Arc::new(SharedRate(slow(), Mutex::default()));
    let [first, second] = shared.clone().map(|it| it as Arc<dyn Ledger>);
    let (of_spends, of_calls) = (budget(budget_of), at_a_time(calls));
    let rate_last = vec![Arc::clone(&first), Arc::clone(&second), Arc::clone(&rate)];
    let orders = [
        (rate_last, [of_spends, of_calls, LimitConfig::new(slow())]),
        (vec![second, rate, first], [of_calls, LimitConfig::new(slow()), of_spends]),
    ];
    let tasks = orders.map(|(ledgers, limits)| {
        Task::new(OutputMode::Unordered, &limits, channels, 13, |config| {
            config.ledgers = Some(Arc::new(InOrder(ledgers)));
        })
    });
    (tasks, shared)
}

#[test]
fn two_callers_that_ask_in_opposite_orders_do_not_lock_each_other() {
    for channels in [0, 1, 3] {
        let (mut tasks, shared) = in_both_orders(331, 1, channels);

        let took = run(&mut tasks, usual, good);

        for task in &tasks {
            assert_eq!(task.count(Came::Good), 13, "channels: {channels}");
        }
        assert_eq!(tasks.iter().map(|it| it.most).max(), Some(1));
        // 26 calls at three a second: nobody's turns were lost to the wait for the others.
        let (least, most) =
            (Duration::from_millis(25 * 333), Duration::from_millis(26 * 334 + 500));
        assert!((least..most).contains(&took), "{took:?}, channels: {channels}");
        assert_eq!(shared[0].stock.lock().unwrap().left(), 331 - 26);
        assert!(shared[1].stock.lock().unwrap().is_full());
    }
}

#[test]
fn a_shared_budget_is_used_up_to_its_last_permit_and_not_beyond() {
    for channels in [0, 3] {
        let (mut tasks, shared) = in_both_orders(7, 3, channels);

        run(&mut tasks, usual, good);

        let made: u64 = tasks.iter().map(|it| it.made).sum();
        // Which one it is of each task.
        let spent = |limit| Came::Spent(Spent { limit, total: 7, left: 0, cost: 1 });
        let uncalled: usize =
            tasks.iter().zip([0, 2]).map(|(it, limit)| it.count(spent(limit))).sum();
        assert_eq!((made, uncalled), (7, 19), "channels: {channels}");
        assert_eq!(shared[0].stock.lock().unwrap().left(), 0);
        assert!(
            shared[1].stock.lock().unwrap().is_full(),
            "a record that is refused holds nothing"
        );
    }
}

#[test]
fn a_shared_budget_that_is_raised_lets_calls_start_in_a_task_that_was_told_never() {
    for (mode, channels) in MODES.into_iter().zip([0, 3, 0]) {
        let stock = Shared::new(Stock::budget(permits(5)));
        let mut task = Task::new(mode, &[budget(5)], channels, 61, |config| {
            config.ledgers = Some(Arc::new(InOrder(vec![Arc::clone(&stock) as Arc<dyn Ledger>])));
        });
        let mut now = ProcessingTime::ZERO;
        task.there = 29;
        for _ in 0..331 {
            task.feed(usual, now);
            task.pass(&mut good, now);
            now = task.next_at().unwrap_or(now);
            if task.there == 29 && task.came.len() == 29 {
                assert_eq!((task.made, task.count(Came::Good)), (5, 5), "{mode:?}");
                *stock.stock.lock().unwrap() = Stock::budget(permits(23));
                task.there = task.records;
            }
        }

        assert_eq!((task.made, task.came.len()), (5 + 23, 61), "{mode:?}");
        assert_eq!(task.count(Came::Good), 5 + 23, "{mode:?}");
        assert!(task.operator.is_finished());
        assert_eq!(stock.stock.lock().unwrap().left(), 0, "a record that is refused holds nothing");
    }
}

#[test]
fn who_waits_for_what_another_task_may_give_back_is_not_told_never() {
    let stock = Shared::new(Stock::budget(permits(5)));
    let mut tasks = [7, 0].map(|_| {
        Task::new(OutputMode::Unordered, &[LimitConfig { cost: 5, ..budget(5) }], 0, 1, |config| {
            config.ledgers = Some(Arc::new(InOrder(vec![Arc::clone(&stock) as Arc<dyn Ledger>])));
        })
    });
    let mut unsent = true;

    run(&mut tasks, usual, |operator, attempt, _| {
        if std::mem::take(&mut unsent) {
            operator.remark(attempt, Remark::NotSent, ProcessingTime::ZERO);
        }
        good(operator, attempt, 0);
    });

    assert_eq!(tasks.map(|it| it.came), [[(Came::Good, 1)], [(Came::Good, 1)]].map(Vec::from));
    assert_eq!(stock.stock.lock().unwrap().left(), 0);
}

#[test]
fn who_waits_for_calls_at_a_time_keeps_no_permits_of_a_budget_from_others() {
    // The first task waits for a place that never comes free, the second needs the whole budget.
    let (spends, places) =
        (Shared::new(Stock::budget(permits(3))), Shared::new(Stock::at_a_time(permits(1))));
    places.stock.lock().unwrap().take(1);
    let task = |limits: &[LimitConfig], ledgers: Vec<Arc<dyn Ledger>>| {
        Task::new(OutputMode::Unordered, limits, 0, 1, |config| {
            config.ledgers = Some(Arc::new(InOrder(ledgers)));
        })
    };
    let spends_first = vec![Arc::clone(&spends) as _, Arc::clone(&places) as _];
    let mut waits = task(&[budget(3), at_a_time(1)], spends_first);
    let dear = LimitConfig { cost: 3, ..budget(3) };
    let mut other = task(&[dear], vec![Arc::clone(&spends) as _]);

    let now = ProcessingTime::ZERO;
    waits.feed(usual, now);
    waits.pass(&mut good, now);
    assert_eq!((waits.made, spends.stock.lock().unwrap().left()), (0, 3));
    other.feed(usual, now);
    assert_eq!((other.made, spends.stock.lock().unwrap().left()), (1, 0));
}

#[test]
fn a_task_that_ends_gives_back_what_it_held() {
    let (mut tasks, shared) = in_both_orders(331, 2, 0);
    for task in &mut tasks {
        task.feed(usual, ProcessingTime::ZERO);
    }
    assert!(!shared[1].stock.lock().unwrap().is_full());
    let made: u64 = tasks.iter().map(|it| it.made).sum();

    for task in &mut tasks {
        task.operator.close();
    }
    drop(tasks);

    // Of calls that were cut off nobody knows what they have cost; they are not in flight any more.
    assert_eq!(made, 1);
    assert!(shared[1].stock.lock().unwrap().is_full());
    assert_eq!(shared[0].stock.lock().unwrap().left(), 330);
}
