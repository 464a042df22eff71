// SPDX-License-Identifier: Apache-2.0
//! Both ends of credit-based flow control over a wire, for any order of what happens.
//!
//! After every step all credits are accounted for: each is exclusive or lent by the pool, and each
//! that is available is at the sender, on the wire, or not announced yet.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::collections::VecDeque;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use sparkawait_core::flow::{
    ChannelId, Message, Pushed, ReceiverGate, SenderQueue, SenderQueueConfig,
};

/// What the sender puts on the wire.
#[derive(Clone, Copy, Debug)]
enum Packet {
    Data(ChannelId, Message),
    Backlog(ChannelId, u32),
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Push(usize),
    PushEvent(usize),
    /// The sender writes one message.
    Send,
    /// The receiver reads one packet.
    Receive,
    /// The receiver writes the credit of one channel.
    Announce,
    /// The sender reads one announcement.
    Credit,
    /// Work on one message ends.
    Recycle(usize),
    Resize(u32),
    /// The channel is released and requested again.
    Restart(usize),
}

struct Wire {
    gate: ReceiverGate,
    queue: SenderQueue,
    channels: Vec<ChannelId>,
    exclusive: u32,
    limit: u32,
    to_receiver: VecDeque<Packet>,
    to_sender: VecDeque<(ChannelId, u32)>,
    pushed: Vec<u32>,
    served: Vec<u32>,
}

impl Wire {
    fn new(channels: usize, exclusive: u32, floating: u32, limit: u32) -> Self {
        let config = SenderQueueConfig {
            max_backlog: u32::MAX,
            max_backlog_per_channel: u32::MAX,
            overdraft: 0,
        };
        let mut wire = Self {
            gate: ReceiverGate::new(floating),
            queue: SenderQueue::new(config),
            channels: Vec::new(),
            exclusive,
            limit,
            to_receiver: VecDeque::new(),
            to_sender: VecDeque::new(),
            pushed: vec![0; channels],
            served: vec![0; channels],
        };
        for _ in 0..channels {
            let channel = wire.gate.open(exclusive, limit);
            wire.queue.open(channel, exclusive);
            wire.channels.push(channel);
        }
        wire
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Push(channel) => self.push(channel % self.channels.len()),
            Op::PushEvent(channel) => {
                let channel = self.channels[channel % self.channels.len()];
                self.queue.push_event(channel).unwrap();
            }
            Op::Send => {
                let sent = self.queue.poll_message();
                self.to_receiver.extend(sent.map(|(id, message)| Packet::Data(id, message)));
            }
            Op::Receive => self.receive(),
            Op::Announce => self.to_sender.extend(self.gate.poll_announcement()),
            Op::Credit => {
                if let Some((channel, credit)) = self.to_sender.pop_front() {
                    self.queue.add_credit(channel, credit).unwrap();
                }
            }
            Op::Recycle(channel) => self.recycle(channel % self.channels.len()),
            Op::Resize(floating) => self.gate.resize(floating),
            Op::Restart(channel) => self.restart(channel % self.channels.len()),
        }
    }

    fn push(&mut self, index: usize) {
        let channel = self.channels[index];
        self.pushed[index] += 1;
        match self.queue.push(channel).unwrap() {
            Pushed::Accepted => {}
            Pushed::Announce { backlog } => {
                self.to_receiver.push_back(Packet::Backlog(channel, backlog));
            }
            Pushed::Refused => panic!("the total has no bound here"),
        }
    }

    fn receive(&mut self) {
        match self.to_receiver.pop_front() {
            Some(Packet::Data(channel, message)) if !message.is_event => {
                self.gate.receive(channel, message.sequence, message.backlog).unwrap();
            }
            Some(Packet::Backlog(channel, backlog)) => {
                self.gate.set_backlog(channel, backlog).unwrap();
            }
            Some(Packet::Data(channel, event)) => {
                self.gate.receive_free(channel, event.sequence).unwrap();
            }
            None => {}
        }
    }

    fn recycle(&mut self, index: usize) {
        let channel = self.channels[index];
        if self.gate.channel(channel).is_some_and(|it| it.in_use() > 0) {
            self.gate.recycle(channel);
            self.served[index] += 1;
        }
    }

    fn restart(&mut self, index: usize) {
        let old = self.channels[index];
        self.gate.release(old);
        self.queue.release(old);
        let of_old = |packet: &Packet| match packet {
            Packet::Data(channel, _) | Packet::Backlog(channel, _) => *channel == old,
        };
        self.to_receiver.retain(|packet| !of_old(packet));
        self.to_sender.retain(|(channel, _)| *channel != old);
        let new = self.gate.open(self.exclusive, self.limit);
        self.queue.open(new, self.exclusive);
        self.channels[index] = new;
        (self.pushed[index], self.served[index]) = (0, 0);
    }

    fn check(&self) {
        let (mut floating, mut waiting) = (0, 0);
        for &channel in &self.channels {
            let receiver = self.gate.channel(channel).unwrap();
            floating += receiver.floating();
            waiting += usize::from(receiver.is_waiting());
            let held = receiver.available() + receiver.in_use();
            assert_eq!(held, self.exclusive + receiver.floating());
            let credit = self.to_sender.iter().filter(|it| it.0 == channel).map(|it| it.1);
            let data = |packet: &&Packet| match packet {
                Packet::Data(id, message) => *id == channel && !message.is_event,
                Packet::Backlog(..) => false,
            };
            let data = self.to_receiver.iter().filter(data).count();
            let sender = self.queue.channel(channel).unwrap().credit();
            let known = sender + credit.sum::<u32>() + u32::try_from(data).unwrap();
            assert_eq!(receiver.available(), known + receiver.unannounced());
            let is_short = receiver.available() < receiver.required();
            let is_at_limit = held >= self.limit.max(self.exclusive);
            assert!(!is_short || is_at_limit || receiver.is_waiting(), "a short channel waits");
        }
        assert_eq!(self.gate.pool().lent(), floating);
        assert_eq!(self.gate.pool().waiting(), waiting);
        assert!(self.gate.pool().free() == 0 || waiting == 0, "a credit is free");
    }

    /// Lets everything happen until nothing is left.
    fn finish(&mut self) {
        let outstanding = |it: &Self| it.pushed.iter().sum::<u32>() - it.served.iter().sum::<u32>();
        while outstanding(self) > 0 {
            let before = outstanding(self);
            for op in [Op::Send, Op::Receive, Op::Announce, Op::Credit] {
                // Two laps, since messages and announcements call for one another.
                for _ in 0..2 * (self.channels.len() + self.to_receiver.len() + 2) {
                    self.run(op);
                }
            }
            for index in 0..self.channels.len() {
                while self.gate.channel(self.channels[index]).unwrap().in_use() > 0 {
                    self.recycle(index);
                }
            }
            let moves = !self.to_receiver.is_empty() || !self.to_sender.is_empty();
            let may_announce = self.channels.iter().any(|it| {
                self.gate.channel(*it).unwrap().unannounced() > 0
                    || self.queue.channel(*it).unwrap().is_available()
            });
            assert!(outstanding(self) < before || moves || may_announce, "a channel starves");
        }
    }
}

