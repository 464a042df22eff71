// SPDX-License-Identifier: Apache-2.0
//! Addresses out of the columns of a row.
//!
//! ```text
//!   https://{host}/items/{id}?limit={n}      {base}/items/{id}
//!           host         segment             base         segment
//! ```
//!
//! A value stays in its place: it is percent-encoded, and refused where an
//! address could not hold it as it is. `{+key}` may be several segments of a
//! path, whose slashes stay (RFC 6570, 3.2.3). Only a column that the address
//! begins with stands for scheme and host, or the whole of it, and is taken as
//! it is.

use std::net::Ipv6Addr;
use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use http::HeaderValue;
use http::uri::PathAndQuery;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use sparkawait_task::error::StartError;
use url::{Position, Url};

use super::clients::{Clients, Place as Server};
use super::failure::bad_request;
use super::hosts::AllowedHosts;
use crate::failure::Failure;
use crate::template::{BoundTemplate, Escape, Template, TemplateRows, keyed, percent_encode_from};

/// Bytes of a path with its query, as the crate `http` has it.
const MOST_BYTES: usize = u16::MAX as usize - 1;

/// Where a template turns from a host to a path, from segment to segment, to the query.
const DELIMITERS: [char; 4] = ['/', '\\', '?', '#'];

/// What rows say of the host that they call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostColumns {
    /// Whether a column stands for the whole address, or its scheme and host.
    pub(crate) is_whole: bool,
    /// The columns in host and port.
    pub(crate) columns: Vec<String>,
}

impl HostColumns {
    /// Reads the template of an address.
    ///
    /// # Errors
    ///
    /// Braces that do not match.
    pub(crate) fn of(url: &str) -> Result<Self, StartError> {
        let parts = divide(&Template::parse(url, "url")?);
        let is_whole = matches!(parts.first(), Some((Place::Base { .. }, _)));
        let columns = parts.iter().filter(|(place, _)| *place == Place::Authority);
        let columns = columns.flat_map(|(_, part)| host(part)).collect();
        Ok(Self { is_whole, columns })
    }

    /// Returns whether rows may call different hosts.
    pub(super) fn differ(&self) -> bool {
        self.is_whole || !self.columns.is_empty()
    }
}

/// Returns the columns of an authority that are behind a user's name and password.
fn host(authority: &Template) -> Vec<String> {
    let parts = authority.divide(&['@']);
    let start = parts.iter().rposition(|part| part.as_literal() == Some("@"));
    let parts = &parts[start.map_or(0, |index| index + 1)..];
    parts.iter().flat_map(Template::columns).map(str::to_owned).collect()
}

/// What a part of an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A first column that is taken as it is; whether a path follows it.
    Base { before_path: bool },
    /// Host and port, with what stands before them.
    Authority,
    /// All that is between two slashes of a path, with a column in it.
    Segment,
    /// The same with columns that may have slashes in them.
    Segments,
    /// Anything else, for which percent-encoding is enough.
    Other,
}

impl Place {
    /// How values are written there.
    const fn escape(self) -> Escape {
        match self {
            Self::Base { .. } => Escape::None,
            Self::Segments => Escape::Path,
            Self::Authority | Self::Segment | Self::Other => Escape::Percent,
        }
    }
}

/// Divides the template of an address.
fn divide(url: &Template) -> Vec<(Place, Template)> {
    #[derive(Clone, Copy, PartialEq)]
    enum At {
        Scheme { slashes: u8 },
        Authority,
        Path,
        Rest,
    }
    let (first, rest) = url.split_first();
    let is_scheme = rest.texts().next().is_some_and(|text| text.starts_with("://"));
    let has_base = url.starts_with_column() && !is_scheme;
    let mut parts = Vec::new();
    let (tokens, mut at) = if has_base {
        let tokens = rest.divide(&DELIMITERS);
        let before_path =
            tokens.first().is_some_and(|it| matches!(it.as_literal(), Some("/" | "\\")));
        parts.push((Place::Base { before_path }, first));
        // What follows the column without a slash belongs to what it ends with.
        (tokens, if before_path { At::Path } else { At::Rest })
    } else {
        (url.divide(&DELIMITERS), At::Scheme { slashes: 0 })
    };
    let mut is_path_open = true;
    for token in tokens {
        let delimiter = token.as_literal().filter(|it| DELIMITERS.iter().any(|d| it.contains(*d)));
        let place = match delimiter {
            Some("/" | "\\") => {
                at = match at {
                    At::Scheme { slashes: 0 } => At::Scheme { slashes: 1 },
                    At::Scheme { .. } => At::Authority,
                    At::Authority => At::Path,
                    // A base may end before its path does: `{base}v1/{id}`.
                    At::Rest if has_base && is_path_open => At::Path,
                    at => at,
                };
                Place::Other
            }
            Some(_) => {
                is_path_open = false;
                at = At::Rest;
                Place::Other
            }
            None if at == At::Authority => Place::Authority,
            None if at == At::Path && token.columns().next().is_some() => Place::Segment,
            None => Place::Other,
        };
        match parts.pop() {
            Some((Place::Other, before)) if place == Place::Other => {
                parts.push((place, before.join(token)));
            }
            before => {
                parts.extend(before);
                parts.push((place, token));
            }
        }
    }
    parts
}

