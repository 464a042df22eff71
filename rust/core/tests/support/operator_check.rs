// SPDX-License-Identifier: Apache-2.0
//! The operator against its model, after each operation.

use std::collections::HashSet;

use sparkawait_core::element::StreamElement;
use sparkawait_core::operator::{Actions, AttemptId, Invocation, Metrics, OutputMode};
use sparkawait_core::time::ProcessingTime;

use super::held_model::{Held, State, key_of};
use super::operator_model::{Model, Operator};

impl Model {
    /// Learns which calls started, and checks all that the operator asks for.
    pub(crate) fn learn(&mut self, actions: Actions<u32>, operator: &Operator) {
        let readied = self.readied;
        let mut asked = actions.ask_timeout.clone();
        self.give_up(operator, &mut asked);
        for invocation in actions.invoke {
            self.start(invocation);
            // It may be what others are not to wait for.
            self.give_up(operator, &mut asked);
        }
        // Which of several channels gives up first is not said.
        self.tie_ready(readied);
        assert_eq!(actions.ask_timeout.len(), self.asks.len());
        let mut asks = std::mem::take(&mut self.asks);
        for asked in &actions.ask_timeout {
            // Those of one moment come in any order.
            let place = asks.iter().position(|it| *it == asked.value);
            let value = asks.swap_remove(place.expect("it should be asked for"));
            assert_eq!(asked.attempt.attempt, AttemptId::TIMEOUT);
            let id = *self.get(value).id.get_or_insert(asked.attempt.entry);
            assert_eq!(asked.attempt.entry, id);
        }
        let cancelled: HashSet<AttemptId> = actions.cancel.iter().copied().collect();
        assert_eq!(cancelled.len(), actions.cancel.len(), "a call is cancelled once");
        let expected = std::mem::take(&mut self.cancels);
        if !self.withdraws_calls {
            assert_eq!(cancelled, expected, "calls to cancel");
        }
    }

    /// Checks that no record which came earlier is passed.
    fn check_order(&self, value: u32) {
        let is_single = self.config.channels.is_none();
        let beside = |it: &Held| is_single || self.channel(it.value) == self.channel(value);
        let waits = |it: &&Held| it.waits() && it.attempts == 0 && beside(it);
        let mut earlier = self.held().take_while(|it| it.value != value).filter(waits);
        let passed = earlier.find(|it| !self.is_blocked(it.value));
        assert!(passed.is_none(), "{value} overtakes {passed:?}");
    }

    /// Starts the call of a record that may start.
    fn start(&mut self, Invocation { attempt, value }: Invocation<u32>) {
        assert!(!self.is_closed && !self.is_blocked(value), "{value} starts while it is blocked");
        assert!(self.running() < self.window, "{value} starts beside {} calls", self.running());
        self.check_share(value);
        let is_keyed = self.config.mode == OutputMode::KeyOrdered;
        let starts_in_order = !is_keyed && attempt.attempt == 1;
        if starts_in_order {
            self.check_order(value);
        }
        let uncounted = self.get(value).uncounted;
        let tries = attempt.attempt - uncounted.count;
        let retry = self.config.retry.filter(|_| tries > 1);
        let is_permitted = retry.map_or(tries == 1, |it| it.can_retry(tries - 1));
        assert!(is_permitted, "attempt {} of {value}", attempt.attempt);
        let (since, number) = (self.now, self.starts);
        let (now, timeout) = (self.now, self.config.timeout);
        let held = self.get(value);
        // Its time begins, or goes on.
        let deadline = match held.deadline {
            None => timeout.map(|it| now + it),
            Some(known) => Some(known + now.saturating_since(held.waits_since)),
        };
        let is_moved = deadline != held.deadline;
        assert_eq!(held.state, State::Waiting, "{value} starts");
        assert_eq!(*held.id.get_or_insert(attempt.entry), attempt.entry);
        assert_eq!(attempt.attempt, held.attempts + 1);
        held.attempts += 1;
        held.state = State::Running { since, number };
        if is_moved {
            self.arm(value, deadline);
        }
        self.starts += 1;
        self.tell_start(value);
        self.metrics.attempts += 1;
        let is_part = attempt.attempt > 1 && uncounted.last_divided + 1 == attempt.attempt;
        self.metrics.parts += u64::from(is_part);
        self.metrics.retries += u64::from(attempt.attempt > 1 && !is_part);
    }

