// SPDX-License-Identifier: Apache-2.0
//! What is sent for a statement: for many rows at once, and for one.
//!
//! ```text
//! select name from people where id = $1                            the statement
//!
//! select k.ord, r.c1                                               for many rows
//! from unnest($1::int8[]) with ordinality as k(a1, ord)
//! cross join lateral (select name from people where id = k.a1) as r(c1)
//! ```
//!
//! The lateral join runs the statement once for each row of arguments, so that
//! its `limit`, `order by` and aggregates keep their meaning. A statement that
//! cannot stand there, such as an `insert`, is sent once for each row instead.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema, SchemaRef};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Column, RowStream, Statement};

use crate::postgres::convert::Argument;
use crate::postgres::failure::{Class, Fault};
use crate::postgres::outputs::{Form, Output, ROWS, outputs};
use crate::postgres::placeholders::Placeholders;
use crate::postgres::server::Server;
use crate::postgres::types::{Wire, schema_of, sql_name};

/// Name of the arguments in the statement for many rows; unlikely to be the user's.
const KEYS: &str = "sparkawait_keys";

/// What is sent for a statement, and what comes back.
#[derive(Debug)]
pub(crate) struct Plan {
    /// For many rows: its first column counts the row of arguments from 1.
    pub(crate) batched: Option<PlannedQuery>,
    /// For one row.
    pub(crate) single: PlannedQuery,
    /// How each argument travels.
    pub(crate) arguments: Vec<Argument>,
    /// How each result column travels.
    pub(crate) results: Vec<Form>,
}

/// What a plan is made for.
pub(crate) struct Request {
    /// Differs for different requests.
    pub(crate) key: Arc<str>,
    pub(crate) statement: String,
    /// Names and types of the argument columns.
    pub(crate) arguments: Vec<(String, DataType)>,
    /// Names and types of the results.
    pub(crate) schema: SchemaRef,
    pub(crate) wants_batches: bool,
    /// Whether the connection that plans also sends, and keeps what it has prepared.
    pub(crate) keeps: bool,
}

impl Plan {
    /// Finds out on a connection what to send for a statement.
    pub(crate) async fn prepare(client: &Client, request: &Request) -> Result<Self, Fault> {
        let statement = trim(&request.statement);
        let own = prepare(client, statement, &[]).await?;
        check(&own, request.arguments.len())?;
        let arguments = request.arguments.iter().zip(own.params());
        let arguments = arguments.map(|((name, from), to)| Argument::new(name, from, to));
        let arguments = arguments.collect::<Result<Vec<_>, _>>()?;
        let outputs = outputs(own.columns(), &request.schema)?;
        let is_same = outputs.iter().all(|it| it.is_plain) && outputs.len() == own.columns().len();
        let query = |prepared: Statement, text: &str, types: Vec<Type>| {
            if request.keeps {
                PlannedQuery::prepared(prepared)
            } else {
                PlannedQuery::text(text, types, prepared.columns())
            }
        };
        let types = own.params().to_vec();
        let single = if is_same {
            query(own.clone(), statement, types.clone())
        } else {
            let text = single_text(statement, own.columns().len(), &outputs);
            query(prepare(client, &text, &types).await?, &text, types.clone())
        };
        let mut batched = None;
        if request.wants_batches {
            let text = batched_text(statement, &arguments, own.columns().len(), &outputs);
            match prepare(client, &text, &[]).await {
                // The text names the types itself.
                Ok(prepared) => {
                    batched = Some(query(prepared, &text, vec![Type::UNKNOWN; arguments.len()]));
                }
                Err(failure) if failure.is_transient() && !failure.is(Class::Stale) => {
                    return Err(failure);
                }
                Err(_) => {}
            }
        }
        let results = outputs.iter().map(|it| it.form).collect();
        Ok(Self { batched, single, arguments, results })
    }

    /// Does the same on a connection of its own, and leaves nothing behind on the server's side.
    ///
    /// A pooler keeps to one of its connections for as long as a transaction lasts.
    pub(crate) async fn prepare_aside(server: &Server, request: &Request) -> Result<Self, Fault> {
        let client = server.connect().await?.client;
        begin_aside(&client).await?;
        let plan = Self::prepare(&client, request).await;
        end_aside(&client).await?;
        plan
    }
}

/// A query that can be sent any number of times.
#[derive(Debug)]
pub(crate) struct PlannedQuery {
    form: Query,
    /// The types of its columns, as they were when it was planned.
    columns: Vec<Type>,
}

#[derive(Debug)]
enum Query {
    Prepared(Statement),
    /// The text, and the types of its placeholders.
    Text(Box<str>, Vec<Type>),
}

impl PlannedQuery {
    /// Makes a query of a statement that was prepared on the connection it is sent on.
    pub(crate) fn prepared(statement: Statement) -> Self {
        Self { form: Query::Prepared(statement), columns: Vec::new() }
    }

    /// Makes a query for any connection; the types of its placeholders are `types`.
    pub(crate) fn text(text: &str, types: Vec<Type>, columns: &[Column]) -> Self {
        let columns = columns.iter().map(|column| column.type_().clone()).collect();
        Self { form: Query::Text(Box::from(text), types), columns }
    }

    /// Returns the types that its rows must have; `None`: they are known to.
    pub(crate) fn columns(&self) -> Option<&[Type]> {
        matches!(self.form, Query::Text(..)).then_some(&*self.columns)
    }

