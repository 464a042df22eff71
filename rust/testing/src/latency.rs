// SPDX-License-Identifier: Apache-2.0
//! How long a pretended service takes to answer.
//!
//! A [`Latency`] describes a distribution, a [`LatencySampler`] draws from it
//! with a seed: the same seed gives the same delays. Only [`sleep`] reads a
//! clock. A sampler is owned by one thread at a time.

use std::cell::Cell;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use tokio::time::Instant;

/// The longest delay that is ever drawn. The tail of a log-normal distribution
/// has no end, and a timer must not overflow.
pub const LONGEST_DELAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The resolution of tokio's timer.
const TICK: Duration = Duration::from_millis(1);

/// Sleeps that the mean lateness of the timer looks back on. With fewer it
/// follows chance, with many more the first second of a test is off.
const MEMORY: u32 = 32;

thread_local! {
    /// How late the timer of this thread usually is.
    static LATENESS: Cell<Lateness> = const { Cell::new(Lateness::OF_ROUNDING) };
}

/// A distribution of delays.
///
/// # Examples
///
/// A service with a median of 5 ms, where one call in a hundred takes 20 times
/// as long:
///
/// ```
/// use std::time::Duration;
/// use sparkawait_testing::latency::{Latency, LatencySampler};
///
/// let usual = Latency::LogNormal { median: Duration::from_millis(5), sigma: 0.5 };
/// let mut delays = LatencySampler::new(usual.with_stragglers(0.01, 20.0), 7)?;
/// assert!(delays.sample() > Duration::ZERO);
/// # Ok::<(), sparkawait_testing::latency::InvalidLatency>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Latency {
    /// No delay: the answer is given at once.
    #[default]
    None,
    /// Always the same delay.
    Constant(Duration),
    /// Every delay between both bounds is equally likely.
    Uniform {
        /// The shortest delay.
        min: Duration,
        /// The longest delay, not below `min`.
        max: Duration,
    },
    /// The logarithm of the delay is normally distributed, as it roughly is for
    /// services on a network.
    LogNormal {
        /// Half of the delays are below this.
        median: Duration,
        /// Standard deviation of the logarithm; 0.5 puts the 99th percentile at
        /// 3.2 times the median, 1.0 at 10 times.
        sigma: f64,
    },
    /// Some delays of another distribution are multiplied.
    Stragglers {
        /// What the delays are drawn from.
        of: Box<Latency>,
        /// Share of the delays that are multiplied, 0 to 1.
        fraction: f64,
        /// What they are multiplied by, at least 1.
        factor: f64,
    },
}

impl Latency {
    /// Makes a `fraction` of the delays `factor` times as long.
    #[must_use]
    pub fn with_stragglers(self, fraction: f64, factor: f64) -> Self {
        Self::Stragglers { of: Box::new(self), fraction, factor }
    }

    /// Checks the parameters.
    fn check(&self) -> Result<(), InvalidLatency> {
        match self {
            Self::Uniform { min, max } if min > max => {
                Err(InvalidLatency::EmptyRange { min: *min, max: *max })
            }
            Self::None | Self::Constant(_) | Self::Uniform { .. } => Ok(()),
            Self::LogNormal { sigma, .. } if sigma.is_finite() && *sigma >= 0.0 => Ok(()),
            Self::LogNormal { sigma, .. } => Err(InvalidLatency::Sigma(*sigma)),
            Self::Stragglers { fraction, .. } if !(0.0..=1.0).contains(fraction) => {
                Err(InvalidLatency::StragglerFraction(*fraction))
            }
            Self::Stragglers { factor, .. } if !(factor.is_finite() && *factor >= 1.0) => {
                Err(InvalidLatency::StragglerFactor(*factor))
            }
            Self::Stragglers { of, .. } => of.check(),
        }
    }

    /// Draws a delay, in seconds.
    fn seconds(&self, rng: &mut StdRng) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Constant(delay) => delay.as_secs_f64(),
            Self::Uniform { min, max } => rng.random_range(min.as_secs_f64()..=max.as_secs_f64()),
            Self::LogNormal { median, sigma } => {
                let deviation: f64 = rng.sample(StandardNormal);
                median.as_secs_f64() * (sigma * deviation).exp()
            }
            Self::Stragglers { of, fraction, factor } => {
                let seconds = of.seconds(rng);
                if rng.random_bool(*fraction) { seconds * factor } else { seconds }
            }
        }
    }
}

