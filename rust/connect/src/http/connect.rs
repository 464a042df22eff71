// SPDX-License-Identifier: Apache-2.0
//! How a connection is made: names, addresses, proxies, TLS.

use std::error::Error as StdError;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderValue, PROXY_AUTHORIZATION};
use http::{Request, StatusCode};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::client::proxy::matcher::Intercept;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use super::guard::{Forbidden, forbidden, leave_out_forbidden};
use super::http1::Line;
use super::http2::{Pings, SharedLine, Stream};
use super::origin::Origin;
use super::protocol::Version;
use super::proxies::is_spoken;
use super::wire::{Open, Wire};
use crate::dial::{Addresses, Duplex};
use crate::pool::{Condition, Connection};

pub(super) type Cause = Box<dyn StdError + Send + Sync>;

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum NoConnection {
    TimedOut,
    Forbidden(Forbidden),
    /// No other attempt helps.
    Refused {
        what: String,
        /// Whether it is about who calls.
        is_of_caller: bool,
    },
    Failed(Cause),
}

/// A connection that was made.
pub(super) enum Made {
    Line(Line),
    Shared(Arc<SharedLine>),
}

impl Connection for Made {
    type Room = Stream;

    fn condition(&mut self) -> Condition {
        let is_good = match self {
            Self::Line(line) => line.is_usable(),
            Self::Shared(line) => !line.is_leaving(),
        };
        if is_good { Condition::Good } else { Condition::Closed }
    }

    fn room(&self) -> usize {
        match self {
            Self::Line(_) => 1,
            Self::Shared(line) => line.streams(),
        }
    }

    fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    fn enter(&mut self) -> Option<Stream> {
        match self {
            Self::Line(_) => None,
            Self::Shared(line) => line.take(),
        }
    }

    fn idle_since(&self, kept: Instant) -> Option<Instant> {
        match self {
            Self::Line(_) => Some(kept),
            Self::Shared(line) => line.idle_since(),
        }
    }
}

/// Makes connections, all in the same way.
pub(super) struct Connector {
    limit: Duration,
    version: Version,
    streams: usize,
    pings: Pings,
    tls: TlsConnector,
    /// For proxies, which speak HTTP/1.1.
    proxy_tls: TlsConnector,
    pub(super) open: Arc<AtomicUsize>,
}

impl Connector {
    pub(super) fn new(
        tls: &ClientConfig,
        version: Version,
        limit: Duration,
        streams: usize,
        pings: Pings,
    ) -> Self {
        let with = |protocols: &[&[u8]]| {
            let mut tls = tls.clone();
            tls.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
            TlsConnector::from(Arc::new(tls))
        };
        Self {
            limit,
            version,
            streams,
            pings,
            tls: with(version.protocols()),
            proxy_tls: with(Version::Http1.protocols()),
            open: Arc::default(),
        }
    }

    /// Makes a connection to `origin`.
    pub(super) async fn connect(&self, origin: &Origin) -> Result<Made, NoConnection> {
        match timeout(self.limit, self.make(origin)).await {
            Ok(made) => made,
            Err(_) => Err(NoConnection::TimedOut),
        }
    }

    async fn make(&self, origin: &Origin) -> Result<Made, NoConnection> {
        let mut io: Box<dyn Duplex> = match &origin.proxy {
            None => Box::new(open(origin.host(), origin.port, origin.is_of_row).await?),
            Some(proxy) => self.through(proxy, origin).await?,
        };
        let mut speaks_http2 = self.version == Version::Http2;
        if origin.is_https {
            let is_negotiated;
            (io, is_negotiated) = encrypt(&self.tls, origin.host(), io).await?;
            speaks_http2 |= is_negotiated;
        }
        let wire = Wire::new(io, Open::new(&self.open));
        if speaks_http2 {
            let shared = SharedLine::new(wire, self.streams, self.pings).await;
            return shared.map(Made::Shared).map_err(|error| NoConnection::Failed(error.into()));
        }
        let line = Line::new(wire, origin.has_many_headers.load(Ordering::Relaxed))
            .await
            .map_err(|error| NoConnection::Failed(error.into()))?;
        Ok(Made::Line(line))
    }

