// SPDX-License-Identifier: Apache-2.0
//! How many requests and tokens pass in a minute, and how many calls at a time.

use std::time::{Duration, Instant};

use super::config::{ModelServerConfig, ModelServerError};
use crate::token_bucket::TokenBucket;

/// Why a request does not pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Over {
    Requests(Duration),
    Tokens(Duration),
    Concurrency { current: u64, most: usize },
}

/// A limit in a minute, and what is left of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) limit: f64,
    pub(super) left: f64,
    pub(super) reset: Duration,
}

/// The limits of a server. Time is an argument.
#[derive(Debug)]
pub(super) struct Limits {
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
    max_concurrency: Option<usize>,
}

#[derive(Debug)]
struct Bucket {
    per_minute: f64,
    bucket: TokenBucket,
}

impl Bucket {
    fn new(
        limit: Option<f64>,
        name: &'static str,
        burst: Duration,
        now: Instant,
    ) -> Result<Option<Self>, ModelServerError> {
        let Some(per_minute) = limit else { return Ok(None) };
        if !(per_minute.is_finite() && per_minute > 0.0) {
            return Err(ModelServerError::Limit(name));
        }
        let rate = per_minute / 60.0;
        let depth = (rate * burst.as_secs_f64()).max(1.0);
        Ok(Some(Self { per_minute, bucket: TokenBucket::holding(rate, depth, now) }))
    }

    fn told(&mut self, now: Instant) -> Told {
        let (left, reset) = self.bucket.left(now);
        Told { limit: self.per_minute, left, reset }
    }
}

impl Limits {
    pub(super) fn new(config: &ModelServerConfig, now: Instant) -> Result<Self, ModelServerError> {
        Ok(Self {
            requests: Bucket::new(config.rpm, "rpm", config.burst, now)?,
            tokens: Bucket::new(config.tpm, "tpm", config.burst, now)?,
            max_concurrency: config.max_concurrency,
        })
    }

    /// Lets a request of so many tokens through, or says why not.
    pub(super) fn take(&mut self, tokens: u64, in_flight: u64, now: Instant) -> Result<(), Over> {
        if let Some(most) = self.max_concurrency
            && in_flight > most as u64
        {
            return Err(Over::Concurrency { current: in_flight, most });
        }
        #[expect(clippy::cast_precision_loss, reason = "small counts")]
        let tokens = tokens as f64;
        if let Some(it) = &mut self.requests {
            it.bucket.has(1.0, now).map_err(Over::Requests)?;
        }
        if let Some(it) = &mut self.tokens {
            it.bucket.has(tokens, now).map_err(Over::Tokens)?;
            it.bucket.take(tokens);
        }
        if let Some(it) = &mut self.requests {
            it.bucket.take(1.0);
        }
        Ok(())
    }

    /// Returns what is left of requests and of tokens.
    pub(super) fn told(&mut self, now: Instant) -> [Option<Told>; 2] {
        let told = |bucket: &mut Option<Bucket>| bucket.as_mut().map(|it| it.told(now));
        [told(&mut self.requests), told(&mut self.tokens)]
    }
}
