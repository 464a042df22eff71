// SPDX-License-Identifier: Apache-2.0
//! A destination that drops everything is left alone, and asked now and then.

use std::time::Duration;

use super::ended_call::EndedCall;
use crate::retry::mix;
use crate::time::ProcessingTime;

/// A destination that asks for a longer pause is asked again after this.
pub(super) const LONGEST_ASKED: Duration = Duration::from_secs(3600);

/// When a destination is paused, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseConfig {
    /// Calls in a row that must be dropped; `None`: only what the destination asks for.
    pub after_drops: Option<u32>,
    /// Until the first probe.
    pub initial: Duration,
    /// Between probes at last.
    pub maximum: Duration,
    /// Calls in flight at which a destination that is back counts as well.
    pub most: u32,
    /// What spreads the probes of many processes.
    pub seed: u64,
    /// Whether records of a destination that dropped its calls fail at once instead of waiting.
    pub refuses: bool,
}

impl PauseConfig {
    /// Pauses after so many drops in a row, from 1 s to 60 s, a destination of up to `most` calls.
    pub const fn new(after_drops: Option<u32>, most: u32, seed: u64) -> Self {
        let (initial, maximum) = (Duration::from_secs(1), Duration::from_secs(60));
        Self { after_drops, initial, maximum, most, seed, refuses: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Calls are made; so many were dropped in a row.
    Open { drops: u32 },
    /// None is made until then.
    Paused { until: ProcessingTime },
    /// One call finds out whether the destination is back.
    Probing,
    /// It is; calls are let in as fast as they are answered.
    Recovering { calls: u32 },
}

/// What is known of a destination that rows are held for, see [`Pause::watch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// How many calls it has answered so far.
    pub answers: u64,
    /// How many it has dropped.
    pub drops: u64,
    /// Whether it is left alone, or was until a moment ago: a probe says when the next call is made.
    pub is_left_alone: bool,
}

/// Whether a destination is paused.
///
/// This is not a circuit breaker, whose open state fails whatever comes: an outage of a minute
/// would fail a million records. Here they wait. After some drops in a row only a probe is called,
/// after a second, then two, four, up to a minute. Its answer opens the destination to one call,
/// and each answer to one more: slow start.
///
/// ```text
///   Open --drops--> Paused --time--> Probing --answer--> Recovering --full--> Open
///                     ^                 |                    |
///                     +----- drop ------+-------- drop ------+
/// ```
///
/// Few records may end before they have had so many drops. The operator keeps them, and
/// [trips](Self::trip) it.
#[derive(Clone, Copy, Debug)]
pub struct Pause {
    config: PauseConfig,
    state: State,
    /// Pauses in a row.
    pauses: u32,
    /// When the last pause began: calls that started before say nothing of the time after it.
    paused_at: ProcessingTime,
    /// What the destination asked for.
    asked_until: ProcessingTime,
    /// Start of the call whose reply asked for it.
    asked_at: ProcessingTime,
    /// Since when it has asked for one pause after the other, without an answer between them.
    asked_from: Option<ProcessingTime>,
    /// Since when it is not open, without an answer.
    down_since: Option<ProcessingTime>,
    /// Calls that it has answered.
    answers: u64,
    /// Calls that it has dropped.
    drops: u64,
    /// Whether the next drop may be the fault of its record: then another call is made at once.
    is_doubtful: bool,
}

impl Pause {
    /// Makes an open destination.
    pub const fn new(config: PauseConfig) -> Self {
        let zero = ProcessingTime::ZERO;
        let state = State::Open { drops: 0 };
        Self {
            config,
            state,
            pauses: 0,
            paused_at: zero,
            asked_until: zero,
            asked_at: zero,
            asked_from: None,
            down_since: None,
            answers: 0,
            drops: 0,
            is_doubtful: false,
        }
    }

    /// Returns what is known of it, if records wait for its probes; `None` if drops do not pause it, or
    /// its records fail instead.
    pub const fn watch(&self) -> Option<Watch> {
        if self.config.after_drops.is_none() || self.config.refuses {
            return None;
        }
        let is_left_alone = !matches!(self.state, State::Open { .. });
        Some(Watch { answers: self.answers, drops: self.drops, is_left_alone })
    }

    /// Lets the call after the next drop be made at once: that drop may be the fault of its record.
    pub const fn doubt(&mut self) {
        self.is_doubtful = true;
    }

    /// Pauses it after the last drop, however few there were.
    pub fn trip(&mut self, now: ProcessingTime) {
        if matches!(self.state, State::Open { .. }) {
            self.pause(now);
        }
    }