/// Refuses a template whose rows can have no address, whatever is in them.
///
/// Host and port are only read where no column is in them; an address that starts with a column is
/// read row by row.
pub(super) fn check_address(url: &str) -> Result<(), StartError> {
    let template = Template::parse(url, "url")?;
    if template.starts_with_column() {
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

/// The template of an address with its query, with their columns looked up.
pub(super) struct Address {
    parts: Vec<(Place, BoundTemplate)>,
    /// Percent-encoded names with what separates them from the parameter before, and `=`.
    query: Vec<(Vec<u8>, BoundTemplate)>,
    /// Whether the query is put into an address that was read, because rows may have one of their
    /// own, or a fragment may be behind it.
    is_query_apart: bool,
    allowed: Option<AllowedHosts>,
    /// Whether rows name hosts, and nobody has said which they may.
    is_host_of_row: bool,
    /// What the addresses of all rows have in front of their path.
    server: Option<FixedServer>,
}

/// A server that all rows call; what they say is written into the path as it is.
struct FixedServer {
    url: Url,
    /// The first part of the path.
    path: usize,
    found: OnceLock<Option<Arc<Server>>>,
}

/// Where a request goes.
pub(super) struct Target {
    pub(super) server: Arc<Server>,
    pub(super) path: PathAndQuery,
    /// Of a user's name and password in the address.
    pub(super) authorization: Option<HeaderValue>,
}

impl Address {
    /// Reads the templates and looks their columns up in `schema`.
    pub(super) fn new(
        url: &str,
        query: &[(String, String)],
        allowed: Option<AllowedHosts>,
        schema: &Schema,
    ) -> Result<Self, StartError> {
        let template = Template::parse(url, "url")?;
        let parts = divide(&template);
        let has_base = matches!(parts.first(), Some((Place::Base { .. }, _)));
        let has_query = template.texts().any(|text| text.contains('?'));
        let is_query_apart = has_base || template.texts().any(|text| text.contains('#'));
        let mut separator = match (is_query_apart, has_query) {
            (true, _) => "",
            (false, true) => "&",
            (false, false) => "?",
        };
        let mut parameters = Vec::new();
        for (name, value) in query {
            let encoded = utf8_percent_encode(name, NON_ALPHANUMERIC);
            let start = format!("{separator}{encoded}=").into_bytes();
            parameters.push((start, Template::parse(value, &keyed("query", name))?.bind(schema)?));
            separator = "&";
        }
        let is_host_of_row = allowed.is_none() && names_host(&parts);
        let server = fixed_server(&parts, allowed.as_ref()).filter(|_| !is_query_apart);
        let bind = |(place, part): (Place, Template)| match part.of_segments() {
            Some(part) if place == Place::Segment => Ok((Place::Segments, part.bind(schema)?)),
            _ => Ok((place, part.bind(schema)?)),
        };
        let parts = parts.into_iter().map(bind).collect::<Result<_, StartError>>()?;
        Ok(Self { parts, query: parameters, is_query_apart, allowed, is_host_of_row, server })
    }

    /// The columns in it.
    pub(super) fn columns(&self) -> impl Iterator<Item = usize> {
        let templates = self.parts.iter().map(|(_, it)| it);
        let templates = templates.chain(self.query.iter().map(|(_, it)| it));
        templates.flat_map(BoundTemplate::column_indices)
    }

    /// Opens the columns of a batch.
    pub(super) fn rows<'a>(
        &'a self,
        batch: &'a RecordBatch,
    ) -> Result<AddressRows<'a>, StartError> {
        let parts = self.parts.iter().map(|(place, it)| Ok((*place, it.rows(batch)?)));
        let query = self.query.iter().map(|(start, it)| Ok((start.as_slice(), it.rows(batch)?)));
        Ok(AddressRows {
            address: self,
            parts: parts.collect::<Result<_, StartError>>()?,
            query: query.collect::<Result<_, StartError>>()?,
            text: Vec::new(),
            paths: BytesMut::new(),
        })
    }
}

