// SPDX-License-Identifier: Apache-2.0
//! A query that can be sent any number of times.

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Column, Error, RowStream, Statement};

/// A query that can be sent any number of times.
#[derive(Debug)]
pub(crate) struct PlannedQuery {
    form: Form,
    /// The types of its columns, as they were when it was planned.
    columns: Vec<Type>,
}

#[derive(Debug)]
enum Form {
    Prepared(Statement),
    /// The text, and the types of its placeholders.
    Text(Box<str>, Vec<Type>),
}

impl PlannedQuery {
    /// Makes a query of a statement that was prepared on the connection it is sent on.
    pub(crate) fn prepared(statement: Statement) -> Self {
        Self { form: Form::Prepared(statement), columns: Vec::new() }
    }

    /// Makes a query for any connection; the types of its placeholders are `types`.
    pub(crate) fn text(text: &str, types: Vec<Type>, columns: &[Column]) -> Self {
        let columns = columns.iter().map(|column| column.type_().clone()).collect();
        Self { form: Form::Text(Box::from(text), types), columns }
    }

    /// Returns the types that its rows must have; `None`: they are known to.
    pub(crate) fn columns(&self) -> Option<&[Type]> {
        matches!(self.form, Form::Text(..)).then_some(&*self.columns)
    }

    /// Sends the query over the connection of `client`.
    pub(crate) async fn start(
        &self,
        client: &Client,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<RowStream, Error> {
        let parameters = parameters.iter().copied();
        match &self.form {
            Form::Prepared(statement) => client.query_raw(statement, parameters).await,
            Form::Text(text, types) => {
                client.query_typed_raw(text, parameters.zip(types.iter().cloned())).await
            }
        }
    }
}
