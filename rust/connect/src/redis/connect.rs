// SPDX-License-Identifier: Apache-2.0
//! Opens connections: TCP, TLS or a socket of the machine, then user and database.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};
use rustls::pki_types::ServerName;
use sparkawait_task::error::StartError;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::tls::{Trust, in_words, is_refused_certificate};

use super::command::write_argument;
use super::failure::{self, Failure};
use super::resp::Reply;
use super::scanner::Scanner;
use super::server::{ReadFrom, Server, seconds};

/// The most bytes of a reply to what comes first on a connection: a status, or the words of an error.
const GREETING_BYTES: usize = 64 << 10;

/// What a connection reads from and writes to.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A server, and what a connection to it needs.
pub(super) struct Target {
    endpoint: Endpoint,
    tls: Option<TlsConnector>,
    /// Commands that come first, with the number of their replies.
    greeting: (Vec<u8>, usize),
    connect_timeout: Duration,
    max_reply_bytes: usize,
    /// For messages; without user and password.
    address: String,
}

enum Endpoint {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl Target {
    /// Checks what the server's description says, without the authorities of this machine.
    pub(super) fn check(server: &Server) -> Result<(), StartError> {
        Self::read(server)?;
        server.tls.check()?;
        seconds(server.idle_timeout, "idle_timeout").map(drop)
    }

    /// Reads what the server's description says.
    pub(super) fn new(server: &Server) -> Result<Self, StartError> {
        let (mut target, is_tls) = Self::read(server)?;
        if is_tls {
            let config = server.tls.config(Trust::Authorities)?;
            target.tls = Some(TlsConnector::from(Arc::new(config)));
        }
        Ok(target)
    }

    /// Reads all but the certificates; tells whether connections are encrypted.
    fn read(server: &Server) -> Result<(Self, bool), StartError> {
        // The parser's own words could quote the URL, and its password with it.
        let info = server.url.as_str().into_connection_info().map_err(|_| {
            StartError::option(
                "`url` must be like `redis://host:6379/0`, `rediss://..` or `redis+unix:///path`",
            )
        })?;
        let (endpoint, is_tls) = match info.addr() {
            ConnectionAddr::Tcp(host, port) => (Endpoint::Tcp(host.clone(), *port), false),
            ConnectionAddr::TcpTls { host, port, .. } => (Endpoint::Tcp(host.clone(), *port), true),
            ConnectionAddr::Unix(path) => (Endpoint::Unix(path.clone()), false),
            _ => return Err(StartError::option("`url` has an unknown kind of address")),
        };
        let address = match &endpoint {
            Endpoint::Tcp(host, port) => format!("{host}:{port}"),
            Endpoint::Unix(path) => path.display().to_string(),
        };
        if !is_tls && server.tls.is_given() {
            return Err(StartError::option(
                "`ca`, `certificate` and `private_key` need a `url` of `rediss://`",
            ));
        }
        let target = Self {
            endpoint,
            tls: None,
            greeting: greeting(server, &info),
            connect_timeout: seconds(server.connect_timeout, "connect_timeout")?,
            max_reply_bytes: server.max_reply_bytes,
            address,
        };
        Ok((target, is_tls))
    }

    /// The same for another node of the cluster.
    pub(super) fn at(mut self, host: &str, port: u16) -> Self {
        self.endpoint = Endpoint::Tcp(host.to_owned(), port);
        self.address = format!("{host}:{port}");
        self
    }

    /// Where the server is.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// The most bytes of one reply.
    pub(super) fn max_reply_bytes(&self) -> usize {
        self.max_reply_bytes
    }

    /// Opens a connection that is ready for commands.
    pub(super) async fn connect(&self) -> Result<Box<dyn Stream>, Failure> {
        timeout(self.connect_timeout, self.open()).await.unwrap_or_else(|_| {
            let reason = format!("it was not ready within {:?}", self.connect_timeout);
            Err(failure::of_no_connection(&self.address, &reason))
        })
    }

    async fn open(&self) -> Result<Box<dyn Stream>, Failure> {
        let broken =
            |error: std::io::Error| failure::of_no_connection(&self.address, &error.to_string());
        let mut stream: Box<dyn Stream> = match &self.endpoint {
            Endpoint::Unix(path) => Box::new(UnixStream::connect(path).await.map_err(broken)?),
            Endpoint::Tcp(host, port) => {
                let tcp = TcpStream::connect((host.as_str(), *port)).await.map_err(broken)?;
                tcp.set_nodelay(true).map_err(broken)?;
                match &self.tls {
                    None => Box::new(tcp),
                    Some(tls) => Box::new(self.secure(tls, host, tcp).await?),
                }
            }
        };
        self.greet(&mut stream).await?;
        Ok(stream)
    }

    async fn secure(
        &self,
        tls: &TlsConnector,
        host: &str,
        tcp: TcpStream,
    ) -> Result<tokio_rustls::client::TlsStream<TcpStream>, Failure> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| failure::of_refusal(&self.address, &error.to_string()))?;
        tls.connect(name, tcp).await.map_err(|error| {
            let words = in_words(&error).unwrap_or_else(|| format!("TLS: {error}"));
            // A certificate that is refused stays refused; a connection that breaks may work later.
            if is_refused_certificate(&error) {
                failure::of_refusal(&self.address, &words)
            } else {
                failure::of_no_connection(&self.address, &words)
            }
        })
    }

    /// Says who connects, and to which database.
    async fn greet(&self, stream: &mut Box<dyn Stream>) -> Result<(), Failure> {
        let (bytes, replies) = &self.greeting;
        if *replies == 0 {
            return Ok(());
        }
        let broken =
            |error: std::io::Error| failure::of_no_connection(&self.address, &error.to_string());
        stream.write_all(bytes).await.map_err(broken)?;
        stream.flush().await.map_err(broken)?;
        let (mut unread, mut scanner) = (BytesMut::new(), Scanner::new(GREETING_BYTES));
        for _ in 0..*replies {
            loop {
                let (reply, used) = scanner.next(&unread).map_err(|_| {
                    failure::of_no_connection(&self.address, "the server sent what is no reply")
                })?;
                if let Some(Reply::Error(words)) = reply {
                    return Err(failure::of_reply(words, false));
                }
                let is_answered = reply.is_some();
                unread.advance(used);
                if is_answered {
                    break;
                }
                if stream.read_buf(&mut unread).await.map_err(broken)? == 0 {
                    let reason = "the server closed it at once";
                    return Err(failure::of_no_connection(&self.address, reason));
                }
            }
        }
        Ok(())
    }
}

/// Packs the commands that come first on a connection.
fn greeting(server: &Server, info: &ConnectionInfo) -> (Vec<u8>, usize) {
    let settings = info.redis_settings();
    let (mut bytes, mut replies) = (Vec::new(), 0);
    let mut add = |arguments: &[&str]| {
        bytes.extend_from_slice(format!("*{}\r\n", arguments.len()).as_bytes());
        for argument in arguments {
            write_argument(argument.as_bytes(), &mut bytes);
        }
        replies += 1;
    };
    let username = server.username.as_deref().or(settings.username());
    match (username, server.password.as_deref().or(settings.password())) {
        (Some(username), Some(password)) => add(&["AUTH", username, password]),
        (None, Some(password)) => add(&["AUTH", password]),
        (_, None) => {}
    }
    let database = server.database.unwrap_or(settings.db());
    if database != 0 {
        add(&["SELECT", &database.to_string()]);
    }
    if server.read_from == ReadFrom::Replica {
        add(&["READONLY"]);
    }
    (bytes, replies)
}
