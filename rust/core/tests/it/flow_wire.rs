// SPDX-License-Identifier: Apache-2.0
//! Both ends of credit-based flow control over a virtual network: messages take their time, a
//! connection is lost with what is on its way, and what was on its way may come all the same.
//!
//! After every step all credits are accounted for: each is exclusive or lent by the pool, and each
//! that is available is at the sender, on the wire, or not announced yet.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use crate::support::network::Link;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use sparkawait_core::flow::{
    ChannelError, ChannelKey, Message, Pushed, ReceiverChannel, ReceiverGate, SenderQueue,
    SenderQueueConfig,
};

/// What the sender puts on the wire.
type Packet = (ChannelKey, Message<u32>);

#[derive(Clone, Copy, Debug)]
enum Op {
    /// Something waits that costs so many credits.
    Push(usize, u32),
    /// The sender writes one message.
    Send,
    /// The receiver writes the credit of one channel.
    Announce,
    /// Time passes, and what is due arrives.
    Pass(u64),
    /// Work on the oldest message of a channel ends.
    Recycle(usize),
    /// The receiver wants no more of a channel, and opens another one.
    Restart(usize),
    /// The connection is lost, and made again; a share of what was on its way comes all the same.
    Lose(bool),
    /// The sender breaks a rule, which costs it the channel.
    Misbehave(usize),
}

/// A channel at both ends.
struct Shard {
    key: ChannelKey,
    /// Messages, by their numbers.
    pushed: u32,
    served: u32,
    /// Number and cost of each message that is worked on.
    working: Vec<(u32, u32)>,
    /// Whether the sender broke a rule.
    has_failed: bool,
}

struct Pair {
    gate: ReceiverGate,
    queue: SenderQueue<u32>,
    shards: Vec<Shard>,
    /// Channels of before whose messages are worked on.
    old: Vec<(ChannelKey, u32)>,
    exclusive: u32,
    limit: u32,
    latency: u64,
    to_receiver: Link<Packet>,
    to_sender: Link<(ChannelKey, u32)>,
}

impl Pair {
    fn new(channels: usize, exclusive: u32, floating: u32, limit: u32, latency: u64) -> Self {
        let config = SenderQueueConfig {
            max_channels: u32::MAX,
            max_bytes: usize::MAX,
            max_bytes_per_channel: usize::MAX,
        };
        let mut pair = Self {
            gate: ReceiverGate::new(floating),
            queue: SenderQueue::new(config),
            shards: Vec::new(),
            old: Vec::new(),
            exclusive,
            limit,
            latency,
            to_receiver: Link::default(),
            to_sender: Link::default(),
        };
        for _ in 0..channels {
            let shard = pair.open();
            pair.shards.push(shard);
        }
        pair
    }

    fn open(&mut self) -> Shard {
        let key = self.gate.open(self.exclusive, self.limit);
        self.queue.open(key, self.exclusive).unwrap();
        Shard { key, pushed: 0, served: 0, working: Vec::new(), has_failed: false }
    }

    fn run(&mut self, op: Op) {
        let channels = self.shards.len();
        match op {
            Op::Push(channel, cost) => self.push(channel % channels, cost),
            Op::Send => {
                if let Some((key, message)) = self.queue.poll_message() {
                    self.to_receiver.send((key, message), self.latency);
                }
            }
            Op::Announce => {
                if let Some(announcement) = self.gate.poll_announcement() {
                    self.to_sender.send(announcement, self.latency);
                }
            }
            Op::Pass(time) => self.pass(time),
            Op::Recycle(channel) => self.recycle(channel % channels),
            Op::Restart(channel) => self.restart(channel % channels),
            Op::Lose(comes_late) => self.lose(comes_late),
            Op::Misbehave(channel) => {
                let shard = &mut self.shards[channel % channels];
                let _ = self.gate.receive(shard.key, u32::MAX, 1, 0).unwrap_err();
                shard.has_failed = true;
            }
        }
    }

    fn push(&mut self, index: usize, cost: u32) {
        let shard = &mut self.shards[index];
        let pushed = self.queue.push(shard.key, shard.pushed, cost, 1).unwrap();
        assert_eq!(pushed, Pushed::Accepted, "there is no bound, and it is open");
        shard.pushed += 1;
    }

    fn pass(&mut self, time: u64) {
        self.to_receiver.pass(time);
        self.to_sender.pass(time);
        while let Some(packet) = self.to_receiver.receive() {
            self.receive(packet);
        }
        while let Some((key, credit)) = self.to_sender.receive() {
            self.queue.add_credit(key, credit).unwrap();
        }
    }

