// SPDX-License-Identifier: Apache-2.0
//! The connectors of this build, by name. Each is a feature of the crate, and one that was left out
//! says so.

use std::sync::Arc;

use arrow::datatypes::Schema;
use sparkawait_task::error::StartError;
use sparkawait_task::native::NativeFunction;
use sparkawait_task::secret::Sources;

/// A function whose description was read.
pub type Described = Result<Arc<dyn NativeFunction>, StartError>;

/// Reads a description; the sources read the secrets in it again.
type Read = fn(&str, Sources) -> Described;

/// A connector is a line here, a module, a feature, and what describes it in Python.
const CONNECTORS: &[(&str, Read)] = &[
    #[cfg(feature = "http")]
    ("http", |description, sources| {
        Ok(Arc::new(crate::http::HttpConfig::from_json(description, sources)?))
    }),
    #[cfg(feature = "postgres")]
    ("postgres", |description, sources| {
        Ok(Arc::new(crate::postgres::PostgresConfig::read(description, sources)?))
    }),
    #[cfg(feature = "redis")]
    ("redis", |description, sources| {
        Ok(Arc::new(crate::redis::RedisConfig::from_json(description, sources)?))
    }),
];

/// Reads the description of a function of `connector`.
///
/// # Errors
///
/// This build has no such connector, or the description is not one of it.
pub fn read(connector: &str, description: &str, sources: Sources) -> Described {
    let found = CONNECTORS.iter().find(|(name, _)| *name == connector);
    let (_, read) = found.ok_or_else(|| left_out(connector))?;
    read(description, sources)
}

/// Returns the columns in host and port of an address, and whether a column stands for it all.
///
/// # Errors
///
/// The address is wrong, or this build has no `http`.
pub fn host_columns(url: &str) -> Result<(Vec<String>, bool), StartError> {
    #[cfg(feature = "http")]
    return crate::http::HostColumns::of(url).map(|it| (it.columns, it.is_whole));
    #[cfg(not(feature = "http"))]
    Err((url, left_out("http")).1)
}

/// Asks the server which columns the lookups return that `description` describes.
///
/// # Errors
///
/// What the server said, or this build has no `postgres`.
pub async fn describe_postgres(description: &str) -> Result<Schema, StartError> {
    #[cfg(feature = "postgres")]
    {
        use crate::postgres::{PostgresConfig, describe};
        describe(&PostgresConfig::read(description, Sources::new())?).await
    }
    #[cfg(not(feature = "postgres"))]
    Err((description, left_out("postgres")).1)
}

fn left_out(connector: &str) -> StartError {
    StartError::option(format!(
        "this build of sparkawait has no `sa.{connector}`; build it with the feature `{connector}`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connector_that_was_left_out_says_so_and_the_others_read_their_descriptions() {
        let error = read("carrier-pigeon", "{}", Sources::new()).unwrap_err();
        assert!(error.message.contains("has no `sa.carrier-pigeon`"), "{}", error.message);

        for (name, _) in CONNECTORS {
            let error = read(name, "{\"coop\": 7}", Sources::new()).unwrap_err();
            assert!(error.message.contains("description"), "{}", error.message);
        }
    }
}