    /// Opens a connection that leads through a proxy, which looks names up itself.
    async fn through(
        &self,
        proxy: &Intercept,
        origin: &Origin,
    ) -> Result<Box<dyn Duplex>, NoConnection> {
        if origin.is_of_row
            && let Some(forbidden) = origin.host().parse().ok().and_then(forbidden)
        {
            return Err(NoConnection::Forbidden(forbidden));
        }
        let uri = proxy.uri();
        let scheme = uri.scheme_str().unwrap_or("http");
        if !is_spoken(scheme) {
            let what = format!(
                "the environment names a proxy of `{scheme}`, which is not spoken here; give \
                 client=sa.http.Client(proxy=..), False for none"
            );
            return Err(NoConnection::Refused { what, is_of_caller: false });
        }
        let is_https = uri.scheme_str() == Some("https");
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        let mut io: Box<dyn Duplex> = Box::new(open(host, port, false).await?);
        if is_https {
            io = encrypt(&self.proxy_tls, host, io).await?.0;
        }
        if !origin.is_https {
            return Ok(io);
        }
        tunnel(io, origin, proxy.basic_auth()).await
    }
}

/// Has a proxy lead a connection on to `origin`.
///
/// Not the `Tunnel` of hyper-util, which does not tell with what status a proxy refuses.
async fn tunnel(
    io: Box<dyn Duplex>,
    origin: &Origin,
    auth: Option<&HeaderValue>,
) -> Result<Box<dyn Duplex>, NoConnection> {
    let failed = |error: hyper::Error| NoConnection::Failed(error.into());
    let to = format!("{}:{}", origin.authority.host(), origin.port);
    let mut request = Request::connect(&to).header(HOST, &to);
    if let Some(auth) = auth {
        request = request.header(PROXY_AUTHORIZATION, auth);
    }
    let request =
        request.body(Empty::<Bytes>::new()).map_err(|error| NoConnection::Failed(error.into()))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(io)).await.map_err(failed)?;
    let asking = async move {
        let response = sender.send_request(request).await.map_err(failed)?;
        if !response.status().is_success() {
            return Err(refused(response.status()));
        }
        hyper::upgrade::on(response).await.map_err(failed)
    };
    // The connection does what is asked of it, and hands over at its end.
    let serving = async {
        drop(connection.with_upgrades().await);
        pending().await
    };
    let through = tokio::select! {
        through = asking => through?,
        never = serving => never,
    };
    Ok(Box::new(TokioIo::new(through)))
}

fn refused(status: StatusCode) -> NoConnection {
    let next = match status {
        StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
            "; give its address with user and password, `http://user:password@proxy:port`"
        }
        _ => "",
    };
    let what = format!("the proxy answered {status} to CONNECT{next}");
    let is_of_caller =
        matches!(status, StatusCode::FORBIDDEN | StatusCode::PROXY_AUTHENTICATION_REQUIRED);
    if is_of_caller {
        NoConnection::Refused { what, is_of_caller }
    } else {
        NoConnection::Failed(what.into())
    }
}

/// Opens a connection to a host; one that a row names may not be inside.
async fn open(host: &str, port: u16, is_of_row: bool) -> Result<TcpStream, NoConnection> {
    let mut addresses = Addresses::of(host, port).await?;
    if is_of_row && let Some(forbidden) = leave_out_forbidden(&mut addresses) {
        return Err(NoConnection::Forbidden(forbidden));
    }
    Ok(addresses.dial().await?)
}

/// Encrypts a connection; returns whether HTTP/2 was negotiated.
async fn encrypt(
    tls: &TlsConnector,
    host: &str,
    io: Box<dyn Duplex>,
) -> Result<(Box<dyn Duplex>, bool), NoConnection> {
    let failed = |error: Cause| NoConnection::Failed(error);
    let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(error.into()))?;
    let stream = tls.connect(name, io).await.map_err(|error| failed(error.into()))?;
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    Ok((Box::new(stream), is_http2))
}

impl From<io::Error> for NoConnection {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut => Self::TimedOut,
            _ => Self::Failed(error.into()),
        }
    }
}

impl NoConnection {
    /// Whether this process has no file left to open.
    pub(super) fn has_no_files(&self) -> bool {
        let Self::Failed(cause) = self else { return false };
        let code = io_error(cause.as_ref()).and_then(io::Error::raw_os_error);
        code == Some(rustix::io::Errno::MFILE.raw_os_error())
    }
}

/// Finds what the system said among what an error was caused by.
fn io_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a io::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests;
