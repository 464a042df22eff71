// SPDX-License-Identifier: Apache-2.0
//! Requests out of the columns of a row.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use rand::RngExt;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Request, Url};
use serde::Deserialize;
use sparkawait_arrow::InputBatch;

use super::HttpConfig;
use super::body::{BodyRows, BoundBody};
use super::failure::{Failed, bad_request};
use crate::native::StartError;
use crate::template::{BoundTemplate, Escape, Template, TemplateRows};

/// A header that lets a server see that two requests are the same.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IdempotencyKey {
    header: String,
    /// A template; without it, the task and the row's position in it make the key.
    value: Option<String>,
}

/// What requests are made of, with their columns looked up.
pub(super) struct RequestTemplates {
    method: Method,
    url: BoundTemplate,
    /// Columns that stand for the address itself are written as they are.
    url_escape: Escape,
    /// Percent-encoded names with `?` or `&` before and `=` after them.
    query: Vec<(Vec<u8>, BoundTemplate)>,
    /// Headers that are the same in all requests.
    fixed: HeaderMap,
    headers: Vec<(HeaderName, BoundTemplate)>,
    body: Option<BoundBody>,
    /// The header, and what its value starts with.
    generated_key: Option<(HeaderName, String)>,
}

impl RequestTemplates {
    /// Reads the templates and looks their columns up in `schema`.
    pub(super) fn new(config: &HttpConfig, schema: &SchemaRef) -> Result<Self, StartError> {
        let method = Method::from_bytes(config.method.as_bytes())
            .map_err(|_| StartError::option(format!("`{}` is no HTTP method", config.method)))?;
        let mut this = Self {
            method,
            url: Template::parse(&config.url, "url")?.bind(schema)?,
            url_escape: url_escape(&config.url),
            query: Vec::new(),
            fixed: HeaderMap::new(),
            headers: Vec::new(),
            body: config.body.as_ref().map(|body| body.bind(schema)).transpose()?,
            generated_key: None,
        };
        let mut separator = if config.url.contains('?') { '&' } else { '?' };
        for (name, value) in &config.query {
            let name =
                percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC);
            let start = format!("{separator}{name}=").into_bytes();
            this.query.push((start, Template::parse(value, "query")?.bind(schema)?));
            separator = '&';
        }
        if this.body.as_ref().is_some_and(|body| body.is_json) {
            this.fixed.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        for (name, value) in &config.headers {
            this.add_header(name, value, schema)?;
        }
        if let Some(key) = &config.idempotency_key {
            if let Some(value) = &key.value {
                this.add_header(&key.header, value, schema)?;
            } else {
                let task = rand::rng().random::<u128>();
                this.generated_key = Some((header_name(&key.header)?, format!("{task:032x}")));
            }
        }
        Ok(this)
    }

    fn add_header(
        &mut self,
        name: &str,
        value: &str,
        schema: &SchemaRef,
    ) -> Result<(), StartError> {
        let header = header_name(name)?;
        let template = Template::parse(value, "headers")?;
        self.fixed.remove(&header);
        if let Some(literal) = template.as_literal() {
            let mut value = HeaderValue::from_str(literal).map_err(|_| {
                StartError::option(format!(
                    "the value of header `{name}` has characters that no header may have"
                ))
            })?;
            value.set_sensitive(true);
            self.fixed.insert(header, value);
        } else {
            self.headers.push((header, template.bind(schema)?));
        }
        Ok(())
    }

    /// Opens the columns of a batch.
    pub(super) fn rows<'a>(
        &'a self,
        batch: &'a Arc<InputBatch>,
    ) -> Result<RequestRows<'a>, StartError> {
        let rows = &batch.batch;
        let query = self.query.iter().map(|(start, it)| Ok((start.as_slice(), it.rows(rows)?)));
        let headers = self.headers.iter().map(|(name, it)| Ok((name, it.rows(rows)?)));
        Ok(RequestRows {
            templates: self,
            base_ordinal: batch.base_ordinal,
            url: self.url.rows(rows)?,
            query: query.collect::<Result<_, StartError>>()?,
            headers: headers.collect::<Result<_, StartError>>()?,
            body: self.body.as_ref().map(|body| body.rows(rows)).transpose()?,
            text: Vec::new(),
        })
    }
}

