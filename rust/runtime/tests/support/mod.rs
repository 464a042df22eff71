// SPDX-License-Identifier: Apache-2.0
//! A task with plain numbers for rows, a scripted function and a clock that is moved by hand.
//!
//! Times are nanoseconds: a driver that waits for a deadline on a clock that stands still waits
//! for nanoseconds at a time.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]
// Each test binary uses a part of this module.
#![allow(dead_code, clippy::allow_attributes, reason = "shared by several test binaries")]

pub(crate) mod chain;
pub(crate) mod random;
mod turns;

use std::collections::VecDeque;
use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::vec::Drain;

use sparkawait_core::element::{Key, StreamElement, StreamRecord, Timestamp, Watermark};
use sparkawait_core::flow::ChannelConfig;
use sparkawait_core::operator::{
    AttemptId, Completion, Config, Emitted, Ended, Failure, Handled, Invocation, OutputMode,
    Remark, Retry,
};
use sparkawait_core::policy::{
    CallSign, Costs, Gcra, LimitConfig, LimitLeft, PolicyConfig, Price, Rate,
};
use sparkawait_core::time::ProcessingTime;
use sparkawait_runtime::batch_codec::{InputElement, InputRecord};
use sparkawait_runtime::clock::Clock;
use sparkawait_runtime::{
    AsyncFunction, BatchCodec, BufferTimeout, ChainedOperator, Driver, DriverConfig, Feeder,
    Mailbox, OperatorChain, ReplySender, RowsLeft, Turn,
};

pub(crate) use turns::Turns;

/// A row that the codec refuses.
pub(crate) const BAD_ROW: u32 = u32::MAX;

/// A result that the codec refuses.
pub(crate) const BAD_RESULT: u32 = u32::MAX;

/// A result that leaves nothing in the output.
pub(crate) const NO_RESULT: u32 = 9;

/// A row that the codec takes and loses.
pub(crate) const LOST_ROW: u32 = u32::MAX - 2;

/// A result that gets lost on its way to the next operator.
pub(crate) const LOST_RESULT: u32 = u32::MAX - 3;

/// A row that is a watermark; its time does not matter.
pub(crate) const WATERMARK: u32 = u32::MAX - 1;

/// A clock that moves when it is told to, or a little at each look.
#[derive(Clone, Debug, Default)]
pub(crate) struct ManualClock {
    nanos: Arc<AtomicU64>,
    tick: Arc<AtomicU64>,
}

impl ManualClock {
    pub(crate) fn set(&self, nanos: u64) {
        self.nanos.store(nanos, Ordering::SeqCst);
    }

    pub(crate) fn advance(&self, nanos: u64) {
        self.nanos.fetch_add(nanos, Ordering::SeqCst);
    }

    /// Lets more time pass than a turn may take.
    pub(crate) fn end_turn(&self) {
        self.advance(1_000_000_000);
    }

    /// Lets each look at the clock take `nanos`.
    pub(crate) fn tick(&self, nanos: u64) {
        self.tick.store(nanos, Ordering::SeqCst);
    }

