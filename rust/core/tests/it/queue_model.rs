// SPDX-License-Identifier: Apache-2.0
//! The three queues against one naive model, a list of elements, for any sequence of operations.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::HashSet;
use std::num::NonZeroUsize;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::FileFailurePersistence;
use sparkawait_core::element::{Key, StreamElement, Timestamp, Watermark};
use sparkawait_core::operator::OutputMode;
use sparkawait_core::queue::{
    AnyStreamElementQueue, Completed, Entry, EntryId, KeyOrderedStreamElementQueue, NotPending,
    OrderedStreamElementQueue, QueueFull, Start, StreamElementQueue, UnorderedStreamElementQueue,
};

type Queue = AnyStreamElementQueue<u64, u64>;

/// One call.
#[derive(Clone, Debug)]
enum Op {
    /// A record, with a key or without one.
    Put(Option<u64>),
    Watermark(i64),
    /// Completes one of the records that are held, or were: double and stale handles, too.
    Complete(Index),
    /// Completes a record that is held and has no result.
    CompletePending(Index),
    /// Completes whatever has this handle, which may be nothing.
    CompleteNumber(u64),
    Pop,
}

fn ops() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => prop::option::weighted(0.8, 0_u64..3).prop_map(Op::Put),
        2 => (0_i64..5).prop_map(Op::Watermark),
        2 => any::<Index>().prop_map(Op::Complete),
        6 => any::<Index>().prop_map(Op::CompletePending),
        1 => prop_oneof![0_u64..8, (0_u64..4).prop_map(|it| it << 32), any::<u64>()]
            .prop_map(Op::CompleteNumber),
        6 => Just(Op::Pop),
    ]
}

/// A record as the model keeps it.
#[derive(Clone, Debug)]
struct Record {
    id: EntryId,
    value: u64,
    key: Option<u64>,
    result: Option<u64>,
    /// Its place in the order in which records became ready; blocked ones are not.
    ready: Option<usize>,
}

/// The rules, in the plainest form: everything held, in the order of arrival.
struct Model {
    mode: OutputMode,
    capacity: usize,
    elements: Vec<StreamElement<Record>>,
    readied: usize,
}

impl Model {
    fn records(&self) -> impl Iterator<Item = &Record> {
        self.elements.iter().filter_map(|element| match element {
            StreamElement::Record(record) => Some(record),
            StreamElement::Watermark(_) => None,
        })
    }

    fn records_mut(&mut self) -> impl Iterator<Item = &mut Record> {
        self.elements.iter_mut().filter_map(|element| match element {
            StreamElement::Record(record) => Some(record),
            StreamElement::Watermark(_) => None,
        })
    }

    fn is_full(&self) -> bool {
        self.records().count() == self.capacity
    }

    /// Whether a record that is not ready keeps later ones of `key` from starting.
    fn is_busy(&self, key: Option<u64>) -> bool {
        let is_keyed = self.mode == OutputMode::KeyOrdered && key.is_some();
        is_keyed && self.records().any(|it| it.key == key && it.ready.is_none())
    }

    fn put_watermark(&mut self, watermark: Watermark) {
        match self.elements.last_mut() {
            Some(StreamElement::Watermark(last)) => *last = watermark.max(*last),
            _ => self.elements.push(StreamElement::Watermark(watermark)),
        }
    }

    /// Stores a result; returns the record that may start now.
    fn complete(&mut self, id: EntryId, result: u64) -> Result<Option<EntryId>, NotPending> {
        let mut records = self.records_mut();
        let record = records.find(|it| it.id == id && it.result.is_none()).ok_or(NotPending)?;
        record.result = Some(result);
        drop(records);
        Ok(self.make_ready(id))
    }

    /// Makes a completed record ready unless its key is busy, and then those behind it.
    fn make_ready(&mut self, id: EntryId) -> Option<EntryId> {
        let key = self.records().find(|it| it.id == id)?.key;
        let is_keyed = self.mode == OutputMode::KeyOrdered && key.is_some();
        let chain = self.records().filter(|it| it.id == id || (is_keyed && it.key == key));
        let pending = chain.filter(|it| it.ready.is_none()).map(|it| (it.id, it.result));
        let pending: Vec<_> = pending.collect();
        if pending[0].0 != id {
            return None;
        }
        for (id, result) in pending {
            if result.is_none() {
                return Some(id);
            }
            self.readied += 1;
            let number = self.readied;
            self.records_mut().find(|it| it.id == id)?.ready = Some(number);
        }
        None
    }

    /// The index of the element that leaves next.
    fn next(&self) -> Option<usize> {
        let before_watermark = |element: &&StreamElement<Record>| {
            self.mode != OutputMode::Ordered && matches!(element, StreamElement::Record(_))
        };
        let first = self.elements.iter().take_while(before_watermark).enumerate();
        let ready = first.filter_map(|(index, element)| match element {
            StreamElement::Record(record) => Some((record.ready?, index)),
            StreamElement::Watermark(_) => None,
        });
        ready.min().map(|(_, index)| index).or_else(|| match self.elements.first()? {
            StreamElement::Watermark(_) => Some(0),
            StreamElement::Record(record) => {
                (self.mode == OutputMode::Ordered && record.result.is_some()).then_some(0)
            }
        })
    }

    fn pop(&mut self) -> Option<StreamElement<Completed<u64, u64>>> {
        let element = self.elements.remove(self.next()?);
        Some(element.map(|it| Completed { value: it.value, result: it.result.unwrap() }))
    }
}

