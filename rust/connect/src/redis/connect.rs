// SPDX-License-Identifier: Apache-2.0
//! Opens connections: TCP, TLS or a socket of the machine, then user and database.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use futures_util::FutureExt;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use sparkawait_core::ErrorKind;
use sparkawait_task::error::StartError;
use sparkawait_task::secret::{Secret, show};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::dial::{Addresses, Duplex};
use crate::tls::{Trust, in_words, is_refused_certificate};

use super::failure;
use super::login::{self, Login, Packed};
use super::resp::Reply;
use super::scanner::Scanner;
use super::server::{Address, Endpoint, Server};
use crate::failure::Failure;
use crate::settings::seconds;

/// The most bytes of a reply to what comes first on a connection: a status, or the words of an error.
const GREETING_BYTES: usize = 64 << 10;

/// A server, and what a connection to it needs.
#[derive(Clone)]
pub(super) struct Target {
    /// Where it may be, and which of the described addresses that is; with a sentinel, where those
    /// are who know.
    endpoints: Vec<(Endpoint, usize)>,
    /// Which of them is tried first: the one that was good the last time.
    turn: Arc<AtomicUsize>,
    tls: Option<TlsConnector>,
    login: Arc<Login>,
    connect_timeout: Duration,
    max_reply_bytes: usize,
    /// For messages; without user and password.
    address: String,
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
            let (full, any_host) = (Trust::Authorities, Trust::AuthoritiesOfAnyHost);
            let config = server.tls.config(if server.any_host { any_host } else { full })?;
            target.tls = Some(TlsConnector::from(Arc::new(config)));
        }
        Ok(target)
    }

    /// Reads all but the certificates; tells whether connections are encrypted.
    fn read(server: &Server) -> Result<(Self, bool), StartError> {
        let mut kinds = Vec::new();
        let mut endpoints = Vec::new();
        for (index, url) in server.url.iter().enumerate() {
            let address = Address::parse(url)?;
            endpoints.push((address.endpoint, index));
            kinds.push(address.is_tls);
        }
        let Some((first, _)) = endpoints.first() else {
            return Err(StartError::option("`url` is empty"));
        };
        let is_tls = kinds[0];
        if kinds.iter().any(|it| *it != is_tls) {
            return Err(StartError::option(
                "`url` has addresses of both `redis://` and `rediss://`; give one kind",
            ));
        }
        if !is_tls && server.tls.is_given() {
            return Err(StartError::option(
                "`ca`, `certificate` and `private_key` need a `url` of `rediss://`",
            ));
        }
        let target = Self {
            address: match &server.sentinel {
                Some(name) => format!("sentinel {name}"),
                None => first.to_string(),
            },
            endpoints,
            turn: Arc::default(),
            tls: None,
            login: Arc::new(Login::new(server)),
            connect_timeout: seconds(server.connect_timeout, "connect_timeout")?,
            max_reply_bytes: server.max_reply_bytes,
        };
        Ok((target, is_tls))
    }

    /// The same for another node of the cluster.
    pub(super) fn at(&self, host: &str, port: u16) -> Self {
        self.of((Endpoint::Tcp(host.to_owned(), port), 0))
    }

    /// The same for each of the addresses alone.
    pub(super) fn each(&self) -> impl Iterator<Item = Self> {
        self.endpoints.iter().map(|it| self.of(it.clone()))
    }

    fn of(&self, endpoint: (Endpoint, usize)) -> Self {
        Self { address: endpoint.0.to_string(), endpoints: vec![endpoint], ..self.clone() }
    }

    /// Where the server is.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// The most bytes of one reply.
    pub(super) fn max_reply_bytes(&self) -> usize {
        self.max_reply_bytes
    }

    /// Says that the server is not what it was connected for: another address is tried first.
    pub(super) fn leave(&self) {
        self.turn.fetch_add(1, Ordering::Relaxed);
    }

    /// Opens a connection that is ready for commands, to the first address that gives one.
    pub(super) async fn connect(&self) -> Result<Box<dyn Duplex>, Failure> {
        let (start, count) = (self.turn.load(Ordering::Relaxed), self.endpoints.len());
        let mut failed: Option<Failure> = None;
        for turn in (start..).take(count) {
            let (endpoint, index) = &self.endpoints[turn % count];
            match self.open_as_known(endpoint, *index).await {
                Ok(stream) => {
                    self.turn.store(turn, Ordering::Relaxed);
                    return Ok(stream);
                }
                // One that may pass says more than one that does not.
                Err(failure) if failed.as_ref().is_none_or(|_| failure.may_pass()) => {
                    failed = Some(failure);
                }
                Err(_) => {}
            }
        }
        Err(failed.unwrap_or_else(|| failure::of_refusal(&self.address, "it has no address")))
    }

    /// Opens a connection by one of the described addresses; where it is refused, the secrets are read
    /// again.
    async fn open_as_known(
        &self,
        endpoint: &Endpoint,
        index: usize,
    ) -> Result<Box<dyn Duplex>, Failure> {
        let secrets: Vec<&Secret> = self.login.secrets(index).collect();
        let open = || self.open_by(endpoint, index).boxed();
        let is_refused = |it: &Failure| it.call.kind == ErrorKind::Unauthorized;
        let opened = show(&secrets, open, is_refused, Failure::that_may_pass).await;
        opened.map_err(Failure::before_call)
    }

    async fn open_by(&self, endpoint: &Endpoint, index: usize) -> Result<Box<dyn Duplex>, Failure> {
        match self.login.question(index) {
            None => self.open(endpoint, &self.login.greeting(index)).await,
            Some(question) => self.open_primary(endpoint, index, &question).await,
        }
    }

    /// Takes over the secrets that a task was started with.
    pub(super) fn renew(&self, server: &Server) {
        self.login.renew(server);
    }

    /// Asks a sentinel where the primary is, and connects to that.
    async fn open_primary(
        &self,
        endpoint: &Endpoint,
        index: usize,
        question: &Packed,
    ) -> Result<Box<dyn Duplex>, Failure> {
        let (name, mut primary) = (endpoint.to_string(), None);
        let mut asked = self.open(endpoint, &Packed::default()).await?;
        let asking = exchange(&mut asked, question, |reply| primary = login::address(reply));
        self.within_limit(&name, asking).await?;
        let Some((host, port)) = primary else {
            return Err(failure::of_no_connection(&name, &self.login.unknown()));
        };
        let endpoint = Endpoint::Tcp(host, port);
        let mut stream = self.open(&endpoint, &self.login.greeting(index)).await?;
        let (name, question, mut is_primary) = (endpoint.to_string(), Packed::of(&["ROLE"]), true);
        let asking = exchange(&mut stream, &question, |reply| {
            is_primary = login::is_primary(reply);
        });
        let asking = async {
            match asking.await {
                // A user may not be allowed to ask.
                Err(Broken::Refused(_)) => Ok(()),
                asked => asked,
            }
        };
        self.within_limit(&name, asking).await?;
        if is_primary {
            return Ok(stream);
        }
        Err(failure::of_no_connection(&name, "it is not the primary, though a sentinel says so"))
    }

    /// Opens a connection to one address.
    async fn open(
        &self,
        endpoint: &Endpoint,
        greeting: &Packed,
    ) -> Result<Box<dyn Duplex>, Failure> {
        let name = endpoint.to_string();
        let mut addresses = match endpoint {
            Endpoint::Unix(path) => {
                let connecting = async {
                    let mut stream: Box<dyn Duplex> = Box::new(UnixStream::connect(path).await?);
                    exchange(&mut stream, greeting, |_| ()).await?;
                    Ok(stream)
                };
                return self.within_limit(&name, connecting).await;
            }
            Endpoint::Tcp(host, port) => {
                let looked_up = async { Ok(Addresses::of(host, *port).await?) };
                self.within_limit(&name, looked_up).await?
            }
        };
        loop {
            let before = addresses.len();
            let connecting = async {
                let tcp = addresses.dial().await?;
                let mut stream: Box<dyn Duplex> = match (&self.tls, endpoint) {
                    (Some(tls), Endpoint::Tcp(host, _)) => {
                        let host = ServerName::try_from(host.clone())
                            .map_err(|error| Broken::Tls(io::Error::other(error)))?;
                        Box::new(tls.connect(host, tcp).await.map_err(Broken::Tls)?)
                    }
                    _ => Box::new(tcp),
                };
                exchange(&mut stream, greeting, |_| ()).await?;
                Ok(stream)
            };
            match self.within_limit(&name, connecting).await {
                // Another address of the host may be alive.
                Err(failure) if failure.may_pass() => {
                    if addresses.is_empty() || addresses.len() == before {
                        return Err(failure);
                    }
                }
                done => return done,
            }
        }
    }

    async fn within_limit<T>(
        &self,
        name: &str,
        connecting: impl Future<Output = Result<T, Broken>>,
    ) -> Result<T, Failure> {
        let limit = self.connect_timeout;
        let connected = timeout(limit, connecting).await;
        connected.unwrap_or(Err(Broken::TimedOut(limit))).map_err(|broken| broken.failure(name))
    }
}

