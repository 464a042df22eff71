// SPDX-License-Identifier: Apache-2.0
//! What goes wrong on purpose, and which request it happens to.

use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::error::LookupServerError;
use crate::token_bucket::TokenBucket;

/// The faults that a [`LookupServer`](super::LookupServer) injects.
///
/// A request over the rate limit is rejected at once. Of the others, each meets
/// at most one fault, so the three rates add up to at most 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Share of the requests answered with status 500.
    pub error_rate: f64,
    /// Share of the requests that are never answered.
    pub stall_rate: f64,
    /// Share of the requests whose connection is reset.
    pub reset_rate: f64,
    /// Requests per second beyond which status 429 is given; `None` for no limit.
    pub rate_limit: Option<f64>,
}

impl Faults {
    /// Checks the parameters.
    fn check(&self) -> Result<(), LookupServerError> {
        let rates = [
            ("error_rate", self.error_rate),
            ("stall_rate", self.stall_rate),
            ("reset_rate", self.reset_rate),
        ];
        for (name, rate) in rates {
            if !(0.0..=1.0).contains(&rate) {
                return Err(LookupServerError::Rate { name, rate });
            }
        }
        let sum = rates.iter().map(|(_, rate)| rate).sum();
        if sum > 1.0 + f64::EPSILON {
            return Err(LookupServerError::RatesSum(sum));
        }
        match self.rate_limit {
            Some(limit) if !(limit.is_finite() && limit > 0.0) => {
                Err(LookupServerError::RateLimit(limit))
            }
            _ => Ok(()),
        }
    }
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is answered.
    Answer,
    /// It is answered with status 500.
    Error,
    /// It is never answered.
    Stall,
    /// Its connection is reset.
    Reset,
    /// It is answered with status 429.
    Reject {
        /// Until the rate limit lets a request through.
        retry_after: Duration,
    },
}

/// Decides the fate of each request. Time is an argument.
#[derive(Debug)]
pub(super) struct FaultInjector {
    /// Checked by the code that stored them.
    faults: Faults,
    /// Present when there is a rate limit.
    bucket: Option<TokenBucket>,
    /// Goes on when `faults` change.
    rng: StdRng,
}

impl FaultInjector {
    /// Makes an injector whose choices depend on `faults`, `seed` and, for the
    /// rate limit, on time.
    pub(super) fn new(faults: Faults, seed: u64, now: Instant) -> Result<Self, LookupServerError> {
        faults.check()?;
        let bucket = faults.rate_limit.map(|rate| TokenBucket::new(rate, now));
        Ok(Self { faults, bucket, rng: StdRng::seed_from_u64(seed) })
    }

    /// Injects `faults` from now on. The rate limit starts afresh if it changes.
    pub(super) fn set(&mut self, faults: Faults, now: Instant) -> Result<(), LookupServerError> {
        faults.check()?;
        if faults.rate_limit != self.faults.rate_limit {
            self.bucket = faults.rate_limit.map(|rate| TokenBucket::new(rate, now));
        }
        self.faults = faults;
        Ok(())
    }

    /// Decides what happens to a request that arrives `now`.
    pub(super) fn next(&mut self, now: Instant) -> Fate {
        if let Some(Err(retry_after)) = self.bucket.as_mut().map(|bucket| bucket.try_take(now)) {
            return Fate::Reject { retry_after };
        }
        let Faults { error_rate, stall_rate, reset_rate, .. } = self.faults;
        // One draw for all faults: the rates are then exactly the shares asked for.
        let draw: f64 = self.rng.random();
        match draw {
            _ if draw < error_rate => Fate::Error,
            _ if draw < error_rate + stall_rate => Fate::Stall,
            _ if draw < error_rate + stall_rate + reset_rate => Fate::Reset,
            _ => Fate::Answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fates(faults: Faults, count: usize) -> Vec<Fate> {
        let now = Instant::now();
        let mut injector = FaultInjector::new(faults, 42, now).unwrap();
        (0..count).map(|_| injector.next(now)).collect()
    }

    fn share(fates: &[Fate], fate: Fate) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "small counts")]
        let share =
            fates.iter().filter(|other| **other == fate).count() as f64 / fates.len() as f64;
        share
    }

    #[test]
    fn each_fault_happens_as_often_as_asked_for() {
        let faults = Faults { error_rate: 0.2, stall_rate: 0.1, reset_rate: 0.3, rate_limit: None };

        let fates = fates(faults, 50_000);

        for (fate, expected) in
            [(Fate::Error, 0.2), (Fate::Stall, 0.1), (Fate::Reset, 0.3), (Fate::Answer, 0.4)]
        {
            assert!((share(&fates, fate) - expected).abs() < 0.01, "{fate:?}");
        }
    }

    #[test]
    fn same_seed_gives_the_same_fates() {
        let faults = Faults { error_rate: 0.5, ..Faults::default() };

        assert_eq!(fates(faults, 100), fates(faults, 100));
    }

    #[test]
    fn request_over_the_rate_limit_is_rejected_before_any_other_fault() {
        let faults = Faults { error_rate: 1.0, rate_limit: Some(2.0), ..Faults::default() };

        let fates = fates(faults, 3);

        let retry_after = Duration::from_millis(500);
        assert_eq!(fates, [Fate::Error, Fate::Error, Fate::Reject { retry_after }]);
    }

    #[test]
    fn rate_limit_keeps_its_debt_when_other_faults_change() {
        let now = Instant::now();
        let faults = Faults { rate_limit: Some(1.0), ..Faults::default() };
        let mut injector = FaultInjector::new(faults, 0, now).unwrap();
        assert_eq!(injector.next(now), Fate::Answer);

        injector.set(Faults { error_rate: 1.0, ..faults }, now).unwrap();

        assert!(matches!(injector.next(now), Fate::Reject { .. }));
    }

    #[test]
    fn rates_out_of_range_are_refused() {
        let refused = |faults: Faults| faults.check().unwrap_err().to_string();

        assert_eq!(
            refused(Faults { stall_rate: -0.1, ..Faults::default() }),
            "`stall_rate` must be between 0 and 1, got -0.1"
        );
        assert_eq!(
            refused(Faults { error_rate: 0.75, reset_rate: 0.5, ..Faults::default() }),
            "the rates of errors, stalls and resets must add up to at most 1, got 1.25"
        );
        assert_eq!(
            refused(Faults { rate_limit: Some(0.0), ..Faults::default() }),
            "`rate_limit` must be positive and finite, got 0"
        );
    }
}