    fn receive(&mut self, (key, message): Packet) {
        let Message { sequence, cost, backlog, .. } = message;
        let received = self.gate.receive(key, sequence, cost, backlog);
        let shard = self.shards.iter_mut().find(|it| it.key == key);
        match (received, shard) {
            (Ok(()), Some(shard)) => {
                let before = shard.served as usize + shard.working.len();
                assert_eq!(message.payload as usize, before, "nothing is lost or comes twice");
                shard.working.push((message.payload, message.cost));
            }
            (Err(ChannelError::Released(_)), None) => {}
            (Err(error), shard) => {
                assert!(shard.is_some_and(|it| it.has_failed), "{error} without a reason");
            }
            (Ok(()), None) => panic!("{message:?} is of channel {key}, which is gone"),
        }
    }

    fn recycle(&mut self, index: usize) {
        if let Some((key, cost)) = self.old.pop() {
            self.gate.recycle(key, cost);
        }
        let shard = &mut self.shards[index];
        if !shard.working.is_empty() {
            let (_, cost) = shard.working.remove(0);
            shard.served += 1;
            self.gate.recycle(shard.key, cost);
        }
    }

    /// The order of frames is kept by the wire: what the sender is told of the end of a channel
    /// comes before what it is told of the next one.
    fn restart(&mut self, index: usize) {
        let shard = &mut self.shards[index];
        let of_old = std::mem::take(&mut shard.working);
        self.old.extend(of_old.into_iter().map(|(_, cost)| (shard.key, cost)));
        self.gate.release(shard.key);
        self.queue.release(shard.key);
        self.shards[index] = self.open();
    }

    fn lose(&mut self, comes_late: bool) {
        if !comes_late {
            self.to_receiver.packets.clear();
            self.to_sender.packets.clear();
        }
        (0..self.shards.len()).for_each(|index| self.restart(index));
    }

    fn check(&self) {
        let (mut floating, mut waiting) = (0, 0);
        for shard in &self.shards {
            let receiver = self.gate.channel(shard.key).unwrap();
            floating += receiver.floating();
            waiting += usize::from(receiver.is_waiting());
            let working: u32 = shard.working.iter().map(|(_, cost)| cost).sum();
            assert_eq!(receiver.in_use(), working);
            let held = receiver.available() + receiver.in_use() - receiver.debt();
            assert_eq!(held, self.exclusive + receiver.floating());
            if shard.has_failed {
                let excess = receiver.available() > self.exclusive || receiver.is_waiting();
                assert!(!excess, "what failed keeps nothing from the others");
                continue;
            }
            self.check_credit(shard);
            let is_short = receiver.available() < receiver.required();
            let is_at_limit = held >= self.limit.max(self.exclusive);
            assert!(!is_short || is_at_limit || receiver.is_waiting(), "a short channel waits");
        }
        let mut old: Vec<_> = self.old.iter().map(|(key, _)| *key).collect();
        old.sort_unstable();
        old.dedup();
        let of_old = old.iter().filter_map(|key| self.gate.channel(*key));
        assert_eq!(
            self.gate.pool().lent(),
            floating + of_old.map(ReceiverChannel::floating).sum::<u32>()
        );
        assert_eq!(self.gate.pool().waiting(), waiting);
        assert!(self.gate.pool().free() == 0 || waiting == 0, "a credit is free");
    }

    fn check_credit(&self, shard: &Shard) {
        let receiver = self.gate.channel(shard.key).unwrap();
        let told = self.to_sender.packets.iter().map(|it| it.1);
        let told = told.filter(|it| it.0 == shard.key).map(|it| i64::from(it.1));
        let data = self.to_receiver.packets.iter().map(|it| it.1);
        let data = data.filter(|it| it.0 == shard.key).map(|it| i64::from(it.1.cost));
        let sender = self.queue.channel(shard.key).unwrap().credit();
        let known = sender + told.sum::<i64>() + data.sum::<i64>();
        let free = i64::from(receiver.available()) - i64::from(receiver.debt());
        assert_eq!(free, known + i64::from(receiver.unannounced()));
    }

