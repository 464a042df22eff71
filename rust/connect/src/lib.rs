// SPDX-License-Identifier: Apache-2.0
//! Native async functions: lookups in services and databases.
//!
//! ```text
//!   sparkawait._core
//!        |
//!     connect         this crate: http, redis, postgres
//!        |
//!      task
//! ```
//!
//! | module | what lives there |
//! |---|---|
//! | [`http`] | calls to HTTP services |
//! | [`postgres`] | lookups in PostgreSQL |
//! | [`redis`] | lookups in Redis |
//! | [`template`] | texts with columns in braces, as keys and addresses are |
//! | [`lookup`] | found rows, a miss or a failure for each call |
//! | `column` | a column that grows, and can be cut back |
//! | [`text`], [`json`], [`json_path`] | result columns out of what a service returned |
//! | [`zone`] | time zones as Spark names them |
//! | `owed` | calls that somebody has undertaken to answer |
//! | `reply_budget` | what the replies that a task is reading come to together |
//! | `settings_key` | what tells the settings of one connection from those of another |
//! | `tls` | certificates, and whom to trust |

mod column;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod http;
pub mod json;
pub mod json_path;
pub mod lookup;
mod owed;
pub mod postgres;
pub mod redis;
mod reply_budget;
mod settings_key;
pub mod template;
pub mod text;
mod tls;
pub mod zone;
