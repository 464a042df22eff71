// SPDX-License-Identifier: Apache-2.0
//! The connectors of this build. Each is a feature of the crate, and one that was left out says so.

use std::sync::Arc;

use arrow::datatypes::Schema;
use sparkawait_task::error::StartError;
use sparkawait_task::native::NativeFunction;
use sparkawait_task::secret::Sources;

/// A function whose description was read.
pub(crate) type Described = Result<Arc<dyn NativeFunction>, StartError>;

/// Reads the description of calls to an HTTP service.
pub(crate) fn http(description: &str, sources: Sources) -> Described {
    #[cfg(feature = "http")]
    return Ok(Arc::new(sparkawait_connect::http::HttpConfig::from_json(description, sources)?));
    #[cfg(not(feature = "http"))]
    left_out("http", (description, sources).0)
}

/// Returns the columns in host and port of an address, and whether a column stands for it all.
pub(crate) fn host_columns(url: &str) -> Result<(Vec<String>, bool), StartError> {
    #[cfg(feature = "http")]
    return sparkawait_connect::http::HostColumns::of(url).map(|it| (it.columns, it.is_whole));
    #[cfg(not(feature = "http"))]
    left_out("http", url)
}

/// Reads the description of lookups in PostgreSQL.
pub(crate) fn postgres(description: &str, sources: Sources) -> Described {
    #[cfg(feature = "postgres")]
    return Ok(Arc::new(sparkawait_connect::postgres::PostgresConfig::read(description, sources)?));
    #[cfg(not(feature = "postgres"))]
    left_out("postgres", (description, sources).0)
}

/// Asks the server which columns the lookups return that `description` describes.
pub(crate) async fn describe_postgres(description: &str) -> Result<Schema, StartError> {
    #[cfg(feature = "postgres")]
    {
        use sparkawait_connect::postgres::{PostgresConfig, describe};
        describe(&PostgresConfig::read(description, Sources::new())?).await
    }
    #[cfg(not(feature = "postgres"))]
    left_out("postgres", description)
}

/// Reads the description of lookups in Redis.
pub(crate) fn redis(description: &str, sources: Sources) -> Described {
    #[cfg(feature = "redis")]
    return Ok(Arc::new(sparkawait_connect::redis::RedisConfig::from_json(description, sources)?));
    #[cfg(not(feature = "redis"))]
    left_out("redis", (description, sources).0)
}

#[cfg(not(all(feature = "http", feature = "postgres", feature = "redis")))]
fn left_out<T>(connector: &str, _: &str) -> Result<T, StartError> {
    Err(StartError::option(format!(
        "this build of sparkawait has no `sa.{connector}`; build it with the feature `{connector}`"
    )))
}
