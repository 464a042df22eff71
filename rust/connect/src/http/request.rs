// SPDX-License-Identifier: Apache-2.0
//! Requests out of the columns of a row.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use http::Method;
use http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT,
};
use sparkawait_arrow::InputBatch;
use sparkawait_task::error::StartError;

use super::address::{Address, AddressRows, Target};
use super::auth::{AuthConfig, secret_value};
use super::body::{BodyRows, BoundBody};
use super::clients::Clients;
use super::config::HttpConfig;
use super::failure::{RetryStatuses, bad_request};
use super::fields::random_text;
use super::hosts::AllowedHosts;
use super::reply::Outgoing;
use crate::failure::Failure;
use crate::template::{BoundTemplate, Escape, Template, TemplateRows, keyed};

/// The header that services know a request again by.
const IDEMPOTENCY_KEY: &str = "Idempotency-Key";

/// What requests are made of, with their columns looked up.
pub(super) struct RequestTemplates {
    method: Method,
    address: Address,
    /// Headers that are the same in all requests.
    fixed: Arc<HeaderMap>,
    headers: Vec<(HeaderName, BoundTemplate)>,
    body: Option<BoundBody>,
    /// The header, and what its value starts with.
    generated_key: Option<(HeaderName, String)>,
}

impl RequestTemplates {
    /// Reads the templates and looks their columns up in `schema`.
    pub(super) fn new(config: &HttpConfig, schema: &SchemaRef) -> Result<Self, StartError> {
        let method = Method::from_bytes(config.method.as_bytes()).map_err(|_| {
            StartError::option(format!("`{}` is not an HTTP method", config.method))
        })?;
        let allowed = config.allow_hosts.as_deref();
        let allowed = allowed.map(|hosts| AllowedHosts::parse(hosts, &config.url)).transpose()?;
        let mut this = Self {
            method,
            address: Address::new(&config.url, &config.query, allowed, schema)?,
            fixed: Arc::new(first_headers()),
            headers: Vec::new(),
            body: config.body.as_ref().map(|body| body.bind(schema)).transpose()?,
            generated_key: None,
        };
        if let Some(kind) = this.body.as_ref().and_then(|body| body.content_type.clone()) {
            this.fixed().insert(CONTENT_TYPE, kind);
        }
        for (name, value) in &config.headers {
            this.add_header(name, value, schema)?;
        }
        if let Some(AuthConfig::Header(text)) = &config.auth {
            let value = secret_value(text).ok_or_else(|| {
                StartError::option("the secret in `auth` has characters that no header may have")
            })?;
            this.fixed().insert(AUTHORIZATION, value);
        }
        // Of a batched request it is made of all of its rows.
        if let Some(key) = config.idempotency_key.as_ref().filter(|_| config.batch.is_none()) {
            if let Some(value) = &key.value {
                this.add_header(&key.header, value, schema)?;
            } else {
                this.generated_key = Some((header_name(&key.header)?, random_text()?));
            }
        }
        Ok(this)
    }

    /// Adds a header that is the same in all requests, unless it was given.
    pub(super) fn default_header(&mut self, header: HeaderName, value: HeaderValue) {
        if !self.headers.iter().any(|(name, _)| *name == header) {
            self.fixed().entry(header).or_insert(value);
        }
    }

    fn fixed(&mut self) -> &mut HeaderMap {
        Arc::make_mut(&mut self.fixed)
    }

    fn add_header(
        &mut self,
        name: &str,
        value: &str,
        schema: &SchemaRef,
    ) -> Result<(), StartError> {
        let header = header_name(name)?;
        let template = Template::parse(value, &keyed("headers", name))?;
        // Of the host there is a value until a request is sent.
        if header != HOST {
            self.fixed().remove(&header);
        }
        if let Some(literal) = template.as_literal() {
            let mut value = HeaderValue::from_str(literal).map_err(|_| {
                StartError::option(format!(
                    "the value of header `{name}` has characters that no header may have"
                ))
            })?;
            value.set_sensitive(true);
            self.fixed().insert(header, value);
        } else {
            self.headers.push((header, template.bind(schema)?));
        }
        Ok(())
    }

    /// The columns in address and headers.
    pub(super) fn columns(&self) -> impl Iterator<Item = usize> {
        let headers = self.headers.iter().flat_map(|(_, it)| it.column_indices());
        self.address.columns().chain(headers)
    }