fn header_name(name: &str) -> Result<HeaderName, StartError> {
    HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| StartError::option(format!("`{name}` is no name of a header")))
}

/// Refuses a template whose rows can have no address, whatever is in them.
///
/// Host and port are only read where no column is in them; an address that starts with a column is
/// read row by row.
pub(super) fn check_address(url: &str) -> Result<(), StartError> {
    let template = Template::parse(url, "url")?;
    if url_escape(url) == Escape::None {
        return Ok(());
    }
    let refuse = || {
        // Not quoted: there may be a token in it.
        StartError::option(
            "`url` must be the address of a host that begins with `http://` or `https://`, or with a column",
        )
    };
    let (scheme, rest) = url.split_once("://").ok_or_else(refuse)?;
    if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return Err(refuse());
    }
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let is_fixed = Template::parse(authority, "url").is_ok_and(|it| it.columns().next().is_none());
    let address = if template.columns().next().is_none() {
        template.as_literal().unwrap_or_default().to_owned()
    } else if is_fixed {
        format!("{scheme}://{authority}/")
    } else {
        return Ok(());
    };
    let is_address = Url::parse(&address).is_ok_and(|url| url.has_host());
    if is_address { Ok(()) } else { Err(refuse()) }
}

/// A template that starts with a column takes addresses out of rows; all others take parts.
fn url_escape(url: &str) -> Escape {
    if url.starts_with('{') && !url.starts_with("{{") { Escape::None } else { Escape::Percent }
}

/// Requests of the rows of one batch.
pub(super) struct RequestRows<'a> {
    templates: &'a RequestTemplates,
    base_ordinal: u64,
    url: TemplateRows<'a>,
    query: Vec<(&'a [u8], TemplateRows<'a>)>,
    headers: Vec<(&'a HeaderName, TemplateRows<'a>)>,
    body: Option<BodyRows<'a>>,
    /// Kept for its memory.
    text: Vec<u8>,
}

impl RequestRows<'_> {
    /// Makes the request of `row`; `None` if one of its columns is null.
    pub(super) fn request(
        &mut self,
        client: &Client,
        row: usize,
    ) -> Result<Option<Request>, Failed> {
        let text = &mut self.text;
        text.clear();
        if !self.url.write(row, self.templates.url_escape, text) {
            return Ok(None);
        }
        for (start, value) in &self.query {
            text.extend_from_slice(start);
            if !value.write(row, Escape::Percent, text) {
                return Ok(None);
            }
        }
        let url = std::str::from_utf8(text)
            .ok()
            .and_then(|text| Url::parse(text).ok())
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| bad_request("`url` with the row's values is no http or https URL"))?;
        let mut headers = self.templates.fixed.clone();
        for (name, value) in &self.headers {
            text.clear();
            if !value.write(row, Escape::None, text) {
                return Ok(None);
            }
            let value = HeaderValue::from_bytes(text).map_err(|_| {
                bad_request(&format!(
                    "the row's value for header `{name}` has characters that no header may have"
                ))
            })?;
            headers.insert((*name).clone(), value);
        }
        if let Some((name, start)) = &self.templates.generated_key {
            let key = format!("{start}-{}", self.base_ordinal + row as u64);
            if let Ok(value) = HeaderValue::try_from(key) {
                headers.insert(name.clone(), value);
            }
        }
        let mut request = client.request(self.templates.method.clone(), url).headers(headers);
        if let Some(body) = &mut self.body {
            match body.write(row) {
                Some(body) => request = request.body(body),
                None => return Ok(None),
            }
        }
        let request = request.build();
        request.map(Some).map_err(|_| bad_request("the row's values make no HTTP request"))
    }
}