    /// Returns for how long at least no call will find out whether the destination is back that has
    /// dropped its calls, if records are not to wait for that: it is too early, or one does.
    pub fn refuses_for(&self, now: ProcessingTime) -> Option<Duration> {
        match self.state {
            State::Paused { until } if now < until => Some(until.saturating_since(now)),
            State::Probing => Some(Duration::ZERO),
            State::Paused { .. } | State::Open { .. } | State::Recovering { .. } => None,
        }
        .filter(|_| self.config.refuses)
    }

    /// Makes no call before `until`, because the reply to a call that started at `started` said so.
    ///
    /// Replies overtake one another: what one says is old news once that of a call that started
    /// later is known. None makes a pause shorter.
    pub fn pause_until(
        &mut self,
        until: ProcessingTime,
        started: ProcessingTime,
        now: ProcessingTime,
    ) {
        if started >= self.asked_at {
            self.asked_from.get_or_insert(now);
            self.asked_at = started;
            self.asked_until = self.asked_until.max(until);
        }
    }

    /// Returns since when it is left alone because it dropped its calls, up to the answer of a probe;
    /// with `counts_asked` also because it asked for that, while it does.
    pub fn paused_since(&self, counts_asked: bool, now: ProcessingTime) -> Option<ProcessingTime> {
        let asked = self.asked_from.filter(|_| counts_asked && now < self.asked_until);
        [self.down_since, asked].into_iter().flatten().min()
    }

    /// Returns whether it is open, and was not long paused.
    pub fn is_settled(&self, now: ProcessingTime) -> bool {
        matches!(self.state, State::Open { drops: 0 }) && self.asked_until <= now
    }

    /// Returns until when the destination asked for a pause.
    pub const fn asked_until(&self) -> ProcessingTime {
        self.asked_until
    }

    fn dropped(&mut self, started: ProcessingTime, now: ProcessingTime) {
        let Some(most) = self.config.after_drops else { return };
        match self.state {
            State::Open { drops } if drops + 1 < most => {
                self.state = State::Open { drops: drops + 1 };
            }
            // One of those that were in flight when it began is enough.
            State::Paused { .. } | State::Recovering { .. } if started <= self.paused_at => {}
            // A probe may have been made at once.
            State::Probing if started < self.paused_at => {}
            _ => self.pause(now),
        }
    }

    fn pause(&mut self, now: ProcessingTime) {
        let growth = 1_u32.checked_shl(self.pauses.min(31)).unwrap_or(u32::MAX);
        let wait = self.config.initial.saturating_mul(growth).min(self.config.maximum);
        // A tenth more or less, so that processes that lost a destination together ask apart.
        let spread = mix(self.config.seed, u64::from(self.pauses), 0) % 201;
        let wait = wait.saturating_mul(900 + u32::try_from(spread).unwrap_or_default()) / 1000;
        self.pauses = self.pauses.saturating_add(1);
        self.paused_at = now;
        self.down_since.get_or_insert(now);
        let wait = if self.is_doubtful { Duration::ZERO } else { wait };
        self.is_doubtful = false;
        self.state = State::Paused { until: now + wait };
    }

    /// Is told that a call starts.
    pub fn on_start(&mut self, now: ProcessingTime) {
        if matches!(self.state, State::Paused { until } if until <= now) {
            self.state = State::Probing;
        }
    }

    /// Learns from a call that ended.
    pub fn on_end(&mut self, call: &EndedCall) {
        if call.sign.is_drop() {
            self.drops += 1;
            self.dropped(call.started, call.ended);
            return;
        }
        if !call.sign.is_answer() {
            if self.state == State::Probing && call.started > self.paused_at {
                // The probe has found nothing out: the next call is one.
                self.state = State::Paused { until: call.ended };
            }
            return;
        }
        // Whatever it answered: it is there.
        self.answers += 1;
        self.down_since = None;
        self.asked_from = (call.ended < self.asked_until).then_some(call.ended);
        self.state = match self.state {
            State::Open { .. } => State::Open { drops: 0 },
            // An answer to what was sent before, while nothing else is known, is good news too.
            State::Paused { .. } | State::Probing => State::Recovering { calls: 1 },
            State::Recovering { calls } if calls.saturating_add(1) >= self.config.most => {
                self.pauses = 0;
                State::Open { drops: 0 }
            }
            State::Recovering { calls } => State::Recovering { calls: calls + 1 },
        };
    }