/// Whether a column stands in the host of an address, and not in its port alone.
fn names_host(parts: &[(Place, Template)]) -> bool {
    parts.iter().any(|(place, part)| match place {
        Place::Base { .. } => true,
        Place::Authority => {
            let pieces = part.divide(&['@']);
            let host = pieces.last().map(|it| it.divide(&[':'])).unwrap_or_default();
            // The last colon that is followed by something is that of the port.
            let has_port = host.len() > 2 && host[host.len() - 2].as_literal() == Some(":");
            let host = if has_port { &host[..host.len() - 2] } else { &host[..] };
            host.iter().any(|it| it.columns().next().is_some())
        }
        Place::Segment | Place::Segments | Place::Other => false,
    })
}

/// Returns the server of an address that no column is in, if its path is one that can be sent as it
/// is written.
fn fixed_server(
    parts: &[(Place, Template)],
    allowed: Option<&AllowedHosts>,
) -> Option<FixedServer> {
    let mut authorities = parts.iter().enumerate().filter(|(_, (it, _))| *it == Place::Authority);
    let (at, (_, authority)) = authorities.next()?;
    let scheme: Option<String> =
        parts[..at].iter().map(|(_, it)| it.as_literal()).collect::<Option<_>>();
    let url = Url::parse(&format!("{}{}/", scheme?, authority.as_literal()?)).ok()?;
    let is_plain = parts[at + 1..].iter().all(|(place, part)| {
        let is_plain = |text: &str| text.bytes().all(is_plain);
        part.texts().all(is_plain) && (*place == Place::Segment || !has_dots(part))
    });
    let is_server = matches!(url.scheme(), "http" | "https") && url.has_host();
    let has_user = !url.username().is_empty() || url.password().is_some();
    let is_allowed = allowed.is_none_or(|it| it.refusal(&url).is_none());
    let is_fixed = is_plain && is_server && is_allowed && !has_user;
    is_fixed.then(|| FixedServer { url, path: at + 1, found: OnceLock::new() })
}

/// Whether readers of addresses leave a character as it is, in a path and in a query.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&()*+,;=:@/?".contains(&byte)
}

/// Whether segments of a text may be `.` or `..`, which such readers would follow.
fn has_dots(part: &Template) -> bool {
    part.texts().any(|text| text.contains("/.") || text.starts_with('.'))
}

/// Returns path and query of an address.
pub(super) fn path_of(url: &Url) -> Option<PathAndQuery> {
    PathAndQuery::try_from(&url[Position::BeforePath..Position::AfterQuery]).ok()
}

/// Returns what a user's name and password in an address say.
fn authorization(url: &Url) -> Option<HeaderValue> {
    let (user, password) = (url.username(), url.password());
    if user.is_empty() && password.is_none() {
        return None;
    }
    let mut text: Vec<u8> = percent_decode_str(user).collect();
    text.push(b':');
    text.extend(percent_decode_str(password.unwrap_or_default()));
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(text))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// The addresses of the rows of one batch.
pub(super) struct AddressRows<'a> {
    address: &'a Address,
    parts: Vec<(Place, TemplateRows<'a>)>,
    query: Vec<(&'a [u8], TemplateRows<'a>)>,
    /// Kept for its memory.
    text: Vec<u8>,
    /// What paths share the memory of.
    paths: BytesMut,
}

