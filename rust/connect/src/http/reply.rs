// SPDX-License-Identifier: Apache-2.0
//! A request on its way, and the response as it comes.

use std::sync::Arc;

use bytes::Bytes;
use h2::RecvStream;
use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, HOST, PROXY_AUTHORIZATION, TRANSFER_ENCODING};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use tokio::time::Instant;

use super::clients::{Place, StreamOf, Taken};
use super::connect::NoConnection;
use super::http1::{Line, Lost};
use super::http2::{self, Upload};
use super::packed::{TAKEN, Unpacked, Unpacker, may_ask};
use super::watch::Watch;
use crate::pool::Age;

/// A request, in parts that most requests share. It is put together when it is sent, and once more
/// before each retry.
#[derive(Clone)]
pub(super) struct Outgoing {
    pub(super) method: Method,
    pub(super) place: Arc<Place>,
    pub(super) path: PathAndQuery,
    /// Headers that are the same in all requests.
    pub(super) fixed: Arc<HeaderMap>,
    /// Those of this one.
    pub(super) own: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: Option<Bytes>,
    /// Whether a server asked for it, and not a row.
    pub(super) is_redirected: bool,
}

/// A response whose head has come.
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    body: Flow,
    /// Bytes that the body is said to have.
    pub(super) length: Option<u64>,
    unpacker: Option<Unpacker>,
    /// Whether anything of the body came.
    has_begun: bool,
    place: Arc<Place>,
}

enum Flow {
    One {
        line: Line,
        age: Age,
        body: Incoming,
    },
    Shared {
        stream: StreamOf,
        body: RecvStream,
    },
    /// It was read to its end.
    Ended,
}

impl Outgoing {
    #[cfg(test)]
    pub(super) fn for_test() -> Self {
        let url = url::Url::parse("http://host").expect("an address");
        let place = super::clients::Clients::for_test().place(&url, false).expect("a server");
        let (path, fixed) = (PathAndQuery::from_static("/"), Arc::default());
        let method = Method::POST;
        Self { method, place, path, fixed, own: Vec::new(), body: None, is_redirected: false }
    }

    /// Gives it a header of its own, in place of the one that it has by this name.
    pub(super) fn set(&mut self, name: HeaderName, value: HeaderValue) {
        match self.own.iter_mut().find(|(own, _)| *own == name) {
            Some((_, own)) => *own = value,
            None => self.own.push((name, value)),
        }
    }