    /// Compares all that can be asked of the operator.
    pub(crate) fn check(&mut self, operator: &mut Operator) {
        self.check_permits();
        self.check_credits();
        self.check_report(operator);
        self.check_metrics(operator);
        assert_eq!(operator.queue_size(), self.held().count());
        assert_eq!(operator.in_flight(), self.running());
        self.check_slots(operator);
        assert_eq!(operator.is_replaying(), !self.replay.is_empty());
        assert_eq!(operator.has_output(), self.next(None).is_some());
        assert_eq!(operator.is_finished(), self.is_finished());
        let failed = operator.failure().cloned();
        assert_eq!(failed, self.failed);
        let backing_off = |it: &&Held| matches!(it.state, State::BackOff { .. });
        let backing_off = self.held().filter(|it| !self.is_closed && backing_off(it));
        assert_eq!(operator.pending_retries(), backing_off.count());
        let times = self.times();
        self.check_timeout(operator, &times);
        assert_eq!(operator.active_timers(), times.len() + self.without_token().count());
    }

    fn check_permits(&self) {
        let max_concurrency = self.config.max_concurrency.get();
        let spread = self.config.channels.filter(|it| !it.is_single);
        let backlog = spread.map_or(0, |channels| channels.max_backlog);
        assert!(self.held().count() <= self.config.capacity.get() + backlog);
        assert!(self.running() <= max_concurrency);
        let may_start = |it: &&Held| it.waits() && !self.is_blocked(it.value);
        if self.config.channels.is_none() && self.running() < self.window && !self.is_closed {
            assert!(!self.held().any(|it| may_start(&it)), "a permit is free");
        }
        let mut keys = HashSet::new();
        let running = self.held().filter(|it| it.is_running());
        let mut running_keys = running.filter_map(|it| key_of(it.value));
        let is_keyed = self.config.mode == OutputMode::KeyOrdered;
        assert!(!is_keyed || running_keys.all(|key| keys.insert(key)), "two calls for a key");
    }

    fn check_metrics(&mut self, operator: &mut Operator) {
        let actual = operator.metrics(self.now);
        if std::mem::take(&mut self.withdraws_calls) {
            let Metrics { attempts, retries, parts, cancelled, .. } = actual;
            self.metrics = Metrics { attempts, retries, parts, cancelled, ..self.metrics };
        }
        let ages = self.held().map(|it| it.age(self.now));
        let expected = Metrics {
            in_flight: self.running(),
            queue_size: self.held().count(),
            oldest_age: ages.max().unwrap_or_default(),
            ..self.metrics
        };
        assert_eq!(actual, expected);
        let left = actual.emitted + actual.queue_size as u64;
        assert_eq!(actual.admitted, left, "each record left or is held");
    }

    fn is_finished(&self) -> bool {
        if self.is_closed {
            return self.next(None).is_none();
        }
        self.input_ended && self.line.is_empty() && self.replay.is_empty()
    }

    /// The times at which something happens.
    fn times(&self) -> Vec<ProcessingTime> {
        let live = self.held().filter(|it| it.ages() && !self.is_closed);
        live.flat_map(|held| {
            let attempt = held.attempt_deadline(self.config.attempt_timeout).map(|(time, _)| time);
            let retry = match held.state {
                State::BackOff { due, lacks_token: false } => Some(due),
                _ => None,
            };
            [held.deadline, attempt, retry].into_iter().flatten()
        })
        .collect()
    }

    /// What is held, and will be; watermarks do not count.
    pub(crate) fn values(&self) -> Vec<u32> {
        let replayed = self.replay.iter().filter_map(|element| match element {
            StreamElement::Record(it) => Some(it.record.value),
            StreamElement::Watermark(_) => None,
        });
        self.held().map(|it| it.value).chain(replayed).collect()
    }
}
