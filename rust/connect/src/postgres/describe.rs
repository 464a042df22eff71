// SPDX-License-Identifier: Apache-2.0
//! Asks a server on the driver what a statement returns.

use std::collections::HashMap;

use arrow::datatypes::Schema;
use sparkawait_task::error::StartError;
use tokio::time::timeout;

use crate::postgres::PostgresConfig;
use crate::postgres::failure::Fault;
use crate::postgres::plan;

/// Metadata of the schema that is returned: the types of the placeholders, with commas.
const PARAMETERS: &str = "parameters";

/// Returns the columns of the statement of `config`.
///
/// The metadata `parameters` has the numbers that the server gives to the types of `$1`, `$2`, ..
///
/// # Errors
///
/// The server cannot be reached from here, or does not understand the statement.
///
/// # Cancel safety
///
/// Dropping the future closes the connection.
pub(crate) async fn describe(config: &PostgresConfig) -> Result<Schema, StartError> {
    let server = config.server.server()?;
    let described = plan::describe(&server, &config.statement, config.args.len());
    let described = match config.server.rules()?.silence {
        Some(limit) => timeout(limit, described).await.unwrap_or_else(|_| {
            Err(Fault::transient(format!("PostgreSQL: the server said nothing for {limit:?}")))
        }),
        None => described.await,
    };
    let (schema, parameters) = described.map_err(|failure| {
        StartError::option(format!(
            "`schema` was not given, and asking the server for it failed: {failure}; correct that, or give schema="
        ))
    })?;
    let parameters = parameters.iter().map(|of| of.oid().to_string()).collect::<Vec<_>>();
    let metadata = HashMap::from([(PARAMETERS.to_owned(), parameters.join(","))]);
    Ok(schema.with_metadata(metadata))
}
