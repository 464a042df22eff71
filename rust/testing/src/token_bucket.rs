// SPDX-License-Identifier: Apache-2.0
//! A rate limit.

use std::time::{Duration, Instant};

/// Lets a number of requests per second through, or of what they cost.
///
/// Holds one second's worth of tokens, one at least, or as many as it was made with, and starts full: a
/// client that was idle may send that many at once. Time is an argument.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    /// Tokens added per second, positive.
    rate: f64,
    /// The most tokens that it holds.
    depth: f64,
    /// Tokens left, at most `depth`; fractions add up.
    tokens: f64,
    /// When `tokens` was right.
    at: Instant,
}

impl TokenBucket {
    /// Makes a full bucket for `rate` requests per second.
    pub(crate) fn new(rate: f64, now: Instant) -> Self {
        Self::holding(rate, rate.max(1.0), now)
    }

    /// Makes a full bucket that holds `depth` tokens.
    pub(crate) fn holding(rate: f64, depth: f64, now: Instant) -> Self {
        Self { rate, depth, tokens: depth, at: now }
    }

    /// Takes a token, or tells how long it is until there is one.
    pub(crate) fn try_take(&mut self, now: Instant) -> Result<(), Duration> {
        self.has(1.0, now)?;
        self.take(1.0);
        Ok(())
    }

    /// Tells how long it is until there are `cost` tokens, or as many as it ever holds.
    pub(crate) fn has(&mut self, cost: f64, now: Instant) -> Result<(), Duration> {
        self.refill(now);
        let missing = cost.min(self.depth) - self.tokens;
        if missing > 0.0 {
            let wait = missing / self.rate;
            return Err(Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX));
        }
        Ok(())
    }

    /// Takes `cost` tokens, also where there are fewer.
    pub(crate) fn take(&mut self, cost: f64) {
        self.tokens -= cost;
    }

    /// Returns how many tokens are left, and how long it is until all are there.
    pub(crate) fn left(&mut self, now: Instant) -> (f64, Duration) {
        self.refill(now);
        let wait = Duration::try_from_secs_f64((self.depth - self.tokens) / self.rate);
        (self.tokens.max(0.0), wait.unwrap_or_default())
    }

    fn refill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = elapsed.mul_add(self.rate, self.tokens).min(self.depth);
        self.at = self.at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn take(bucket: &mut TokenBucket, count: usize, now: Instant) -> usize {
        (0..count).filter(|_| bucket.try_take(now).is_ok()).count()
    }

    #[test]
    fn full_bucket_lets_one_seconds_worth_through_at_once() {
        let now = Instant::now();
        let mut bucket = TokenBucket::new(5.0, now);

        assert_eq!(take(&mut bucket, 10, now), 5);
    }

    #[test]
    fn refusal_tells_the_time_until_the_next_token() {
        let now = Instant::now();
        let mut bucket = TokenBucket::new(4.0, now);
        take(&mut bucket, 4, now);

        assert_eq!(bucket.try_take(now), Err(SECOND / 4));
        assert_eq!(bucket.try_take(now + SECOND / 4), Ok(()));
    }

    #[test]
    fn idle_bucket_does_not_save_up_more_than_its_depth() {
        let now = Instant::now();
        let mut bucket = TokenBucket::new(2.0, now);

        assert_eq!(take(&mut bucket, 10, now + 60 * SECOND), 2);
    }

    #[test]
    fn less_than_one_request_per_second_is_possible() {
        let now = Instant::now();
        let mut bucket = TokenBucket::new(0.5, now);

        assert_eq!(bucket.try_take(now), Ok(()));
        assert_eq!(bucket.try_take(now), Err(2 * SECOND));
        assert_eq!(bucket.try_take(now + 2 * SECOND), Ok(()));
    }

    #[test]
    fn steady_client_gets_exactly_the_rate() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(100.0, start);
        take(&mut bucket, 100, start);

        let passed =
            (1..=10_000).filter(|tick| bucket.try_take(start + SECOND / 1_000 * *tick).is_ok());

        let passed = passed.count();
        assert!((999..=1_000).contains(&passed), "{passed} in 10 s");
    }

    #[test]
    fn clock_that_goes_back_adds_nothing() {
        let now = Instant::now();
        let mut bucket = TokenBucket::new(1.0, now + SECOND);

        assert_eq!(take(&mut bucket, 2, now), 1);
    }
}