fn ops() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => any::<usize>().prop_map(Op::Push),
        1 => any::<usize>().prop_map(Op::PushEvent),
        8 => Just(Op::Send),
        8 => Just(Op::Receive),
        8 => Just(Op::Announce),
        8 => Just(Op::Credit),
        8 => any::<usize>().prop_map(Op::Recycle),
        1 => (0_u32..6).prop_map(Op::Resize),
        1 => any::<usize>().prop_map(Op::Restart),
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
        exclusive in 0_u32..3,
        floating in 1_u32..6,
        limit in 1_u32..9,
        sequence in prop::collection::vec(ops(), 0..150),
    ) {
        let mut wire = Wire::new(channels, exclusive, floating, limit);
        for op in sequence {
            wire.run(op);
            wire.check();
        }
        wire.gate.resize(floating);
        wire.finish();
        wire.check();
        for channel in wire.channels.clone() {
            wire.gate.release(channel);
        }
        prop_assert_eq!(wire.gate.pool().lent(), 0, "a released channel holds nothing");
    }
}

#[test]
fn three_thousand_channels_share_ten_credits_evenly() {
    const CHANNELS: usize = 3_000;
    let mut wire = Wire::new(CHANNELS, 0, 10, u32::MAX);
    for _ in 0..4 {
        (0..CHANNELS).for_each(|channel| wire.run(Op::Push(channel)));
    }
    let mut most_apart = 0;
    while wire.served.iter().sum::<u32>() < wire.pushed.iter().sum::<u32>() {
        for op in [Op::Receive, Op::Announce, Op::Credit, Op::Send] {
            (0..CHANNELS).for_each(|_| wire.run(op));
        }
        (0..CHANNELS).for_each(|channel| wire.recycle(channel));
        let (least, most) = (wire.served.iter().min(), wire.served.iter().max());
        most_apart = most_apart.max(most.unwrap() - least.unwrap());
    }
    assert!(most_apart <= 1, "some were served {most_apart} times more often than others");
    wire.check();
}