    /// Sends the query over the connection of `client`.
    pub(crate) async fn start(
        &self,
        client: &Client,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<RowStream, tokio_postgres::Error> {
        let parameters = parameters.iter().copied();
        match &self.form {
            Query::Prepared(statement) => client.query_raw(statement, parameters).await,
            Query::Text(text, types) => {
                client.query_typed_raw(text, parameters.zip(types.iter().cloned())).await
            }
        }
    }
}

/// Begins to use prepared statements behind a pooler.
async fn begin_aside(client: &Client) -> Result<(), Fault> {
    let begun = client.batch_execute("begin").await;
    begun.map_err(|error| Fault::of("preparing the statement", &error))
}

/// Removes all prepared statements, those that the client made for itself too.
///
/// The client is of no use any more: it takes them for existing.
async fn end_aside(client: &Client) -> Result<(), Fault> {
    // One message, so that both reach the same connection of a pooler.
    let ended = client.batch_execute("rollback; deallocate all").await;
    ended.map_err(|error| Fault::of("preparing the statement", &error))
}

/// Asks a server for the columns of a statement, and for the types of its placeholders.
pub(crate) async fn describe(
    server: &Server,
    statement: &str,
    arguments: usize,
) -> Result<(Schema, Vec<Type>), Fault> {
    let client = server.connect().await?.client;
    if !server.keeps_statements {
        begin_aside(&client).await?;
    }
    let statement = prepare(&client, trim(statement), &[]).await?;
    check(&statement, arguments)?;
    let described = (schema_of(statement.columns()), statement.params().to_vec());
    drop(statement);
    if !server.keeps_statements {
        end_aside(&client).await?;
    }
    Ok(described)
}

async fn prepare(client: &Client, text: &str, types: &[Type]) -> Result<Statement, Fault> {
    let prepared = client.prepare_typed(text, types).await;
    prepared.map_err(|error| Fault::of("preparing the statement", &error))
}

/// Says that a statement has another number of placeholders than it has arguments.
pub(crate) fn uneven(placeholders: usize, arguments: usize) -> String {
    format!(
        "the statement has {placeholders} placeholders and `args` names {arguments} columns; give a column for each \
         of $1, $2, .."
    )
}

fn check(statement: &Statement, arguments: usize) -> Result<(), Fault> {
    let wanted = statement.params().len();
    if wanted != arguments {
        return Err(Fault::mistake(uneven(wanted, arguments)));
    }
    if statement.columns().is_empty() {
        return Err(Fault::mistake(
            "the statement returns no columns; use a select, or add `returning`",
        ));
    }
    Ok(())
}

/// Removes what may stand behind a statement but not inside another one.
fn trim(statement: &str) -> &str {
    statement.trim_end_matches(|it: char| it == ';' || it.is_whitespace())
}

fn single_text(statement: &str, columns: usize, outputs: &[Output]) -> String {
    // A common table expression, because statements that write may stand there too. The new
    // line ends a comment.
    format!(
        "with {ROWS}({}) as ({statement}\n) select {} from {ROWS}",
        numbered('c', columns),
        expressions(outputs)
    )
}

fn batched_text(
    statement: &str,
    arguments: &[Argument],
    columns: usize,
    outputs: &[Output],
) -> String {
    let inner = Placeholders::find(statement).replace(|number| {
        match arguments.get(number.wrapping_sub(1)) {
            Some(Argument { wire: Wire::ByText, of, .. }) => {
                format!("({KEYS}.a{number}::{})", sql_name(of))
            }
            _ => format!("{KEYS}.a{number}"),
        }
    });
    let arrays = arguments
        .iter()
        .enumerate()
        .map(|(index, argument)| format!("${}::{}[]", index + 1, sql_name(&argument.element())));
    // No `order by`: it would sort the rows of one key too, in any order.
    format!(
        "select {KEYS}.ord, {} from pg_catalog.unnest({}) with ordinality as {KEYS}({}, ord) \
         cross join lateral ({inner}\n) as {ROWS}({})",
        expressions(outputs),
        arrays.collect::<Vec<_>>().join(", "),
        numbered('a', arguments.len()),
        numbered('c', columns)
    )
}

fn expressions(outputs: &[Output]) -> String {
    outputs.iter().map(|it| it.expression.as_str()).collect::<Vec<_>>().join(", ")
}

fn numbered(letter: char, count: usize) -> String {
    (1..=count).map(|number| format!("{letter}{number}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_for_many_rows_takes_arrays_and_keeps_the_statement_inside() {
        let outputs = [Output {
            expression: "r.c1::text".to_owned(),
            form: Form { wire: Wire::ByText, is_list: false },
            is_plain: false,
        }];
        let arguments = [
            Argument::new("u", &DataType::Utf8, &Type::UUID).unwrap(),
            Argument::new("i", &DataType::Int64, &Type::INT4).unwrap(),
        ];
        let statement = "select x from t where u = $1 and i = $2";
        let text = batched_text(statement, &arguments, 1, &outputs);

        assert_eq!(
            text,
            "select sparkawait_keys.ord, r.c1::text from \
             pg_catalog.unnest($1::\"pg_catalog\".\"text\"[], $2::\"pg_catalog\".\"int4\"[]) \
             with ordinality as sparkawait_keys(a1, a2, ord) cross join lateral \
             (select x from t where u = (sparkawait_keys.a1::\"pg_catalog\".\"uuid\") \
             and i = sparkawait_keys.a2\n) as sparkawait_rows(c1)"
        );
    }

    #[test]
    fn a_semicolon_at_the_end_is_left_out() {
        assert_eq!(trim("select 1 ; \n"), "select 1");
    }
}
