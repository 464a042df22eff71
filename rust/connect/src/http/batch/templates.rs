// SPDX-License-Identifier: Apache-2.0
//! Items, and the requests around them, out of the columns of rows.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use ring::digest::{Context, SHA256};
use sparkawait_arrow::InputBatch;
use sparkawait_task::error::StartError;

use super::item::Item;
use crate::failure::Failure;
use crate::http::body::{BodyRows, BoundBody};
use crate::http::clients::Clients;
use crate::http::config::HttpConfig;
use crate::http::failure::bad_request;
use crate::http::fields::random_text;
use crate::http::json_cells::JsonCells;
use crate::http::reply::Outgoing;
use crate::http::request::{RequestRows, RequestTemplates, header_name};
use crate::template::{BoundTemplate, Escape, Template, TemplateRows};

/// What batched requests are made of, with their columns looked up.
pub(crate) struct BatchTemplates {
    requests: RequestTemplates,
    /// The values of a row: one, or one a line.
    item: Vec<BoundBody>,
    /// What stands around the array; none for lines.
    around: Option<BoundBody>,
    /// The columns beside the items that make requests differ.
    of_head: Vec<usize>,
    id: Option<BoundTemplate>,
    key: Option<IdempotencyKey>,
}

struct IdempotencyKey {
    header: HeaderName,
    of_row: KeyOfRow,
}

enum KeyOfRow {
    Template(BoundTemplate),
    /// Its position in the task, which the text is the name of.
    Position(String),
}

/// What the requests of some rows say beside their items.
pub(super) struct Head {
    request: Outgoing,
    before: Bytes,
    behind: Bytes,
    /// What stands between two items.
    separator: &'static [u8],
    key: Option<(HeaderName, Bytes)>,
}

impl BatchTemplates {
    /// Reads the templates and looks their columns up in `schema`; `None` if requests are not
    /// batched.
    pub(crate) fn new(config: &HttpConfig, schema: &SchemaRef) -> Result<Option<Self>, StartError> {
        let Some(batch) = &config.batch else { return Ok(None) };
        let mut requests = RequestTemplates::new(config, schema)?;
        let item = batch.item.iter().map(|it| BoundBody::item(it, schema));
        let around = batch.around.as_ref().map(|it| BoundBody::around_items(it, schema));
        let around = around.transpose()?;
        let json = if around.is_some() { "application/json" } else { "application/x-ndjson" };
        requests.default_header(CONTENT_TYPE, HeaderValue::from_static(json));
        let mut of_head: Vec<usize> = requests.columns().collect();
        of_head.extend(around.iter().flat_map(BoundBody::columns));
        of_head.sort_unstable();
        of_head.dedup();
        let template = batch.id.as_ref().and_then(|id| id.template.as_ref());
        let id = template.map(|text| Template::parse(text, "id")?.bind(schema)).transpose()?;
        let key = config.idempotency_key.as_ref().map(|key| {
            let of_row = match &key.value {
                Some(text) => {
                    KeyOfRow::Template(Template::parse(text, "idempotency_key")?.bind(schema)?)
                }
                None => KeyOfRow::Position(random_text()?),
            };
            Ok(IdempotencyKey { header: header_name(&key.header)?, of_row })
        });
        let (item, key) = (item.collect::<Result<_, _>>()?, key.transpose()?);
        Ok(Some(Self { requests, item, around, of_head, id, key }))
    }

    /// Opens the columns of a batch.
    pub(super) fn rows<'a>(
        &'a self,
        batch: &'a Arc<InputBatch>,
    ) -> Result<ItemRows<'a>, StartError> {
        let rows = &batch.batch;
        let item = self.item.iter().map(|it| it.rows(rows)).collect::<Result<_, _>>()?;
        let cells = self.of_head.iter().map(|column| JsonCells::new(rows.column(*column).as_ref()));
        let key = match self.key.as_ref().map(|it| &it.of_row) {
            Some(KeyOfRow::Template(template)) => Some(template.rows(rows)?),
            _ => None,
        };
        Ok(ItemRows {
            templates: self,
            batch,
            head: self.requests.rows(batch)?,
            of_head: cells.collect::<Result<_, _>>()?,
            item,
            around: self.around.as_ref().map(|it| it.rows(rows)).transpose()?,
            id: self.id.as_ref().map(|it| it.rows(rows)).transpose()?,
            key,
            texts: BytesMut::new(),
            text: Vec::new(),
        })
    }
}

/// Items of the rows of one batch.
pub(super) struct ItemRows<'a> {
    templates: &'a BatchTemplates,
    batch: &'a InputBatch,
    head: RequestRows<'a>,
    of_head: Vec<JsonCells<'a>>,
    item: Vec<BodyRows<'a>>,
    around: Option<BodyRows<'a>>,
    id: Option<TemplateRows<'a>>,
    key: Option<TemplateRows<'a>>,
    /// What was written; items share its memory.
    texts: BytesMut,
    /// Kept for its memory.
    text: Vec<u8>,
}