impl AddressRows<'_> {
    /// Returns where the request of `row` goes; `None` if one of its columns is null.
    pub(super) fn target(
        &mut self,
        clients: &Clients,
        row: usize,
    ) -> Result<Option<Target>, Failure> {
        let address = self.address;
        let Some(fixed) = &address.server else {
            let Some(url) = self.url(row)? else { return Ok(None) };
            check_length(&url[Position::BeforePath..Position::AfterQuery])?;
            let target = clients.place(&url, address.is_host_of_row).zip(path_of(&url));
            let (server, path) = target.ok_or_else(no_request)?;
            return Ok(Some(Target { server, path, authorization: authorization(&url) }));
        };
        let server = fixed.found.get_or_init(|| clients.place(&fixed.url, false));
        let server = Arc::clone(server.as_ref().ok_or_else(no_request)?);
        let Some(path) = self.path(fixed.path, row)? else { return Ok(None) };
        check_length(&path)?;
        let path = PathAndQuery::from_maybe_shared(path).map_err(|_| no_request())?;
        Ok(Some(Target { server, path, authorization: None }))
    }

    /// Returns path and query of `row`, whose first part it is said; `None` if a column is null.
    fn path(&mut self, first: usize, row: usize) -> Result<Option<Bytes>, Failure> {
        self.text.clear();
        for (place, part) in &self.parts[first..] {
            let start = self.text.len();
            if !part.write(row, place.escape(), &mut self.text) {
                return Ok(None);
            }
            check(*place, &self.text[start..])?;
        }
        if !self.write_query(row) {
            return Ok(None);
        }
        if self.text.first() != Some(&b'/') {
            self.paths.extend_from_slice(b"/");
        }
        self.paths.extend_from_slice(&self.text);
        Ok(Some(self.paths.split().freeze()))
    }

    /// Writes the parameters of `row`, values with the text around them percent-encoded; returns false if
    /// one of its columns is null.
    fn write_query(&mut self, row: usize) -> bool {
        for (start, value) in &self.query {
            self.text.extend_from_slice(start);
            let from = self.text.len();
            if !value.write(row, Escape::None, &mut self.text) {
                return false;
            }
            percent_encode_from(from, &mut self.text);
        }
        true
    }

    /// Returns the address of `row`; `None` if one of its columns is null.
    fn url(&mut self, row: usize) -> Result<Option<Url>, Failure> {
        self.text.clear();
        for (place, part) in &self.parts {
            let start = self.text.len();
            if !part.write(row, place.escape(), &mut self.text) {
                return Ok(None);
            }
            if *place == Place::Authority
                && let Some(authority) = of_ipv6(&self.text[start..])
            {
                self.text.truncate(start);
                self.text.extend_from_slice(authority.as_bytes());
            }
            check(*place, &self.text[start..])?;
        }
        let end = self.text.len();
        if !self.write_query(row) {
            return Ok(None);
        }
        let end = if self.address.is_query_apart { end } else { self.text.len() };
        let (url, query) = self.text.split_at(end);
        let mut url = std::str::from_utf8(url)
            .ok()
            .and_then(|text| Url::parse(text).ok())
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| {
                bad_request("`url` with the row's values is not an http or https URL")
            })?;
        if !query.is_empty() {
            // All of it is percent-encoded.
            let query = String::from_utf8_lossy(query);
            let query = match url.query() {
                Some(own) if !own.is_empty() => format!("{own}&{query}"),
                _ => query.into_owned(),
            };
            url.set_query(Some(&query));
        }
        let allowed = self.address.allowed.as_ref();
        if let Some(refusal) = allowed.and_then(|allowed| allowed.refusal(&url)) {
            return Err(bad_request(refusal));
        }
        Ok(Some(url))
    }
}

/// Refuses an address whose path and query are longer than those of a request may be.
fn check_length(path: impl AsRef<[u8]>) -> Result<(), Failure> {
    if path.as_ref().len() <= MOST_BYTES {
        return Ok(());
    }
    Err(bad_request(&format!(
        "the address of the row has more than {MOST_BYTES} bytes behind its host, which no request may \
         have; send long values in a body"
    )))
}

fn no_request() -> Failure {
    bad_request("the row's values make no HTTP request")
}

/// Refuses what would not stay in its place, or not as it is.
fn check(place: Place, written: &[u8]) -> Result<(), Failure> {
    let what = match place {
        Place::Segment | Place::Segments if written.is_empty() => {
            "the row's value leaves a part of the path of `url` empty"
        }
        Place::Segment | Place::Segments if written.split(|it| *it == b'/').any(is_dots) => {
            "the row's value makes a part of the path of `url` `.` or `..`, which leads elsewhere"
        }
        // A reader of addresses would leave them out.
        Place::Base { .. }
            if written.iter().any(u8::is_ascii_control)
                || written.first() == Some(&b' ')
                || written.last() == Some(&b' ') =>
        {
            "the row's address has spaces around it, or control characters in it"
        }
        Place::Base { before_path: true } if written.iter().any(|it| b"?#".contains(it)) => {
            "the row's address has a query or a fragment, and `url` has a path behind it"
        }
        _ => return Ok(()),
    };
    Err(bad_request(what))
}

/// Returns host and port as an address has them where a row names a host of IPv6, with brackets or
/// without.
fn of_ipv6(authority: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(authority).ok()?;
    let (user, text) = text.split_at(text.rfind('@').map_or(0, |at| at + 1));
    // The colons of values are encoded.
    let end = text.rfind(':').unwrap_or(text.len());
    let host = percent_decode_str(&text[..end]).decode_utf8().ok()?;
    let inner = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(&host);
    let address: Ipv6Addr = inner.parse().ok()?;
    Some(format!("{user}[{address}]{}", &text[end..]))
}

/// Whether a segment is `.` or `..`; each point may be percent-encoded.
fn is_dots(segment: &[u8]) -> bool {
    let mut rest = segment;
    let mut dots = 0;
    while !rest.is_empty() && dots < 3 {
        rest = match rest {
            [b'.', rest @ ..] | [b'%', b'2', b'e' | b'E', rest @ ..] => rest,
            _ => return false,
        };
        dots += 1;
    }
    (1..=2).contains(&dots)
}

#[cfg(test)]
mod tests;