    /// Opens the columns of a batch.
    pub(super) fn rows<'a>(
        &'a self,
        batch: &'a Arc<InputBatch>,
    ) -> Result<RequestRows<'a>, StartError> {
        let rows = &batch.batch;
        let headers = self.headers.iter().map(|(name, it)| Ok((name, it.rows(rows)?)));
        Ok(RequestRows {
            templates: self,
            batch,
            address: self.address.rows(rows)?,
            headers: headers.collect::<Result<_, StartError>>()?,
            body: self.body.as_ref().map(|body| body.rows(rows)).transpose()?,
            text: Vec::new(),
        })
    }
}

/// Returns what all requests say, the host first of all, which each is given when it is sent.
fn first_headers() -> HeaderMap {
    let agent = concat!("sparkawait/", env!("CARGO_PKG_VERSION"));
    let all = [(HOST, ""), (USER_AGENT, agent), (ACCEPT, "*/*")];
    all.into_iter().map(|(name, value)| (name, HeaderValue::from_static(value))).collect()
}

/// Returns which statuses of requests of `config` are worth another attempt.
pub(super) fn retry_statuses(config: &HttpConfig) -> RetryStatuses {
    let is_key = |name: &str| name.eq_ignore_ascii_case(IDEMPOTENCY_KEY);
    let is_keyed =
        config.idempotency_key.is_some() || config.headers.iter().any(|(name, _)| is_key(name));
    RetryStatuses { said: config.retry_status.clone(), is_keyed }
}

pub(super) fn header_name(name: &str) -> Result<HeaderName, StartError> {
    HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| StartError::option(format!("`{name}` is not the name of a header")))
}

/// Requests of the rows of one batch.
pub(super) struct RequestRows<'a> {
    templates: &'a RequestTemplates,
    batch: &'a InputBatch,
    address: AddressRows<'a>,
    headers: Vec<(&'a HeaderName, TemplateRows<'a>)>,
    body: Option<BodyRows<'a>>,
    /// Kept for its memory.
    text: Vec<u8>,
}

impl RequestRows<'_> {
    /// Makes the request of `row`; `None` if one of its columns is null.
    pub(super) fn request(
        &mut self,
        clients: &Clients,
        row: usize,
    ) -> Result<Option<Outgoing>, Failure> {
        let Some(mut request) = self.head(clients, row)? else { return Ok(None) };
        if let Some(body) = &mut self.body {
            let Some(body) = body.write(row)? else { return Ok(None) };
            request.body = Some(body.into());
        }
        Ok(Some(request))
    }

    /// Makes the request of `row` without its body; `None` if one of its columns is null.
    pub(super) fn head(
        &mut self,
        clients: &Clients,
        row: usize,
    ) -> Result<Option<Outgoing>, Failure> {
        let Some(target) = self.address.target(clients, row)? else { return Ok(None) };
        let Target { server, path, authorization } = target;
        let text = &mut self.text;
        let mut own = Vec::new();
        if let Some(authorization) = authorization
            && !self.templates.fixed.contains_key(AUTHORIZATION)
        {
            own.push((AUTHORIZATION, authorization));
        }
        for (name, value) in &self.headers {
            text.clear();
            if !value.write(row, Escape::None, text) {
                return Ok(None);
            }
            let is_trimmed = |it: Option<&u8>| matches!(it, Some(b' ' | b'\t'));
            if is_trimmed(text.first()) || is_trimmed(text.last()) {
                return Err(bad_request(&format!(
                    "the row's value for header `{name}` has spaces around it, which no server sees"
                )));
            }
            let value = HeaderValue::from_bytes(text).map_err(|_| {
                bad_request(&format!(
                    "the row's value for header `{name}` has characters that no header may have"
                ))
            })?;
            own.push(((*name).clone(), value));
        }
        if let Some((name, start)) = &self.templates.generated_key {
            let key = format!("{start}-{}", self.batch.ordinal(row));
            if let Ok(value) = HeaderValue::try_from(key) {
                own.push((name.clone(), value));
            }
        }
        Ok(Some(Outgoing {
            method: self.templates.method.clone(),
            place: server,
            path,
            fixed: Arc::clone(&self.templates.fixed),
            own,
            body: None,
            is_redirected: false,
        }))
    }
}
