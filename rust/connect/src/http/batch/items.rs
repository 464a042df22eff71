// SPDX-License-Identifier: Apache-2.0
//! The items of a reply, each for the row that it belongs to.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use http::StatusCode;
use http::header::HeaderMap;
use serde_json::Value;
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::AttemptId;
use sparkawait_task::cause::Cause;
use sparkawait_task::error::{CallFailure, StartError, TaskError};

use super::item::Item;
use crate::failure::{Failure, service_failure};
use crate::http::call::{Found, Outcome};
use crate::http::config::{HttpConfig, Returns};
use crate::http::failure::{QUOTED, Refusal, RetryStatuses, host_label, status_failure};
use crate::http::request::retry_statuses;
use crate::json::elements::elements;
use crate::json::{Decoded, JsonRows};
use crate::json_path::JsonPath;

/// Divides replies among the rows of their requests.
pub(crate) struct ItemReader {
    host: String,
    /// Where the items are; the document itself, if that is not said.
    rows: Option<JsonPath>,
    has_items: bool,
    matching: Matching,
    /// Reads what items say beside their results; the columns are those of `Head` in its order.
    heads: Option<JsonRows>,
    id: Option<usize>,
    error: Option<usize>,
    status: Option<usize>,
    retry: Vec<String>,
    success: Vec<(u16, u16)>,
    missing: Vec<u16>,
    retry_statuses: RetryStatuses,
}

/// What tells which row an item belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Matching {
    /// Its position among the items.
    Position,
    /// The position in the request that it names.
    Index,
    /// The name of its row.
    Name,
}

/// What a row gets of a reply.
enum Share {
    None,
    Item(usize),
    /// Several items are the row's.
    Several,
}

