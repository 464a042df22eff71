// SPDX-License-Identifier: Apache-2.0
//! The table of connectors. Each of this build is a feature of the crate, and one that was left out says
//! so.

use std::sync::Arc;

use arrow::datatypes::Schema;
#[cfg(feature = "tls")]
use serde::de::DeserializeOwned;
use sparkawait_task::error::StartError;
use sparkawait_task::native::NativeFunction;
use sparkawait_task::secret::Sources;

/// A function whose description was read.
pub type Described = Result<Arc<dyn NativeFunction>, StartError>;

/// A name, and what reads descriptions of its functions; the sources read the secrets in them again.
pub type Connector = (&'static str, fn(&str, Sources) -> Described);

/// Those of this build. A connector is a line here, a module, a feature, and what describes it in Python.
pub const CONNECTORS: &[Connector] = &[
    #[cfg(feature = "http")]
    ("http", |description, readers| {
        let mut config: crate::http::HttpConfig = parse("http", description)?;
        config.readers = readers;
        Ok(Arc::new(config))
    }),
    #[cfg(feature = "postgres")]
    ("postgres", |description, readers| {
        let mut config: crate::postgres::PostgresConfig = parse("postgres", description)?;
        config.server.readers = readers;
        Ok(Arc::new(config))
    }),
    #[cfg(feature = "redis")]
    ("redis", |description, readers| {
        let mut config: crate::redis::RedisConfig = parse("redis", description)?;
        config.server.readers = readers;
        Ok(Arc::new(config))
    }),
];

/// Reads the description of a function of `connector`, which is one of `connectors`.
///
/// # Errors
///
/// There is no connector of this name, or the description does not have the form of its functions.
pub fn read(
    connectors: &[Connector],
    connector: &str,
    description: &str,
    sources: Sources,
) -> Described {
    let found = connectors.iter().find(|(name, _)| *name == connector);
    let (_, read) = found.ok_or_else(|| left_out(connector))?;
    read(description, sources)
}

/// Reads a description in JSON.
///
/// # Errors
///
/// It does not have the form of the type.
#[cfg(feature = "tls")]
pub fn parse<T: DeserializeOwned>(connector: &str, description: &str) -> Result<T, StartError> {
    // The message of the parser may quote a value, and values may be secret.
    serde_json::from_str(description).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        StartError::option(format!(
            "the description for `sa.{connector}` is wrong at {line}:{column}"
        ))
    })
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
        describe(&parse::<PostgresConfig>("postgres", description)?).await
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
        let read = |name: &str, text: &str| read(CONNECTORS, name, text, Sources::new());
        let error = read("carrier-pigeon", "{}").unwrap_err();
        assert!(error.message.contains("has no `sa.carrier-pigeon`"), "{}", error.message);

        for (name, _) in CONNECTORS {
            let error = read(name, "{\"coop\": 7}").unwrap_err().message;
            assert!(error.contains(&format!("for `sa.{name}` is wrong at 1:")), "{error}");
        }
    }
}