    fn headers(&self, takes_packed: bool) -> HeaderMap {
        let mut headers = HeaderMap::clone(&self.fixed);
        for (name, value) in &self.own {
            headers.insert(name.clone(), value.clone());
        }
        if takes_packed && may_ask(&headers) {
            headers.insert(ACCEPT_ENCODING, TAKEN);
        }
        if let Some(length) = self.length() {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        headers
    }

    /// The length of its body. Methods with a body name that of an empty one, too: many servers
    /// answer 411 otherwise.
    fn length(&self) -> Option<usize> {
        let has_body = matches!(self.method, Method::POST | Method::PUT | Method::PATCH);
        let length = self.body.as_ref().map_or(0, Bytes::len);
        (has_body || length > 0).then_some(length)
    }

    /// The whole address.
    pub(super) fn uri(&self) -> Option<Uri> {
        let mut parts = self.place.origin.uri.clone().into_parts();
        parts.path_and_query = Some(self.path.clone());
        Uri::from_parts(parts).ok()
    }

    fn for_line(&self, takes_packed: bool) -> Option<Request<Full<Bytes>>> {
        let origin = &self.place.origin;
        let mut request = Request::new(self.body.clone().map_or_else(Full::default, Full::new));
        *request.method_mut() = self.method.clone();
        *request.headers_mut() = self.headers(takes_packed);
        let headers = request.headers_mut();
        // In a request that names its host itself there is a value already.
        if headers.get(HOST).is_none_or(HeaderValue::is_empty) {
            headers.insert(HOST, origin.host_header.clone());
        }
        *request.uri_mut() = if origin.is_forwarded() {
            if let Some(auth) = origin.proxy.as_ref().and_then(|it| it.basic_auth()) {
                request.headers_mut().insert(PROXY_AUTHORIZATION, auth.clone());
            }
            self.uri()?
        } else {
            Uri::from(self.path.clone())
        };
        Some(request)
    }

    fn for_stream(&self, takes_packed: bool) -> Option<Request<()>> {
        let mut headers = self.headers(takes_packed);
        let mut parts = self.uri()?.into_parts();
        // The address says it, or what the user calls the server (RFC 9113, 8.3.1).
        if let Some(host) = headers.remove(HOST).filter(|it| !it.is_empty()) {
            parts.authority = Some(Authority::try_from(host.as_bytes()).ok()?);
        }
        let mut request = Request::new(());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = Uri::from_parts(parts).ok()?;
        *request.headers_mut() = headers;
        Some(request)
    }

    /// Sends it over a connection, and waits for the head of the response.
    pub(super) async fn over(
        &self,
        taken: Taken,
        takes_packed: bool,
        most: usize,
        watch: &Arc<Watch>,
    ) -> Result<Reply, Broken> {
        let (head, body) = match taken {
            Taken::Line(mut line, age) => {
                let request = self.for_line(takes_packed).ok_or(Broken::NoRequest)?;
                // While its body is on its way the server is not silent, nor while the head comes.
                let moves = line.moves();
                let sent = watch.wait_while(|| moves.count(), line.send(request)).await;
                let sent = sent.map_err(|_| Broken::Silent)?;
                match sent {
                    Ok(response) => {
                        let (head, body) = response.into_parts();
                        (head, Flow::One { line, age, body })
                    }
                    Err(lost) => {
                        return Err(Broken::OfLine { lost, idle_since: age.idle_since() });
                    }
                }
            }
            Taken::Stream(mut stream) => {
                let request = self.for_stream(takes_packed).ok_or(Broken::NoRequest)?;
                let body = self.body.clone().map(|it| Upload::new(it, watch));
                let sent = stream.stream.send(request, body);
                let sent = watch.wait(sent).await.map_err(|_| Broken::Silent)?;
                let (head, body) = sent.map_err(Broken::OfStream)?.into_parts();
                (head, Flow::Shared { stream, body })
            }
        };
        let mut headers = head.headers;
        self.place.note(&headers);
        let is_followed = has_forbidden_body(head.status, &headers);
        let unpacker = if takes_packed { Unpacker::of(&mut headers, most) } else { None };
        let length = headers.get(CONTENT_LENGTH).and_then(|it| it.to_str().ok()?.parse().ok());
        let (place, status, has_begun) = (Arc::clone(&self.place), head.status, false);
        let mut reply = Reply { status, headers, body, length, unpacker, has_begun, place };
        if reply.is_empty() {
            if is_followed && matches!(reply.body, Flow::One { .. }) {
                // What follows would be taken for the answer to the next request.
                reply.body = Flow::Ended;
            }
            // Of HEAD the headers tell of a body that does not come.
            reply.length = None;
            reply.end();
        }
        Ok(reply)
    }
}

/// Whether a response tells of a body that responses of its status do not have.
fn has_forbidden_body(status: StatusCode, headers: &HeaderMap) -> bool {
    let is_without = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let is_long = |length: &HeaderValue| length.as_bytes().iter().any(|digit| *digit != b'0');
    is_without
        && (headers.contains_key(TRANSFER_ENCODING)
            || headers.get_all(CONTENT_LENGTH).iter().any(is_long))
}

/// Why a call has no head of a response.
#[derive(Debug)]
pub(super) enum Broken {
    NoConnection(NoConnection),
    /// The parts make no request.
    NoRequest,
    /// Nothing came within `read_timeout`.
    Silent,
    /// Over HTTP/1.1; since when the connection was idle before, if it is not a new one.
    OfLine {
        lost: Lost,
        idle_since: Option<Instant>,
    },
    /// Over HTTP/2.
    OfStream(http2::Broken),
}

/// Why a body did not come to its end.
#[derive(Debug)]
pub(super) enum Cut {
    Silent,
    TooLarge,
    /// It is packed in a coding of this name, which nobody knows here.
    Coding(String),
    /// It is not packed as it should be.
    Packed(std::io::Error),
    Lost(Box<dyn std::error::Error + Send + Sync>),
}

impl Reply {
    /// Whether nothing holds others up where it is not read: over HTTP/2 it would.
    pub(super) fn may_wait(&self) -> bool {
        matches!(self.body, Flow::One { .. })
    }

    /// Whether it came encrypted.
    pub(super) fn is_https(&self) -> bool {
        self.place.origin.is_https
    }

    fn is_empty(&self) -> bool {
        match &self.body {
            Flow::One { body, .. } => body.is_end_stream(),
            Flow::Shared { body, .. } => body.is_end_stream(),
            Flow::Ended => true,
        }
    }

    /// Lets go of the connection, which serves the next call.
    fn end(&mut self) {
        match std::mem::replace(&mut self.body, Flow::Ended) {
            Flow::One { line, age, .. } => self.place.keep(line, age),
            Flow::Shared { mut stream, .. } => stream.stream.is_answered(),
            Flow::Ended => {}
        }
    }

    /// Waits for the next bytes of the body, unpacked; `None` at its end.
    pub(super) async fn chunk(&mut self, watch: &Watch) -> Result<Option<Bytes>, Cut> {
        loop {
            let next = match &mut self.body {
                Flow::One { line, body, .. } => {
                    let next = watch.wait(line.chunk(body)).await;
                    next.map_err(|_| Cut::Silent)?.transpose().map_err(|it| Cut::Lost(it.into()))
                }
                Flow::Shared { body, .. } => {
                    let next = watch.wait(http2::chunk(body)).await;
                    next.map_err(|_| Cut::Silent)?.transpose().map_err(|it| Cut::Lost(it.into()))
                }
                Flow::Ended => return Ok(None),
            };
            let Some(bytes) = next? else {
                self.end();
                let Some(mut unpacker) = self.unpacker.take().filter(|_| self.has_begun) else {
                    return Ok(None);
                };
                let rest = unpacker.finish().map_err(cut)?;
                return Ok(Some(Bytes::from(rest)).filter(|it| !it.is_empty()));
            };
            self.has_begun |= !bytes.is_empty();
            let bytes = match &mut self.unpacker {
                Some(unpacker) => Bytes::from(unpacker.unpack(&bytes).map_err(cut)?),
                None => bytes,
            };
            if !bytes.is_empty() {
                return Ok(Some(bytes));
            }
        }
    }
}

fn cut(unpacked: Unpacked) -> Cut {
    match unpacked {
        Unpacked::TooLarge => Cut::TooLarge,
        Unpacked::Unknown(coding) => Cut::Coding(coding),
        Unpacked::Broken(error) => Cut::Packed(error),
    }
}