/// The texts of a row: its item, its name and its key.
pub(super) struct Texts {
    pub(super) item: Bytes,
    pub(super) id: Bytes,
    pub(super) key: Bytes,
}

impl ItemRows<'_> {
    /// Makes the texts of `row`; `None` if a column is null without which it has no item.
    pub(super) fn texts(&mut self, row: usize) -> Result<Option<Texts>, Failure> {
        self.text.clear();
        for value in &mut self.item {
            if !value.append(row, &mut self.text)? {
                return Ok(None);
            }
            if self.around.is_none() {
                self.text.push(b'\n');
            }
        }
        let item = take(&mut self.texts, &mut self.text);
        if let Some(id) = &self.id
            && !id.write(row, Escape::None, &mut self.text)
        {
            return Ok(None);
        }
        let id = take(&mut self.texts, &mut self.text);
        if let Some(key) = &self.key {
            if !key.write(row, Escape::None, &mut self.text) {
                return Ok(None);
            }
        } else if self.templates.key.is_some() {
            let ordinal = self.batch.ordinal(row);
            self.text.extend_from_slice(&ordinal.to_le_bytes());
        }
        let key = take(&mut self.texts, &mut self.text);
        Ok(Some(Texts { item, id, key }))
    }

    /// Returns what the request of `row` is told from others by; empty if all are alike.
    pub(super) fn head_key(&mut self, row: usize) -> Result<Bytes, Failure> {
        for cells in &self.of_head {
            let written = cells.write(row, &mut self.text);
            written.ok_or_else(|| bad_request("the row has a variant that cannot be read"))?;
            self.text.push(b',');
        }
        Ok(take(&mut self.texts, &mut self.text))
    }

    /// Makes what the requests of rows like `row` say beside their items; `None` if one of its
    /// columns is null.
    pub(super) fn head(&mut self, clients: &Clients, row: usize) -> Result<Option<Head>, Failure> {
        let Some(request) = self.head.head(clients, row)? else { return Ok(None) };
        let (mut before, mut behind, mut separator) = (Vec::new(), Vec::new(), &b""[..]);
        if let Some(around) = &mut self.around {
            (before, behind) = around.around_items(row)?;
            before.push(b'[');
            behind.insert(0, b']');
            separator = b",";
        }
        let key = self.templates.key.as_ref().map(|key| {
            let name = match &key.of_row {
                KeyOfRow::Template(_) => Bytes::new(),
                KeyOfRow::Position(name) => Bytes::copy_from_slice(name.as_bytes()),
            };
            (key.header.clone(), name)
        });
        Ok(Some(Head { request, before: before.into(), behind: behind.into(), separator, key }))
    }
}

/// Moves a text to the memory that the texts of a burst share.
fn take(texts: &mut BytesMut, text: &mut Vec<u8>) -> Bytes {
    // Most rows have neither a name nor a key, nor a head of their own.
    if text.is_empty() {
        return Bytes::new();
    }
    texts.extend_from_slice(text);
    text.clear();
    texts.split().freeze()
}

impl Head {
    #[cfg(test)]
    pub(super) fn for_test() -> Self {
        let (before, behind) = (Bytes::new(), Bytes::new());
        Self { request: Outgoing::for_test(), before, behind, separator: b"", key: None }
    }

    /// Makes the request of some rows; `None` if that cannot be done, which happens to no user.
    pub(super) fn request(&self, items: &[Item]) -> Option<Outgoing> {
        let mut request = self.request.clone();
        if let Some((header, name)) = &self.key {
            let key = HeaderValue::try_from(key_of(name, items)).ok()?;
            request.own.push((header.clone(), key));
        }
        let length = items.iter().map(|it| it.text.len() + 1).sum::<usize>();
        let mut body = Vec::with_capacity(self.before.len() + length + self.behind.len());
        body.extend_from_slice(&self.before);
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                body.extend_from_slice(self.separator);
            }
            body.extend_from_slice(&item.text);
        }
        body.extend_from_slice(&self.behind);
        request.body = Some(body.into());
        Some(request)
    }
}

/// Returns the key of a request: the same for the same rows in the same order.
fn key_of(name: &[u8], items: &[Item]) -> String {
    let mut hash = Context::new(&SHA256);
    for text in std::iter::once(name).chain(items.iter().map(|it| it.key.as_ref())) {
        hash.update(&(text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    let hash = hash.finish();
    let (high, low) = hash.as_ref().split_at(16);
    let number = |half: &[u8]| half.iter().fold(0_u128, |all, byte| all << 8 | u128::from(*byte));
    format!("{:032x}{:032x}", number(high), number(low))
}
