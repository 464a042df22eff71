// SPDX-License-Identifier: Apache-2.0
//! Asks a server on the driver what a statement returns.

use arrow::datatypes::Schema;

use crate::native::StartError;
use crate::postgres::PostgresConfig;
use crate::postgres::failure::Failure;
use crate::postgres::plan;
use crate::postgres::types::schema_of;

/// Returns the columns of the statement of `config`.
///
/// # Errors
///
/// The server cannot be reached from here, or does not understand the statement.
///
/// # Cancel safety
///
/// Dropping the future closes the connection.
pub async fn describe(config: &PostgresConfig) -> Result<Schema, StartError> {
    let server = config.server.server()?;
    let described = async {
        let client = server.connect().await?;
        let statement = plan::describe(&client, &config.statement, config.args.len()).await?;
        Ok::<_, Failure>(schema_of(statement.columns()))
    };
    described.await.map_err(|failure| {
        StartError::option(format!(
            "`schema` was not given, and asking the server for it failed: {failure}; correct that, or give schema="
        ))
    })
}
