// SPDX-License-Identifier: Apache-2.0
//! What an HTTP function calls, as it is described.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use sparkawait_task::secret::Sources;

use super::auth::{AuthConfig, Readers};
use super::batch_config::BatchConfig;
use super::body::Body;
use super::client::ClientSettings;
use crate::lookup::Misses;

/// What an HTTP function calls, and what it makes of the responses.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HttpConfig {
    pub(super) method: String,
    pub(super) url: String,
    #[serde(default)]
    pub(super) query: Vec<(String, String)>,
    #[serde(default)]
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Option<Body>,
    pub(super) auth: Option<AuthConfig>,
    /// What tells the secrets that may change from others, whatever they are at the moment.
    #[serde(default)]
    sources: BTreeMap<String, String>,
    /// What reads them again.
    #[serde(skip)]
    pub(crate) readers: Sources,
    /// How rows are put together into requests; a request a row, if they are not.
    pub(super) batch: Option<BatchConfig>,
    /// The hosts that rows may name; any if there are none.
    pub(super) allow_hosts: Option<Vec<String>>,
    pub(super) idempotency_key: Option<IdempotencyKey>,
    pub(super) returns: Returns,
    pub(super) rows: Option<String>,
    #[serde(default)]
    pub(super) paths: Vec<(String, String)>,
    /// The columns of the body that were declared as not null.
    #[serde(default)]
    pub(super) required: Vec<String>,
    /// How many of the first columns are left null, to be filled where rows leave the task.
    #[serde(default)]
    pub(super) blank: usize,
    /// Whether a column has the status.
    #[serde(default)]
    pub(super) status: bool,
    /// The headers of the response that have a column each, in their order.
    #[serde(default)]
    pub(super) response_headers: Vec<String>,
    /// First and last status of each range that is a success.
    pub(super) success: Vec<(u16, u16)>,
    /// Statuses that mean that there is nothing.
    #[serde(default)]
    pub(super) missing: Vec<u16>,
    /// First and last status of each range that is worth another attempt, if that was said.
    pub(super) retry_status: Option<Vec<(u16, u16)>>,
    #[serde(default)]
    pub(super) misses: Misses,
    /// Requests at a time.
    pub(super) connections: usize,
    pub(super) max_response_bytes: usize,
    /// Most redirections to follow.
    pub(super) redirects: usize,
    pub(super) client: ClientSettings,
}

/// A header that lets a server see that two requests are the same.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IdempotencyKey {
    pub(super) header: String,
    /// A template; without it, the task and the row's position in it make the key.
    pub(super) value: Option<String>,
}

/// What happens to the body of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Returns {
    /// Rows of JSON.
    Json,
    /// One column of text or bytes, as its type says.
    Body,
    /// Nothing.
    Nothing,
}

impl fmt::Debug for HttpConfig {
    /// Without addresses, headers and bodies, which may hold tokens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpConfig")
            .field("method", &self.method)
            .field("returns", &self.returns)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

impl HttpConfig {
    /// Returns what reads the secrets again.
    pub(super) fn readers(&self) -> Readers<'_> {
        Readers { told: &self.sources, sources: &self.readers }
    }
}
