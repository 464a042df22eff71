// SPDX-License-Identifier: Apache-2.0
//! Workers use a limit that saves little, and no more than that in any window.

use sparkawait_lease::{Answer, Asked, EVERY, Server, Share, Terms};

const MILLISECOND: u64 = 1_000;
const SECOND: u64 = 1_000 * MILLISECOND;
/// So long a call takes.
const CALL: u64 = 7 * MILLISECOND;

/// A worker that has always something to do.
struct Worker {
    share: Share,
    answer: Option<Answer>,
    speaks_at: u64,
    /// When its calls end.
    flying: Vec<u64>,
}

impl Worker {
    fn new(terms: Terms, number: u64) -> Self {
        let share = Share::new(terms, &format!("worker {number}"), None, true, 0);
        Self { share, answer: None, speaks_at: number * 13 * MILLISECOND, flying: Vec::new() }
    }

    /// Begins what calls it may, and speaks if it has something to say; returns how many it has begun.
    fn turn(&mut self, server: &mut Server, terms: Terms, most: usize, now: u64) -> usize {
        if let Some(answer) = self.answer.take() {
            self.share.answered(answer, now, self.speaks_at);
        }
        self.flying.retain(|it| *it > now);
        let before = self.flying.len();
        while self.flying.len() < most && matches!(self.share.ask(1, now), Asked::Granted) {
            self.flying.push(now + CALL);
            self.share.end(1);
        }
        let is_due = self.share.due_at().is_some_and(|it| it <= now);
        if self.speaks_at <= now && is_due {
            self.speaks_at = now + EVERY;
            let said = self.share.exchange(now);
            self.answer = Some(server.exchange("limit", terms, &said, now));
        }
        self.flying.len() - before
    }
}

/// Returns what part of a limit so many workers use that have so many calls in flight, in per cent.
fn used((permits, burst): (u64, u64), workers: u64, most: usize) -> u64 {
    let terms = Terms::Rate { permits, period: SECOND, burst };
    let mut server = Server::default();
    let mut workers: Vec<_> = (0..workers).map(|it| Worker::new(terms, it)).collect();
    let (mut full, mut behind, ends) = (0_u64, 0, 11 * SECOND);
    let step = MILLISECOND / 2;
    for now in (0..ends).step_by(500) {
        let turns = workers.iter_mut().map(|it| it.turn(&mut server, terms, most, now) as u64);
        let begun: u64 = turns.sum();
        // In any window: a bucket that empties at the rate never has more than may be taken at once.
        full = full.saturating_sub(permits * step) + begun * SECOND;
        assert!(full <= burst * SECOND, "{terms:?} at {now}");
        behind += if now > SECOND { begun } else { 0 };
    }
    behind * SECOND * 100 / (permits * (ends - SECOND))
}

#[test]
fn workers_use_a_limit_that_saves_little() {
    let few_calls = [(1, 18), (2, 18), (8, 9), (1, 97), (3, 97), (8, 97)];
    let found = few_calls.map(|(workers, most)| used((4_001, 331), workers, most));
    // One worker with 18 calls of 7 ms makes 64 % of the calls at most.
    let least = [58, 92, 95, 97, 97, 97];
    assert!(found.iter().zip(least).all(|(found, least)| *found >= least), "{found:?}");
    let limits = [(101, 7), (503, 19), (503, 53), (4_001, 211)];
    let found = limits.map(|limit| used(limit, 3, 97));
    assert!(found.iter().all(|it| *it >= 97), "{found:?}");
    // A permit counts from when its lease ends, and none is shorter than that.
    let found = [(3, 1), (8, 1), (53, 1)].map(|limit| used(limit, 3, 97));
    let least = [95, 90, 62];
    assert!(found.iter().zip(least).all(|(found, least)| *found >= least), "{found:?}");
}