/// Why a connection is not ready for commands.
enum Broken {
    TimedOut(Duration),
    Io(io::Error),
    Tls(io::Error),
    /// The server closed it.
    Closed,
    /// The server sent something that is not a reply.
    Garbage,
    /// The server answered with an error.
    Refused(Box<Failure>),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Broken {
    fn failure(self, address: &str) -> Failure {
        match self {
            Self::TimedOut(limit) => {
                failure::of_no_connection(address, &format!("it was not ready within {limit:?}"))
            }
            Self::Io(error) => failure::of_no_connection(address, &error.to_string()),
            // A certificate that is refused stays refused; a connection that breaks may work later.
            Self::Tls(error) => {
                let words = in_words(&error).unwrap_or_else(|| format!("TLS: {error}"));
                let is_name = matches!(error.get_ref(), Some(it) if it.is::<InvalidDnsNameError>());
                if is_name || is_refused_certificate(&error) {
                    failure::of_refusal(address, &words)
                } else {
                    failure::of_no_connection(address, &words)
                }
            }
            Self::Closed => failure::of_no_connection(address, "the server closed it at once"),
            Self::Garbage => failure::of_no_connection(
                address,
                "the server sent something that is not a reply of Redis",
            ),
            Self::Refused(failure) => *failure,
        }
    }
}

/// Sends commands, and passes on their replies.
async fn exchange(
    stream: &mut Box<dyn Duplex>,
    Packed { bytes, count, is_ping }: &Packed,
    mut take: impl FnMut(Reply<'_>),
) -> Result<(), Broken> {
    if *count == 0 {
        return Ok(());
    }
    stream.write_all(bytes).await?;
    stream.flush().await?;
    let (mut unread, mut scanner) = (BytesMut::new(), Scanner::new(GREETING_BYTES));
    for _ in 0..*count {
        loop {
            let (reply, used) = scanner.next(&unread).map_err(|_| Broken::Garbage)?;
            if let Some(Reply::Error(words)) = reply
                && !(*is_ping && failure::is_of_command(words))
            {
                return Err(Broken::Refused(Box::new(failure::of_reply(words, false))));
            }
            let is_answered = reply.is_some();
            if let Some(reply) = reply {
                take(reply);
            }
            unread.advance(used);
            if is_answered {
                break;
            }
            if stream.read_buf(&mut unread).await? == 0 {
                return Err(Broken::Closed);
            }
        }
    }
    Ok(())
}