    pub(crate) fn nanos(&self) -> u64 {
        self.nanos.load(Ordering::SeqCst)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> ProcessingTime {
        let tick = self.tick.load(Ordering::SeqCst);
        ProcessingTime::from_nanos(self.nanos.fetch_add(tick, Ordering::SeqCst) + tick)
    }
}

/// The first row without a channel.
pub(crate) const WITHOUT_CHANNEL: u32 = 1_000_000;

/// The bytes of a row of the input.
const ROW_BYTES: usize = 100;

/// What the codec has seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Batches of input that it took.
    pub(crate) inputs: usize,
    /// Elements that it handed out.
    pub(crate) elements: usize,
    /// Results that it holds.
    pub(crate) held: usize,
    /// What happened to each outcome, in order.
    pub(crate) handled: Vec<Handled>,
    /// The rows that it handed out, and those that it emitted.
    pub(crate) admitted: Vec<u32>,
    pub(crate) emitted: Vec<u32>,
    /// Rows that it took and did not hand out.
    pub(crate) waiting: usize,
    /// Rows that it had to take back.
    pub(crate) put_back: usize,
    /// What each reply says is left of a limit.
    pub(crate) tells: Option<LimitLeft>,
    /// What each call has cost in the end.
    pub(crate) settles: Option<u64>,
    /// Whether a row costs what [`cost_of`] says.
    pub(crate) has_prices: bool,
    /// What of the codec panics, and behind how many times.
    pub(crate) panics: Option<(&'static str, usize)>,
}

impl Seen {
    /// The codec does something that may panic.
    fn does(&mut self, what: &'static str) {
        match &mut self.panics {
            Some((panics, 0)) if *panics == what => panic!("{what} of the codec"),
            Some((panics, left)) if *panics == what => *left -= 1,
            _ => {}
        }
    }
}

/// What a row costs, where rows have prices.
pub(crate) fn cost_of(row: u32) -> u64 {
    u64::from(row % 5)
}

/// Rows are numbers, and so are results; output rows are texts.
///
/// A row takes a hundred bytes until it is put out, a result as many as its number says until it is
/// emitted. The channel of a row is its last digit.
#[derive(Default)]
pub(crate) struct Numbers {
    input: VecDeque<u32>,
    output: VecDeque<String>,
    input_bytes: usize,
    result_bytes: usize,
    put_out: u64,
    without_result: u64,
    seen: Arc<Mutex<Seen>>,
}

pub(crate) type TaskFeeder = Feeder<Numbers>;
pub(crate) type Reply = Vec<(AttemptId, Completion<u32, &'static str>)>;

/// Whatever has panicked before.
fn locked(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Numbers {
    fn does(&self, what: &'static str) {
        locked(&self.seen).does(what);
    }
}

impl BatchCodec for Numbers {
    type Element = u32;
    type Results = u32;
    type Failure = &'static str;
    type Input = Vec<u32>;
    type Calls = Vec<Invocation<u32>>;
    type Reply = Reply;
    type Output = Vec<String>;
    type Error = String;

    fn rows_of(input: &Vec<u32>) -> usize {
        input.iter().filter(|row| **row != WATERMARK).count()
    }

    fn accept(&mut self, input: Vec<u32>) -> Result<(), String> {
        self.does("accept");
        locked(&self.seen).inputs += 1;
        locked(&self.seen).waiting += input.len();
        if input.contains(&BAD_ROW) {
            return Err("bad row".to_owned());
        }
        self.input_bytes += input.len() * ROW_BYTES;
        self.input.extend(input);
        Ok(())
    }

    fn next_element(&mut self) -> Option<InputElement<u32>> {
        self.does("next_element");
        while self.input.front() == Some(&LOST_ROW) {
            self.input.pop_front();
        }
        let value = self.input.pop_front()?;
        let mut seen = locked(&self.seen);
        seen.elements += 1;
        seen.waiting -= 1;
        if value != WATERMARK {
            seen.admitted.push(value);
        }
        Some(match value {
            WATERMARK => StreamElement::Watermark(Watermark(Timestamp(0))),
            value => {
                let digit = Key::new(u64::from(value % 10));
                StreamElement::Record(InputRecord {
                    record: StreamRecord::new(value, None),
                    key: Some(Key::new(u64::from(value % 3))),
                    channel: (value < WITHOUT_CHANNEL).then_some(digit),
                    price: if seen.has_prices {
                        Price::Of(Costs::NONE.with(0, cost_of(value)))
                    } else {
                        Price::Usual
                    },
                })
            }
        })
    }

    fn put_back(&mut self, record: StreamRecord<u32>) -> Result<(), String> {
        let mut seen = locked(&self.seen);
        seen.elements -= 1;
        seen.waiting += 1;
        seen.put_back += 1;
        assert_eq!(seen.admitted.pop(), Some(record.value), "another row than the last one");
        self.input.push_front(record.value);
        Ok(())
    }

    fn has_prices(&self) -> bool {
        locked(&self.seen).has_prices
    }

    fn channel_name(&self, _channel: Key, record: Option<&u32>) -> Option<String> {
        record.map(|row| format!("host-{}", row % 10))
    }

    fn has_element(&self) -> bool {
        !self.input.is_empty()
    }

    fn calls(&mut self, invocations: Drain<'_, Invocation<u32>>) -> Vec<Invocation<u32>> {
        self.does("calls");
        invocations.collect()
    }

    fn remarks(&self, reply: &Reply, mut remark: impl FnMut(AttemptId, Remark)) {
        let seen = locked(&self.seen);
        let left = seen.tells.map(|left| Remark::Left { left, is_of_channel: false });
        let cost = seen.settles.map(|cost| Remark::Cost { limit: 0, cost });
        for (attempt, _) in reply {
            left.into_iter().chain(cost).for_each(|it| remark(*attempt, it));
        }
    }

    fn accept_reply(
        &mut self,
        reply: Reply,
        mut complete: impl FnMut(AttemptId, Completion<u32, &'static str>) -> Handled,
    ) -> Result<(), String> {
        self.does("accept_reply");
        let mut seen = locked(&self.seen);
        for (attempt, completion) in reply {
            if completion.outcome == Ok(BAD_RESULT) {
                return Err("bad result".to_owned());
            }
            let handled = complete(attempt, completion);
            let is_kept = !matches!(handled, Handled::Ignored | Handled::Retried(_));
            if let (true, Ok(result)) = (is_kept, completion.outcome) {
                seen.held += 1;
                self.result_bytes += result as usize;
            }
            seen.handled.push(handled);
        }
        Ok(())
    }

    fn emit(&mut self, element: StreamElement<Emitted<u32, u32, &'static str>>) {
        self.does("emit");
        let StreamElement::Record(emitted) = element else { return };
        locked(&self.seen).emitted.push(emitted.record.value);
        if let Ok(result) = emitted.outcome {
            self.result_bytes -= result as usize;
            locked(&self.seen).held -= 1;
        }
        if emitted.outcome == Ok(NO_RESULT) {
            self.without_result += 1;
        } else {
            self.output.push_back(text(emitted.record.value, &emitted.outcome));
        }
    }

    fn input_bytes(&self) -> usize {
        self.input_bytes
    }

    fn result_bytes(&self) -> usize {
        self.result_bytes
    }

    fn output_rows(&self) -> usize {
        self.output.len()
    }

    fn is_output_full(&mut self, max_rows: usize, max_bytes: usize) -> bool {
        let bytes: usize = self.output.iter().map(String::len).sum();
        self.output.len() >= max_rows || bytes >= max_bytes
    }

    fn take_output(
        &mut self,
        max_rows: usize,
        max_bytes: usize,
    ) -> Result<Option<Vec<String>>, String> {
        self.does("take_output");
        let mut bytes = 0;
        let within = self.output.iter().take_while(|it| {
            bytes += it.len();
            bytes <= max_bytes
        });
        let rows = within.count().max(1).min(max_rows).min(self.output.len());
        self.input_bytes -= rows * ROW_BYTES;
        self.put_out += rows as u64;
        Ok((rows > 0).then(|| self.output.drain(..rows).collect()))
    }

    /// The next operator gets the results as its rows, and the rows that failed as they are.
    fn pass_on(output: Vec<String>) -> Vec<u32> {
        let row = |text: &String| match text.split_once('=') {
            Some((_, result)) => result.parse().unwrap(),
            None => text.split_once(' ').unwrap().0.parse().unwrap(),
        };
        output.iter().map(row).filter(|row| *row != LOST_RESULT).collect()
    }

    fn dropped(&self) -> u64 {
        0
    }

    fn left(&self) -> RowsLeft {
        let (put_out, without_result) = (self.put_out, self.without_result);
        RowsLeft { put_out, without_result, dropped: 0, are_all: true, output: put_out }
    }

    fn function(&self) -> &'static str {
        "numbers"
    }

    fn broken(what: String) -> String {
        what
    }

    fn failure(&mut self, failed: Emitted<u32, (), &'static str>) -> String {
        text(failed.record.value, &failed.outcome.map(|()| 0))
    }
}

fn text(value: u32, outcome: &Result<u32, Failure<&'static str>>) -> String {
    match outcome {
        Ok(result) => format!("{value}={result}"),
        Err(Failure::Ended(failure)) => match failure.0 {
            Ended::TimedOut | Ended::AttemptTimedOut | Ended::TooLate { .. } => {
                format!("{value} timed out")
            }
            Ended::Unavailable { .. } => format!("{value} waited in vain"),
            Ended::Refused { .. } | Ended::Spent(_) => format!("{value} refused"),
        },
        Err(Failure::Function(error) | Failure::RetriesExhausted(error)) => {
            format!("{value} {error}")
        }
    }
}

/// What the function is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Call(u32, AttemptId),
    AskTimeout(u32, AttemptId),
    Cancel(AttemptId),
    Close,
}

impl Told {
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Call(value, attempt) => format!("call {value}.{}", attempt.attempt),
            Self::AskTimeout(value, _) => format!("ask {value}"),
            Self::Cancel(_) => "cancel".to_owned(),
            Self::Close => "close".to_owned(),
        }
    }
}