/// A [`Latency`] whose parameters make no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidLatency {
    /// The bounds of a uniform distribution are the wrong way round.
    #[error("`min` of a uniform latency must not exceed `max`, got {min:?} and {max:?}")]
    EmptyRange {
        /// The lower bound given.
        min: Duration,
        /// The upper bound given.
        max: Duration,
    },
    /// The spread of a log-normal distribution is negative or not finite.
    #[error("`sigma` must be finite and not negative, got {0}")]
    Sigma(f64),
    /// The share of stragglers is not between 0 and 1.
    #[error("the fraction of stragglers must be between 0 and 1, got {0}")]
    StragglerFraction(f64),
    /// Stragglers would be faster than the others.
    #[error("the factor of stragglers must be finite and at least 1, got {0}")]
    StragglerFactor(f64),
}

/// Draws delays from a [`Latency`].
#[derive(Debug)]
pub struct LatencySampler {
    /// Checked by the code that stored it.
    latency: Latency,
    /// Goes on when `latency` changes.
    rng: StdRng,
}

impl LatencySampler {
    /// Makes a sampler whose delays depend on `latency` and `seed` only.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidLatency`] when a parameter is out of range.
    pub fn new(latency: Latency, seed: u64) -> Result<Self, InvalidLatency> {
        latency.check()?;
        Ok(Self { latency, rng: StdRng::seed_from_u64(seed) })
    }

    /// Draws the next delay, at most [`LONGEST_DELAY`].
    pub fn sample(&mut self) -> Duration {
        let seconds = self.latency.seconds(&mut self.rng).clamp(0.0, LONGEST_DELAY.as_secs_f64());
        // Not a number if a median of zero met an infinite factor: no delay then.
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)
    }

    /// Draws from `latency` from now on.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidLatency`] when a parameter is out of range; the sampler
    /// is unchanged.
    pub fn set(&mut self, latency: Latency) -> Result<(), InvalidLatency> {
        latency.check()?;
        self.latency = latency;
        Ok(())
    }
}

/// Sleeps for `delay` on average, each time to a tick of tokio's timer.
///
/// The timer has ticks of a millisecond and rounds every deadline up, and a
/// thread with nothing else to do wakes up to another tick late: a plain
/// `tokio::time::sleep` for 5 ms takes 6 ms. How late the timer usually
/// is, is measured, and that much is taken off the delay beforehand: a single
/// delay is off by a tick at most, the mean of many is not. Lateness of more
/// than a tick means that the processor is busy, and is not made up for.
///
/// A delay of zero does not yield.
///
/// # Cancel safety
///
/// Dropping the future removes the timer.
pub async fn sleep(delay: Duration) {
    if delay.is_zero() {
        return;
    }
    let deadline = LATENESS.get().deadline(Instant::now(), delay);
    tokio::time::sleep_until(deadline).await;
    LATENESS.set(LATENESS.get().followed_by(deadline.elapsed()));
}

/// How late a timer usually is.
#[derive(Clone, Copy, Debug)]
struct Lateness(Duration);

impl Lateness {
    /// What rounding up costs.
    const OF_ROUNDING: Self = Self(Duration::from_micros(500));

    /// Returns what to set the timer to, for `delay` on average.
    fn deadline(self, now: Instant, delay: Duration) -> Instant {
        (now + delay).checked_sub(self.0).unwrap_or(now)
    }