/// The real queue and the model, side by side.
struct Pair {
    real: Queue,
    model: Model,
    /// Every handle ever given.
    issued: Vec<EntryId>,
    values: u64,
}

impl Pair {
    fn new(mode: OutputMode, capacity: NonZeroUsize) -> Self {
        let real = match mode {
            OutputMode::Ordered => Queue::Ordered(OrderedStreamElementQueue::new(capacity)),
            OutputMode::Unordered => Queue::Unordered(UnorderedStreamElementQueue::new(capacity)),
            OutputMode::KeyOrdered => {
                Queue::KeyOrdered(KeyOrderedStreamElementQueue::new(capacity))
            }
        };
        let capacity = capacity.get();
        let model = Model { mode, capacity, elements: Vec::new(), readied: 0 };
        Self { real, model, issued: Vec::new(), values: 0 }
    }

    fn put(&mut self, key: Option<u64>) {
        self.values += 1;
        let value = self.values;
        let put = self.real.try_put_keyed(value, key.map(Key::new));
        if self.model.is_full() {
            assert_eq!(put, Err(QueueFull { element: value, capacity: self.real.capacity() }));
            return;
        }
        let (id, start) = put.unwrap();
        assert_eq!(start == Start::Blocked, self.model.is_busy(key), "start of {id}");
        assert!(!self.issued.contains(&id), "handle {id} was given twice");
        self.issued.push(id);
        let record = Record { id, value, key, result: None, ready: None };
        self.model.elements.push(StreamElement::Record(record));
    }

    fn complete(&mut self, id: EntryId) {
        self.values += 1;
        let expected = self.model.complete(id, self.values);
        assert_eq!(self.real.complete_keyed(id, self.values), expected);
    }

    fn run(&mut self, op: &Op) {
        match op {
            Op::Put(key) => self.put(*key),
            Op::Watermark(timestamp) => {
                self.real.put_watermark(Watermark(Timestamp(*timestamp)));
                self.model.put_watermark(Watermark(Timestamp(*timestamp)));
            }
            Op::Complete(index) if !self.issued.is_empty() => {
                self.complete(*index.get(&self.issued));
            }
            Op::CompletePending(index) => {
                let pending = self.model.records().filter(|it| it.result.is_none());
                let pending: Vec<_> = pending.map(|it| it.id).collect();
                if !pending.is_empty() {
                    self.complete(*index.get(&pending));
                }
            }
            Op::CompleteNumber(number) => self.complete(EntryId::from_u64(*number)),
            Op::Pop => assert_eq!(self.real.pop_completed(), self.model.pop()),
            Op::Complete(_) => {}
        }
    }

    /// Compares all that can be asked of a queue.
    fn check(&mut self) {
        let Self { real, model, issued, .. } = self;
        assert_eq!(real.len(), model.records().count());
        assert_eq!(real.capacity().get(), model.capacity);
        assert_eq!(real.is_empty(), model.elements.is_empty());
        assert_eq!(real.has_completed(), model.next().is_some());
        let expected = model.elements.iter().map(|element| {
            element.as_ref().map(|it| Entry {
                id: it.id,
                value: &it.value,
                result: it.result.as_ref(),
            })
        });
        assert_eq!(real.values(), expected.collect::<Vec<_>>());
        assert_eq!(real.oldest(), model.records().next().map(|it| &it.value));
        let mut seen: Vec<_> = Vec::new();
        assert!(!real.any(|value| {
            seen.push(*value);
            false
        }));
        assert_eq!(seen.len(), model.records().count());
        let held: HashSet<EntryId> = model.records().map(|it| it.id).collect();
        for id in issued {
            assert_eq!(real.get_mut(*id).is_some(), held.contains(id), "{id}");
        }
    }

    /// Completes and pops what is left.
    fn drain(&mut self) {
        let pending = self.model.records().filter(|it| it.result.is_none()).map(|it| it.id);
        for id in pending.collect::<Vec<_>>() {
            self.complete(id);
        }
        while !self.model.elements.is_empty() {
            self.run(&Op::Pop);
        }
        self.check();
    }
}

fn agrees_with_the_model(mode: OutputMode, capacity: usize, sequence: &[Op]) {
    let mut pair = Pair::new(mode, NonZeroUsize::new(capacity).unwrap());
    for op in sequence {
        pair.run(op);
        pair.check();
    }
    pair.drain();
}

/// Fewer or more cases by the environment variable `PROPTEST_CASES`.
fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|it| it.parse().ok());
    let file = FileFailurePersistence::Direct("proptest-regressions/queue_model.txt");
    ProptestConfig {
        cases: cases.unwrap_or(5_000),
        failure_persistence: Some(Box::new(file)),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn ordered_queue_agrees_with_the_model(
        capacity in 1_usize..6,
        sequence in prop::collection::vec(ops(), 0..80),
    ) {
        agrees_with_the_model(OutputMode::Ordered, capacity, &sequence);
    }

    #[test]
    fn unordered_queue_agrees_with_the_model(
        capacity in 1_usize..8,
        sequence in prop::collection::vec(ops(), 0..80),
    ) {
        agrees_with_the_model(OutputMode::Unordered, capacity, &sequence);
    }

    #[test]
    fn key_ordered_queue_agrees_with_the_model(
        capacity in 1_usize..10,
        sequence in prop::collection::vec(ops(), 0..80),
    ) {
        agrees_with_the_model(OutputMode::KeyOrdered, capacity, &sequence);
    }
}