    /// Returns how many calls may be in flight; `u32::MAX` if it sets no bound, 0 up to
    /// [`ready_at`](Self::ready_at).
    pub fn window(&self, now: ProcessingTime) -> u32 {
        if now < self.asked_until {
            return 0;
        }
        match self.state {
            State::Open { .. } => u32::MAX,
            State::Paused { until } if now < until => 0,
            State::Paused { .. } | State::Probing => 1,
            State::Recovering { calls } => calls,
        }
    }

    /// Returns when a call may start if nothing happens until then; a point in the past: at once.
    pub fn ready_at(&self) -> ProcessingTime {
        match self.state {
            State::Paused { until } => until.max(self.asked_until),
            _ => self.asked_until,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{CallSign, Costs};

    const GOOD: CallSign = CallSign::Good;
    const DROPPED: CallSign = CallSign::Unreachable;

    fn at(millis: u64) -> ProcessingTime {
        ProcessingTime::ZERO + Duration::from_millis(millis)
    }

    fn end(pause: &mut Pause, sign: CallSign, started: ProcessingTime, ended: ProcessingTime) {
        pause.on_end(&EndedCall {
            started,
            ended,
            in_flight: 1,
            sign,
            charged: Costs::NONE,
            cost: Costs::NONE,
        });
    }

    fn after_drops(drops: u32, most: u32) -> Pause {
        let mut pause = Pause::new(PauseConfig::new(Some(drops), most, 7));
        (0..drops).for_each(|_| end(&mut pause, DROPPED, at(0), at(10)));
        pause
    }

    #[test]
    fn drops_in_a_row_pause_and_others_do_not() {
        let mut pause = Pause::new(PauseConfig::new(Some(3), 100, 7));
        for sign in [DROPPED, DROPPED, GOOD, DROPPED, DROPPED, CallSign::Neutral, DROPPED, DROPPED]
        {
            end(&mut pause, sign, at(0), at(10));
        }
        assert_eq!(pause.window(at(10)), u32::MAX);
        end(&mut pause, DROPPED, at(0), at(10));
        assert_eq!(pause.window(at(10)), 0);
        assert!((at(900)..=at(1_110)).contains(&pause.ready_at()));
    }

    #[test]
    fn a_probe_that_is_made_at_once_counts() {
        let mut pause = Pause::new(PauseConfig::new(Some(1), 100, 7));
        pause.doubt();
        end(&mut pause, DROPPED, at(0), at(10));
        assert_eq!(pause.window(at(10)), 1);
        pause.on_start(at(10));
        end(&mut pause, DROPPED, at(10), at(17));
        assert_eq!(pause.window(at(17)), 0, "it was dropped, too");
    }

    #[test]
    fn a_dead_destination_is_asked_rarely() {
        let mut pause = after_drops(20, 100);
        let (mut now, mut probes) = (at(10), 0);
        while now < at(300_000) {
            now = pause.ready_at();
            assert_eq!(pause.window(now), 1);
            pause.on_start(now);
            probes += 1;
            end(&mut pause, DROPPED, now, now);
        }
        assert!((9..=12).contains(&probes), "{probes} probes");
    }

    #[test]
    fn it_is_opened_as_fast_as_it_answers() {
        let mut pause = after_drops(1, 4);
        let now = pause.ready_at();
        pause.on_start(now);
        let mut windows = vec![pause.window(now)];
        for _ in 0..4 {
            end(&mut pause, GOOD, now, now);
            windows.push(pause.window(now));
        }
        assert_eq!(windows, [1, 1, 2, 3, u32::MAX]);
    }

    #[test]
    fn what_was_in_flight_when_it_paused_neither_prolongs_nor_repeats_it() {
        let mut pause = after_drops(1, 4);
        let until = pause.ready_at();
        (0..50).for_each(|_| end(&mut pause, DROPPED, at(0), at(20)));
        assert_eq!(pause.ready_at(), until);
        pause.on_start(until);
        end(&mut pause, GOOD, until, until);
        end(&mut pause, DROPPED, at(0), until);
        assert_eq!(pause.window(until), 1);
        end(&mut pause, DROPPED, until, until);
        assert_eq!(pause.window(until), 0);
    }

    #[test]
    fn what_was_in_flight_when_it_paused_says_nothing_of_a_probe_that_runs() {
        let config = PauseConfig { refuses: true, ..PauseConfig::new(Some(1), 4, 7) };
        let mut pause = Pause::new(config);
        end(&mut pause, DROPPED, at(0), at(10));
        let until = pause.ready_at();
        pause.on_start(until);
        (0..13).for_each(|_| end(&mut pause, DROPPED, at(7), until));
        assert_eq!((pause.window(until), pause.ready_at()), (1, at(0)), "the same probe runs");
        assert_eq!(pause.refuses_for(until), Some(Duration::ZERO));
        // The probe itself counts.
        end(&mut pause, DROPPED, until, until);
        let next = pause.ready_at().saturating_since(until);
        assert!(
            (1_800..=2_200).contains(&next.as_millis()),
            "{next:?}: the second pause, no third"
        );
    }

    #[test]
    fn a_call_without_an_answer_says_nothing() {
        let mut pause = after_drops(3, 4);
        let until = pause.ready_at();
        for sign in [CallSign::CutOff, CallSign::NotCalled] {
            end(&mut pause, sign, at(0), at(20));
            assert_eq!((pause.window(at(20)), pause.ready_at()), (0, until));
        }
        pause.on_start(until);
        end(&mut pause, CallSign::CutOff, until, until);
        assert_eq!(pause.window(until), 1, "the next one is the probe");
        end(&mut pause, GOOD, until, until);
        end(&mut pause, GOOD, until, until);
        assert_eq!(pause.window(until), 2);
    }

    #[test]
    fn nothing_is_refused_because_of_a_probe_that_has_ended_without_a_word() {
        let config = PauseConfig { refuses: true, ..PauseConfig::new(Some(1), 4, 7) };
        let mut pause = Pause::new(config);
        end(&mut pause, DROPPED, at(0), at(10));
        let until = pause.ready_at();
        assert_eq!(pause.refuses_for(at(10)), Some(until.saturating_since(at(10))));
        assert_eq!(pause.refuses_for(until), None, "the next call is the probe");
        for sign in [CallSign::CutOff, CallSign::NotCalled] {
            pause.on_start(until);
            end(&mut pause, sign, at(10), until);
            assert_eq!(pause.refuses_for(until), Some(Duration::ZERO), "it was another call");
            end(&mut pause, sign, until, until);
            assert_eq!((pause.refuses_for(until), pause.window(until)), (None, 1));
        }
        pause.on_start(until);
        end(&mut pause, DROPPED, until, until);
        assert_eq!(pause.window(until), 0, "a probe that is dropped pauses it again");
    }

    #[test]
    fn a_destination_that_asks_for_a_pause_has_it_whatever_else_is_known() {
        let mut pause = Pause::new(PauseConfig::new(None, 100, 7));
        pause.pause_until(at(500), at(7), at(9));
        pause.pause_until(at(200), at(8), at(9));
        pause.pause_until(at(900), at(7), at(9));
        (0..100).for_each(|_| end(&mut pause, DROPPED, at(0), at(0)));
        assert_eq!((pause.window(at(499)), pause.ready_at()), (0, at(500)));
        assert_eq!(pause.window(at(500)), u32::MAX);
    }

    #[test]
    fn it_is_down_from_the_first_pause_to_an_answer() {
        let mut pause = after_drops(3, 4);
        assert_eq!(pause.paused_since(false, at(10)), Some(at(10)));
        for _ in 0..5 {
            let until = pause.ready_at();
            pause.on_start(until);
            end(&mut pause, DROPPED, until, until);
            assert_eq!(pause.paused_since(false, until), Some(at(10)), "a probe that is dropped");
        }
        let until = pause.ready_at();
        pause.on_start(until);
        assert_eq!(pause.paused_since(false, until), Some(at(10)), "while a probe runs");
        end(&mut pause, GOOD, until, until);
        assert_eq!(pause.paused_since(false, until), None);
    }

    #[test]
    fn what_a_destination_asks_for_counts_if_it_is_to_and_while_it_lasts() {
        let mut pause = Pause::new(PauseConfig::new(None, 100, 7));
        pause.pause_until(at(500), at(7), at(9));
        assert_eq!(pause.paused_since(false, at(9)), None);
        assert_eq!(pause.paused_since(true, at(499)), Some(at(9)));
        assert_eq!(pause.paused_since(true, at(500)), None);
        pause.pause_until(at(900), at(500), at(510));
        assert_eq!(pause.paused_since(true, at(899)), Some(at(9)), "one pause after the other");
        end(&mut pause, GOOD, at(7), at(520));
        assert_eq!(pause.paused_since(true, at(899)), Some(at(520)), "it answered between them");
    }
}