/// What a script may do, on whichever thread.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) replies: ReplySender<Numbers>,
}

impl World {
    /// Answers with ten times the row; returns whether the task takes answers.
    pub(crate) fn reply(&self, value: u32, attempt: AttemptId) -> bool {
        self.send(attempt, Ok(value * 10), Retry::No)
    }

    pub(crate) fn fail(&self, attempt: AttemptId, retry: Retry) -> bool {
        self.send(attempt, Err("is down"), retry)
    }

    pub(crate) fn send(
        &self,
        attempt: AttemptId,
        outcome: Result<u32, &'static str>,
        retry: Retry,
    ) -> bool {
        let sign = if outcome.is_ok() { CallSign::Good } else { retry.sign() };
        self.replies.send(vec![(attempt, Completion { outcome, retry, sign })])
    }
}

/// Calls the script on the task thread for whatever the function is told.
pub(crate) struct Scripted<S> {
    script: S,
    world: World,
    told: Arc<Mutex<Vec<Told>>>,
}

impl<S: FnMut(&World, Told)> Scripted<S> {
    pub(crate) fn new(script: S, world: World) -> Self {
        Self { script, world, told: Arc::default() }
    }

    fn tell(&mut self, told: Told) {
        self.told.lock().unwrap().push(told);
        (self.script)(&self.world, told);
    }
}