    /// Returns the mean after a sleep that ended `late`.
    fn followed_by(self, late: Duration) -> Self {
        Self(((self.0 * (MEMORY - 1) + late.min(2 * TICK)) / MEMORY).min(TICK))
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn draw(latency: Latency, count: usize) -> Vec<Duration> {
        let mut sampler = LatencySampler::new(latency, 42).unwrap();
        (0..count).map(|_| sampler.sample()).collect()
    }

    fn quantile(mut delays: Vec<Duration>, share: f64) -> f64 {
        delays.sort_unstable();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
        #[expect(clippy::cast_precision_loss, reason = "small counts")]
        let index = (delays.len() as f64 * share) as usize;
        delays[index].as_secs_f64()
    }

    #[test]
    fn same_seed_gives_the_same_delays() {
        let latency = Latency::LogNormal { median: 5 * MILLISECOND, sigma: 0.7 };

        assert_eq!(draw(latency.clone(), 100), draw(latency, 100));
    }

    #[test]
    fn no_latency_and_constant_latency_never_vary() {
        assert_eq!(draw(Latency::None, 3), [Duration::ZERO; 3]);
        assert_eq!(draw(Latency::Constant(5 * MILLISECOND), 3), [5 * MILLISECOND; 3]);
    }

    #[test]
    fn uniform_delays_fill_their_range() {
        let delays = draw(Latency::Uniform { min: 2 * MILLISECOND, max: 4 * MILLISECOND }, 10_000);

        assert!(delays.iter().all(|delay| (2 * MILLISECOND..=4 * MILLISECOND).contains(delay)));
        assert!((quantile(delays.clone(), 0.25) - 0.0025).abs() < 0.0001);
        assert!((quantile(delays, 0.75) - 0.0035).abs() < 0.0001);
    }

    #[test]
    fn log_normal_delays_have_the_median_and_the_tail_asked_for() {
        let delays = draw(Latency::LogNormal { median: 5 * MILLISECOND, sigma: 0.5 }, 50_000);

        assert!((quantile(delays.clone(), 0.5) - 0.005).abs() < 0.0001);
        // exp(2.326 * sigma) medians.
        assert!((quantile(delays, 0.99) - 0.016).abs() < 0.001);
    }

    #[test]
    fn stragglers_are_as_many_and_as_slow_as_asked_for() {
        let delays = draw(Latency::Constant(MILLISECOND).with_stragglers(0.1, 20.0), 10_000);

        let slow = delays.iter().filter(|delay| **delay == 20 * MILLISECOND).count();
        assert!((900..1_100).contains(&slow), "{slow} of 10000");
        assert!(delays.iter().all(|delay| [MILLISECOND, 20 * MILLISECOND].contains(delay)));
    }

    #[test]
    fn endless_tail_is_cut() {
        let latency = Latency::LogNormal { median: MILLISECOND, sigma: 1e6 };

        assert!(draw(latency, 100).into_iter().all(|delay| delay <= LONGEST_DELAY));
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        let refused = |latency| LatencySampler::new(latency, 0).unwrap_err().to_string();
        let constant = Latency::Constant(MILLISECOND);

        assert_eq!(
            refused(Latency::Uniform { min: 2 * MILLISECOND, max: MILLISECOND }),
            "`min` of a uniform latency must not exceed `max`, got 2ms and 1ms"
        );
        assert_eq!(
            refused(Latency::LogNormal { median: MILLISECOND, sigma: -1.0 }),
            "`sigma` must be finite and not negative, got -1"
        );
        assert_eq!(
            refused(constant.clone().with_stragglers(1.5, 2.0)),
            "the fraction of stragglers must be between 0 and 1, got 1.5"
        );
        assert_eq!(
            refused(constant.with_stragglers(0.5, 0.5)),
            "the factor of stragglers must be finite and at least 1, got 0.5"
        );
    }

    #[test]
    fn refused_latency_leaves_the_sampler_as_it_was() {
        let mut sampler = LatencySampler::new(Latency::Constant(MILLISECOND), 0).unwrap();

        sampler.set(Latency::LogNormal { median: MILLISECOND, sigma: f64::NAN }).unwrap_err();

        assert_eq!(sampler.sample(), MILLISECOND);
    }

    #[test]
    fn sleep_is_not_longer_on_average_than_asked_for() {
        let mut sampler =
            LatencySampler::new(Latency::Uniform { min: MILLISECOND, max: 9 * MILLISECOND }, 1)
                .unwrap();
        let started = Instant::now();
        let (mut now, mut asked, mut lateness) = (started, Duration::ZERO, Lateness::OF_ROUNDING);

        for _ in 0..1_000 {
            let delay = sampler.sample();
            asked += delay;
            let deadline = lateness.deadline(now, delay);
            now = now.max(at_the_next_tick(started, deadline));
            lateness = lateness.followed_by(now - deadline);
        }

        let off = (now - started).as_secs_f64() / asked.as_secs_f64() - 1.0;
        assert!(off.abs() < 0.01, "off by {off}");
    }

    /// When a timer goes off that has ticks since it was started.
    fn at_the_next_tick(started: Instant, deadline: Instant) -> Instant {
        let ticks = (deadline - started).as_nanos().div_ceil(TICK.as_nanos());
        started + TICK * u32::try_from(ticks).unwrap()
    }

    #[test]
    fn no_delay_does_not_wait() {
        let slept = pin!(sleep(Duration::ZERO)).poll(&mut Context::from_waker(Waker::noop()));

        assert!(slept.is_ready());
    }
}
