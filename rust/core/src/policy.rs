// SPDX-License-Identifier: Apache-2.0
//! Who may call, and when: limits in time, pauses, budgets.
//!
//! Nothing is shed. A policy makes a record wait; only an *attempt* may be
//! refused. Each is a small state machine of one destination, or of a task: it
//! is told of the calls that start and end, and says when the next one may.
//!
//! | type | what it bounds | source of the idea |
//! |---|---|---|
//! | [`AdaptiveLimit`] | calls at a time, found out by what they come to | Netflix's concurrency-limits, Vector |
//! | [`Limit`] | calls, or what they cost: per time, in all, or at a time | GCRA (ITU-T I.371), `x-ratelimit` headers |
//! | [`Gcra`] | the arithmetic of a rate, on one word | the same |
//! | [`Stock`] | that of a budget and of calls at a time, on two | Guava's semaphores |
//! | [`RetryBudget`] | retries, as a share of the calls | Finagle's `RetryBudget` |
//! | [`Pause`] | calls to a destination that drops them all | circuit breakers, without their failures |
//! | [`AdaptiveRate`] | calls per time, found out by refusals | adaptive mode of the AWS SDKs (CUBIC) |
//! | [`WarmUp`] | calls of a task until its rows are known to be wanted | slow start |
//! | [`HedgeDelay`] | second attempts of calls that are slow | "The Tail at Scale", gRPC A6, Finagle |
//!
//! [`CallLimits`] has all of them that bound the calls of a channel, or of all channels; [`WarmUp`] is of
//! the task. What a call came to is an [`EndedCall`].
//!
//! Everything here is `&mut self` and belongs to one thread; time is an argument.

mod adaptive_limit;
mod adaptive_rate;
mod call_limits;
mod costs;
mod ended_call;
mod gcra;
mod hedge_delay;
mod ledger;
mod limit;
mod limit_left;
mod limit_metrics;
mod open_request;
mod pause;
mod retry_budget;
mod standing;
mod stock;
mod warm_up;

pub use adaptive_limit::{AdaptiveLimit, AdaptiveLimitConfig};
pub use adaptive_rate::AdaptiveRate;
pub use call_limits::{CallLimits, PolicyConfig};
pub(crate) use costs::UsualCost;
pub use costs::{Costs, MAX_LIMITS, Price};
pub use ended_call::{CallSign, EndedCall};
pub use gcra::{Gcra, Rate};
pub use hedge_delay::{HedgeAfter, HedgeConfig, HedgeDelay};
pub use ledger::{Answer, Ledger, Ledgers, Spent};
pub use limit::{Limit, LimitConfig, LimitConfigs, Terms, usual_costs};
pub(crate) use limit::{record_costs, request_costs};
pub use limit_left::{Counted, LimitLeft, Renewal};
pub use limit_metrics::LimitMetrics;
pub use open_request::RequestConfig;
pub(crate) use open_request::{InPart, OpenRequest};
pub use pause::{Pause, PauseConfig, Watch};
pub use retry_budget::{RetryBudget, RetryBudgetConfig};
pub use standing::Line;
pub use stock::Stock;
pub use warm_up::{WarmUp, WarmUpConfig};