    /// Lets everything happen until nothing is left.
    fn finish(&mut self) {
        let outstanding = |it: &Self| {
            let left = |it: &Shard| if it.has_failed { 0 } else { it.pushed - it.served };
            it.shards.iter().map(left).sum::<u32>()
        };
        while outstanding(self) > 0 || !self.old.is_empty() {
            let before = (outstanding(self), self.old.len());
            for _ in 0..3 {
                while self.queue.has_message() {
                    self.run(Op::Send);
                }
                while self.gate.has_announcement() {
                    self.run(Op::Announce);
                }
                self.run(Op::Pass(self.latency));
            }
            for index in 0..self.shards.len() {
                while !self.shards[index].working.is_empty() || !self.old.is_empty() {
                    self.recycle(index);
                }
            }
            let after = (outstanding(self), self.old.len());
            let moves = self.queue.has_message() || self.gate.has_announcement();
            assert!(after < before || moves, "a channel starves");
        }
    }
}

fn ops() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (any::<usize>(), 1_u32..6).prop_map(|(channel, cost)| Op::Push(channel, cost)),
        8 => Just(Op::Send),
        8 => Just(Op::Announce),
        8 => (0_u64..20).prop_map(Op::Pass),
        8 => any::<usize>().prop_map(Op::Recycle),
        1 => any::<usize>().prop_map(Op::Restart),
        1 => any::<bool>().prop_map(Op::Lose),
        1 => any::<usize>().prop_map(Op::Misbehave),
    ]
}

/// Fewer or more cases by the environment variable `PROPTEST_CASES`.
fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|it| it.parse().ok());
    let file = FileFailurePersistence::Direct("proptest-regressions/flow_wire.txt");
    ProptestConfig {
        cases: cases.unwrap_or(2_000),
        failure_persistence: Some(Box::new(file)),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn credits_are_conserved_and_no_channel_starves(
        channels in 1_usize..5,
        exclusive in 1_u32..3,
        floating in 1_u32..6,
        limit in 1_u32..9,
        latency in 1_u64..30,
        sequence in prop::collection::vec(ops(), 0..150),
    ) {
        let mut pair = Pair::new(channels, exclusive, floating, limit, latency);
        for op in sequence {
            pair.run(op);
            pair.check();
        }
        pair.finish();
        pair.check();
        for index in 0..channels {
            pair.restart(index);
        }
        while !pair.old.is_empty() {
            pair.recycle(0);
        }
        pair.check();
        for shard in &pair.shards {
            pair.gate.release(shard.key);
        }
        prop_assert_eq!(pair.gate.pool().lent(), 0, "a released channel holds nothing");
    }
}

#[test]
fn three_thousand_channels_share_ten_credits_evenly() {
    const CHANNELS: usize = 3_000;
    let mut pair = Pair::new(CHANNELS, 1, 10, u32::MAX, 1);
    for _ in 0..4 {
        (0..CHANNELS).for_each(|channel| pair.run(Op::Push(channel, 1)));
    }
    let mut most_apart = 0;
    while pair.shards.iter().any(|it| it.served < it.pushed) {
        pair.run(Op::Pass(1));
        while pair.gate.has_announcement() {
            pair.run(Op::Announce);
        }
        while pair.queue.has_message() {
            pair.run(Op::Send);
        }
        pair.run(Op::Pass(1));
        (0..CHANNELS).for_each(|channel| pair.recycle(channel));
        let served = pair.shards.iter().map(|it| it.served);
        most_apart = most_apart.max(served.clone().max().unwrap() - served.min().unwrap());
    }
    assert!(most_apart <= 1, "some were served {most_apart} times more often than others");
    pair.check();
}

#[test]
fn a_channel_whose_messages_are_not_worked_on_does_not_hold_the_others() {
    const ROUNDS: u32 = 50;
    let mut pair = Pair::new(4, 1, 8, 4, 10);
    let stalled = 0;
    for _ in 0..ROUNDS {
        (0..4).for_each(|channel| pair.run(Op::Push(channel, 2)));
        while pair.queue.has_message() {
            pair.run(Op::Send);
        }
        pair.run(Op::Pass(10));
        (1..4).for_each(|channel| (0..4).for_each(|_| pair.recycle(channel)));
        while pair.gate.has_announcement() {
            pair.run(Op::Announce);
        }
        pair.run(Op::Pass(10));
        pair.check();
    }

    let served: Vec<u32> = pair.shards.iter().map(|it| it.served).collect();
    assert!(served[1..].iter().all(|it| *it >= ROUNDS - 2), "{served:?}");
    let held = pair.gate.channel(pair.shards[stalled].key).unwrap().in_use();
    assert!((4..=5).contains(&held), "its limit, and the rest of one message: {held}");
}