impl<S: FnMut(&World, Told) + Send> AsyncFunction<Vec<Invocation<u32>>> for Scripted<S> {
    fn invoke(&mut self, calls: Vec<Invocation<u32>>) {
        for call in calls {
            self.tell(Told::Call(call.value, call.attempt));
        }
    }

    fn ask_timeout(&mut self, calls: Vec<Invocation<u32>>) {
        for call in calls {
            self.tell(Told::AskTimeout(call.value, call.attempt));
        }
    }

    fn cancel(&mut self, attempts: Vec<AttemptId>) {
        for attempt in attempts {
            self.tell(Told::Cancel(attempt));
        }
    }

    fn close(&mut self) {
        self.tell(Told::Close);
    }
}

/// The settings of a task: ordered, capacity 10, batches as large as can be.
pub(crate) fn config() -> (Config, DriverConfig) {
    let config = Config::new(OutputMode::Ordered, NonZeroUsize::new(10).unwrap());
    let driver = DriverConfig {
        max_rows_per_batch: 1000,
        max_bytes_per_batch: 64 << 20,
        capacity_bytes: None,
        growth: None,
        buffer_timeout: BufferTimeout::Never,
        target_latency: None,
        warm_up: None,
        expected_result_bytes: None,
    };
    (config, driver)
}

/// The same settings under a limit of so many calls in `period`, and so many at once.
pub(crate) fn limited(permits: u64, period: Duration, burst: u64) -> (Config, DriverConfig) {
    let (mut operator, driver) = config();
    let rate = Rate::new(NonZeroU64::new(permits).unwrap(), period).unwrap();
    let limit = Gcra::new(rate, NonZeroU64::new(burst).unwrap());
    let policy = PolicyConfig::limited(LimitConfig::new(limit));
    operator.channels = Some(ChannelConfig::single(policy));
    (operator, driver)
}

pub(crate) fn nanos(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

/// A task and all that a test looks at.
pub(crate) struct Task<S> {
    pub(crate) driver: Driver<Numbers, Scripted<S>, ManualClock>,
    pub(crate) feeder: Feeder<Numbers>,
    pub(crate) world: World,
    pub(crate) seen: Arc<Mutex<Seen>>,
    pub(crate) told: Arc<Mutex<Vec<Told>>>,
}

impl<S: FnMut(&World, Told) + Send> Task<S> {
    pub(crate) fn new((config, driver): (Config, DriverConfig), script: S) -> Self {
        let (seen, told) = (Arc::default(), Arc::default());
        let mailbox = Mailbox::new();
        let world = World { clock: ManualClock::default(), replies: mailbox.reply_sender(0) };
        let function = Scripted { script, world: world.clone(), told: Arc::clone(&told) };
        let codec = Numbers { seen: Arc::clone(&seen), ..Numbers::default() };
        let clock = world.clock.clone();
        let operator = ChainedOperator::new(config, driver, codec, function);
        let (driver, feeder) = Driver::new(mailbox, OperatorChain::new(operator), clock);
        Self { driver, feeder, world, seen, told }
    }

    /// Hands over one batch; only two may wait while no turn is taken.
    pub(crate) fn feed(&self, rows: &[u32]) {
        assert!(self.feeder.put(rows.to_vec()));
    }

    /// Takes all turns; returns the rows of all batches.
    pub(crate) fn run(&mut self) -> Vec<String> {
        let mut rows = Vec::new();
        loop {
            match self.driver.take_turn().unwrap() {
                Turn::Output(batch) => rows.extend(batch),
                Turn::Paused => {}
                Turn::Finished => return rows,
            }
        }
    }

    /// The first call that was made.
    pub(crate) fn first_call(&self) -> AttemptId {
        let told = self.told.lock().unwrap();
        let call = |it: &Told| if let Told::Call(_, attempt) = it { Some(*attempt) } else { None };
        told.iter().find_map(call).unwrap()
    }

    /// What the function was told so far, as texts.
    pub(crate) fn told(&self) -> Vec<String> {
        self.told.lock().unwrap().iter().map(Told::text).collect()
    }
}

impl<S: FnMut(&World, Told) + Send> Turns for Task<S> {
    fn take_turn(&mut self) -> Result<Turn<Vec<String>>, String> {
        self.driver.take_turn()
    }
}

/// Answers each call at once.
pub(crate) fn echo(world: &World, told: Told) {
    if let Told::Call(value, attempt) | Told::AskTimeout(value, attempt) = told {
        world.reply(value, attempt);
    }
}