impl ItemReader {
    /// Reads the rules.
    pub(crate) fn new(config: &HttpConfig) -> Result<Option<Self>, StartError> {
        let Some(batch) = &config.batch else { return Ok(None) };
        let mut fields = Vec::new();
        let mut paths = Vec::new();
        let mut head = |option: &'static str, path: Option<&String>| {
            let path = path?;
            fields.push(Field::new(option, DataType::Utf8, true));
            // Named as the option, which a message about a wrong path shows.
            paths.push((option.to_owned(), path.clone()));
            Some(fields.len() - 1)
        };
        let id = head("id", batch.id.as_ref().map(|it| &it.path));
        let error = head("item_error", batch.error.as_ref());
        let status = head("item_status", batch.status.as_ref());
        for (option, path) in &paths {
            JsonPath::parse(path, option)?;
        }
        let heads = if paths.is_empty() {
            None
        } else {
            Some(JsonRows::new(Arc::new(Schema::new(fields)), None, &paths)?.one_each())
        };
        let matching = match &batch.id {
            None => Matching::Position,
            Some(id) if id.template.is_none() => Matching::Index,
            Some(_) => Matching::Name,
        };
        Ok(Some(Self {
            host: host_label(&config.url),
            rows: config.rows.as_deref().map(|it| JsonPath::parse(it, "rows")).transpose()?,
            has_items: config.returns == Returns::Json,
            matching,
            heads,
            id,
            error,
            status,
            retry: batch.retry.clone(),
            success: config.success.clone(),
            missing: config.missing.clone(),
            retry_statuses: retry_statuses(config),
        }))
    }

    /// Divides what a request came to among its rows.
    pub(super) fn divide(
        &self,
        items: &[Item],
        outcome: Outcome,
        answered: &mut Vec<(AttemptId, Outcome)>,
    ) -> Result<(), TaskError> {
        match outcome {
            Outcome::Found(found) if self.has_items => {
                let outcomes = self.outcomes(items, &found)?;
                answered.extend(items.iter().map(|it| it.attempt).zip(outcomes));
            }
            Outcome::Found(found) => {
                answered.extend(items.iter().map(|it| (it.attempt, Outcome::Found(found.clone()))));
            }
            Outcome::Missed | Outcome::NullKey => {
                answered.extend(items.iter().map(|it| (it.attempt, Outcome::Missed)));
            }
            Outcome::Failed(failed) => {
                let of = |it: &Item| (it.attempt, Outcome::Failed(failed.clone()));
                answered.extend(items.iter().map(of));
            }
        }
        Ok(())
    }

    fn outcomes(&self, items: &[Item], found: &Found) -> Result<Vec<Outcome>, TaskError> {
        let body = found.body.clone();
        let fail_all = |kind: ErrorKind, what: &str| {
            items.iter().map(|_| self.failed(kind, what)).collect::<Vec<_>>()
        };
        let texts = match elements(&body, self.rows.as_ref()) {
            Ok(texts) => texts,
            Err(what) => {
                let said = error_in(&body).map(|said| format!("{what}, but an error: {said}"));
                let what = said.as_deref().unwrap_or(&what);
                return Ok(fail_all(ErrorKind::ResultSchemaMismatch, what));
            }
        };
        let heads = match &self.heads {
            Some(heads) => Some(heads.decode(&texts)?),
            None => None,
        };
        let heads = heads.map(|heads| Heads::new(&heads));
        let shares = match self.shares(items, texts.len(), heads.as_ref()) {
            Ok(shares) => shares,
            Err(what) => return Ok(fail_all(ErrorKind::BatchResultCountMismatch, &what)),
        };
        let outcome = |share| {
            let item = match share {
                Share::Item(item) => item,
                Share::None => {
                    let what = "the reply has no result for the row";
                    return self.failed(ErrorKind::BatchResultCountMismatch, what);
                }
                Share::Several => {
                    let what = "the reply has several results for the row";
                    return self.failed(ErrorKind::BatchResultCountMismatch, what);
                }
            };
            let said = heads.as_ref().and_then(|heads| self.said(heads, item));
            said.unwrap_or_else(|| {
                Outcome::Found(Found { body: body.slice_ref(texts[item]), ..found.clone() })
            })
        };
        Ok(shares.into_iter().map(outcome).collect())
    }

    /// Returns what each row has of `count` items; says why nothing can be known of any of them.
    fn shares(
        &self,
        items: &[Item],
        count: usize,
        heads: Option<&Heads>,
    ) -> Result<Vec<Share>, String> {
        let rows = items.len();
        if self.matching == Matching::Position && count != rows {
            return Err(format!(
                "the request had {rows} rows, and the reply has {count} results; where results name \
                 their rows, give `id`"
            ));
        }
        if self.matching == Matching::Position {
            return Ok((0..rows).map(Share::Item).collect());
        }
        let mut shares: Vec<Share> = (0..rows).map(|_| Share::None).collect();
        let names: HashMap<&[u8], usize> = match self.matching {
            Matching::Name => {
                items.iter().enumerate().map(|(row, it)| (it.id.as_ref(), row)).collect()
            }
            _ => HashMap::new(),
        };
        for item in 0..count {
            let name = heads.and_then(|heads| heads.text(item, self.id));
            let row = match self.matching {
                // A name that is not in the request belongs to no row, but where rows are counted
                // from something else, all of them are others' results.
                Matching::Name => match name.and_then(|name| names.get(name.as_bytes())) {
                    Some(row) => *row,
                    None => continue,
                },
                _ => match name.and_then(|name| name.parse().ok()).filter(|row| *row < rows) {
                    Some(row) => row,
                    None => {
                        return Err(format!(
                            "the reply has a result whose `id` is not one of the positions 0 to {} \
                             in the request; where it is the row's own, write \
                             `id={{\"member\": \"{{column}}\"}}`",
                            rows.saturating_sub(1)
                        ));
                    }
                },
            };
            shares[row] = match shares[row] {
                Share::None => Share::Item(item),
                _ => Share::Several,
            };
        }
        Ok(shares)
    }

    /// Returns what an item says beside a result: that it failed, or that there is nothing.
    fn said(&self, heads: &Heads, item: usize) -> Option<Outcome> {
        let error = heads.text(item, self.error).filter(|error| is_error(error));
        let worth_it = error.is_some_and(|error| self.is_worth_it(error));
        let status = heads.text(item, self.status);
        if let Some(status) = status {
            let code = status.parse().ok().and_then(|code| StatusCode::from_u16(code).ok());
            let Some(status) = code else {
                let what = "the row's result has a status that HTTP does not have";
                return Some(self.failed(ErrorKind::ResultSchemaMismatch, what));
            };
            let code = status.as_u16();
            if self.missing.contains(&code) {
                return Some(Outcome::Missed);
            }
            if !self.success.iter().any(|(first, last)| (*first..=*last).contains(&code)) {
                let host = format!("{} has for the row, and", self.host);
                let body = error.unwrap_or_default().as_bytes();
                let headers = HeaderMap::new();
                let (headers, is_throttled) = (&headers, false);
                let refusal = Refusal { status, headers, body, is_throttled };
                let failed = status_failure(&host, &refusal, &self.retry_statuses);
                let said = Cause::Answered;
                let failed = if worth_it {
                    Failure { cause: said, ..failed }.that_may_pass()
                } else {
                    failed
                };
                return Some(Outcome::Failed(Box::new(failed)));
            }
        }
        let error = error?;
        let quoted: String = error.chars().take(QUOTED).collect();
        let summary = format!("{}: the row's result is an error", self.host);
        let failure = service_failure(format!("{summary}: {quoted}"), summary);
        // The server has answered; what the error says of it is not known.
        let failed = Failure::from(failure);
        let failed = if worth_it { failed.that_may_pass() } else { failed };
        Some(Outcome::Failed(Box::new(failed)))
    }

    /// Whether an error, or a member of it, is one of those that are worth another attempt.
    fn is_worth_it(&self, error: &str) -> bool {
        let is_one = |text: &str| self.retry.iter().any(|it| it == text);
        if self.retry.is_empty() || is_one(error) {
            return !self.retry.is_empty();
        }
        let Ok(Value::Object(members)) = serde_json::from_str(error) else { return false };
        members.values().any(|value| match value {
            Value::String(text) => is_one(text),
            Value::Number(number) => is_one(&number.to_string()),
            _ => false,
        })
    }

    fn failed(&self, kind: ErrorKind, what: &str) -> Outcome {
        let text = format!("{}: {what}", self.host);
        Outcome::Failed(Box::new(CallFailure::new(kind, text).into()))
    }
}

/// Returns what a reply says that has an error instead of rows: some services do as if all were well.
fn error_in(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let error = body.get("error")?;
    let words = error.get("message").unwrap_or(error).as_str()?;
    Some(words.chars().take(QUOTED).collect())
}

/// Whether the text at the place of an error is one.
fn is_error(text: &str) -> bool {
    !matches!(text.trim(), "" | "false" | "[]" | "{}" | "0")
}

/// What items say beside their results.
struct Heads {
    batch: RecordBatch,
    /// The row of each item; none if it is null, or has no such texts.
    rows: Vec<Option<usize>>,
}

impl Heads {
    fn new(decoded: &Decoded) -> Self {
        let mut next = 0;
        let row = |count: &Result<u32, String>| match count {
            Ok(1) => {
                next += 1;
                Some(next - 1)
            }
            _ => None,
        };
        Self { rows: decoded.documents.iter().map(row).collect(), batch: decoded.batch.clone() }
    }

    fn text(&self, item: usize, column: Option<usize>) -> Option<&str> {
        let texts = self.batch.column(column?).as_string_opt::<i32>()?;
        let row = self.rows[item]?;
        texts.is_valid(row).then(|| texts.value(row))
    }
}

#[cfg(test)]
mod tests;
