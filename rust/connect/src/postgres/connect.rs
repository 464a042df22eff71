// SPDX-License-Identifier: Apache-2.0
//! Opens a connection to the first host of several that is what the address asks for.
//!
//! Each host has its own time. Each address of it that accepts and then says nothing has one, too.
//! A host that could not be reached a moment ago is tried behind the others.

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rand::seq::SliceRandom;
use sparkawait_task::supervision::spawn_aside;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::config::{Host, LoadBalanceHosts, SslMode};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{CancelToken, Client, Config, NoTls, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::dial::Addresses;
use crate::postgres::dsn::Wanted;
use crate::postgres::failure::{CONNECTING, Class, Fault};

/// How long a host that could not be reached is tried behind the others.
const REST: Duration = Duration::from_secs(30);

/// The setting of a connection that must not change anything.
pub(crate) const READ_ONLY: &str = " -c default_transaction_read_only=on";

/// A setting of our own behind those that a connection is opened with: where the server has it, it
/// has taken the others. No server has it by itself, as it may have each of the others.
pub(crate) const SEEN: &str = " -c sparkawait.settings=on";

/// Asks for that setting.
const IS_SEEN: &str = "select pg_catalog.current_setting('sparkawait.settings', true)";

/// Sets a connection to read only if it has that setting.
const SET_READ_ONLY: &str = "; select pg_catalog.set_config('default_transaction_read_only', 'on', \
                             false) where pg_catalog.current_setting('sparkawait.settings', true) = 'on'";

/// Asks what kind of server there is.
const KIND: &str = "show transaction_read_only; select pg_catalog.pg_is_in_recovery(); ";

/// What a connection is asked for and told before it is used.
pub(crate) struct Greeting {
    /// What kind of server is wanted.
    pub(crate) wanted: Wanted,
    /// Whether it is set to read only, once its kind is known.
    pub(crate) is_set_read_only: bool,
}

/// A connection.
pub(crate) struct Opened {
    pub(crate) client: Client,
    /// Ends the task that serves it.
    pub(crate) connection: AbortHandle,
    /// Where it leads.
    pub(crate) place: Place,
}

/// Where a connection leads.
#[derive(Clone)]
pub(crate) enum Place {
    /// An address, and the name that its certificate should have.
    Tcp(SocketAddr, String),
    Unix(PathBuf),
}

/// A host of the address.
struct Door {
    host: Host,
    /// What its certificate should have.
    name: String,
    port: u16,
}

/// The hosts that could not be reached, and when.
#[derive(Default)]
pub(crate) struct Unreachable(Mutex<HashMap<usize, Instant>>);

impl Unreachable {
    /// Puts hosts that could not be reached a moment ago behind the others.
    fn sort(&self, hosts: &mut [usize]) {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        since.retain(|_, at| at.elapsed() < REST);
        hosts.sort_by_key(|host| since.contains_key(host));
    }

    fn note(&self, host: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(host, Instant::now());
    }
}

/// Returns the hosts of an address; the parser has seen to it that their numbers go together.
fn doors(config: &Config) -> Vec<Door> {
    let (hosts, addresses, ports) =
        (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let door = |index: usize| {
        let address = addresses.get(index).map(|it| Host::Tcp(it.to_string()));
        let host = address.or_else(|| hosts.get(index).cloned())?;
        let name = match hosts.get(index).unwrap_or(&host) {
            Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            Host::Unix(_) => String::new(),
        };
        let port = ports.get(index).or(ports.first()).copied().unwrap_or(5432);
        Some(Door { host, name, port })
    };
    (0..hosts.len().max(addresses.len())).filter_map(door).collect()
}

/// Opens a connection, served by a tokio task of its own until the client is dropped.
pub(crate) async fn connect(
    config: &Config,
    tls: &MakeRustlsConnect,
    greeting: &Greeting,
    limit: Duration,
    unreachable: &Unreachable,
) -> Result<Opened, Fault> {
    let limit = config.get_connect_timeout().copied().unwrap_or(limit);
    let doors = doors(config);
    let mut order: Vec<usize> = (0..doors.len()).collect();
    if config.get_load_balance_hosts() == LoadBalanceHosts::Random {
        order.shuffle(&mut rand::rng());
    }
    unreachable.sort(&mut order);
    let mut failed: Option<Fault> = None;
    for wanted in greeting.wanted.turns() {
        for host in &order {
            let opening = Opening { config, tls, greeting, wanted: *wanted, limit };
            match opening.open(&doors[*host]).await {
                Ok(opened) => return Ok(opened),
                Err(failure) => {
                    if failure.is_transient() && !failure.is(Class::OfAnotherKind) {
                        unreachable.note(*host);
                    }
                    // A refused password says most, since it may have changed; then what may pass.
                    let says_more = |it: &Fault| {
                        !it.is_of_caller()
                            && (failure.is_of_caller()
                                || failure.is_transient()
                                || !it.is_transient())
                    };
                    if failed.as_ref().is_none_or(says_more) {
                        failed = Some(failure);
                    }
                }
            }
        }
    }
    let failure = failed.unwrap_or_else(|| Fault::permanent("`dsn` names no host"));
    Err(if doors.len() > 1 { failure.of_hosts(doors.len()) } else { failure })
}

/// A host that is being connected to.
struct Opening<'a> {
    config: &'a Config,
    tls: &'a MakeRustlsConnect,
    greeting: &'a Greeting,
    wanted: Wanted,
    limit: Duration,
}

impl Opening<'_> {
    async fn open(&self, door: &Door) -> Result<Opened, Fault> {
        let host = match &door.host {
            Host::Tcp(host) => host,
            #[cfg(unix)]
            Host::Unix(directory) => return self.open_unix(directory, door.port).await,
        };
        let start = Instant::now();
        let looked_up = self.until(start, Addresses::of(host, door.port)).await?;
        let mut addresses = looked_up.map_err(|error| Fault::of_io(&error))?;
        loop {
            let start = Instant::now();
            let dialed = self.until(start, addresses.dial()).await?;
            let stream = dialed.map_err(|error| Fault::of_io(&error))?;
            let address = stream.peer_addr().map_err(|error| Fault::of_io(&error))?;
            let place = Place::Tcp(address, door.name.clone());
            let opened = self.until(start, self.greet(stream, place, self.config)).await;
            match opened.and_then(|it| it) {
                // Another address may speak, or be of the kind that is wanted.
                Err(failure) if failure.is_transient() && !addresses.is_empty() => {}
                done => return done,
            }
        }
    }

    #[cfg(unix)]
    async fn open_unix(&self, directory: &Path, port: u16) -> Result<Opened, Fault> {
        let path = directory.join(format!(".s.PGSQL.{port}"));
        let mut config = self.config.clone();
        if config.get_ssl_mode() == SslMode::Prefer {
            // No server encrypts what stays on the machine.
            config.ssl_mode(SslMode::Disable);
        }
        let opening = async {
            let opened = UnixStream::connect(&path).await;
            let stream = opened.map_err(|error| Fault::of_io(&error))?;
            self.greet(stream, Place::Unix(path.clone()), &config).await
        };
        self.until(Instant::now(), opening).await?
    }

    /// Waits until the time for an address has passed.
    async fn until<T>(&self, start: Instant, work: impl Future<Output = T>) -> Result<T, Fault> {
        let limit = self.limit;
        timeout_at(start + limit, work).await.map_err(|_| {
            Fault::unsent(format!(
                "PostgreSQL: connecting took longer than {limit:?}; see `connect_timeout`"
            ))
        })
    }

    /// Logs in over a stream, and looks at which kind of server it leads to.
    async fn greet<S>(&self, stream: S, place: Place, config: &Config) -> Result<Opened, Fault>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let tls = MakeTlsConnect::<S>::make_tls_connect(&mut self.tls.clone(), place.name());
        let tls = tls.map_err(|error| Fault::permanent(format!("PostgreSQL: TLS: {error}")))?;
        let connected = config.connect_raw(stream, tls).await;
        let (client, connection) = connected.map_err(|error| Fault::of(CONNECTING, &error))?;
        let connection = spawn_aside(&Handle::current(), "postgres.connection", async move {
            // Its calls get the error too.
            if let Err(error) = connection.await {
                tracing::debug!("a connection to PostgreSQL ended: {error}");
            }
        });
        let unused = Unused(connection);
        self.check(&client).await?;
        Ok(Opened { client, connection: unused.take(), place })
    }

    /// Looks at which kind of server it is, and whether the connection has the settings that it was
    /// opened with. A pooler may have left them out: then they would not hold, and what is set later
    /// would be left behind for others.
    async fn check(&self, client: &Client) -> Result<(), Fault> {
        let has_settings =
            self.config.get_options().is_some_and(|it| it.ends_with(SEEN.trim_start()));
        let asks = if self.wanted == Wanted::Any { "" } else { KIND };
        let is_seen = if has_settings { IS_SEEN } else { "" };
        if asks.is_empty() && is_seen.is_empty() {
            return Ok(());
        }
        let set = if self.greeting.is_set_read_only { SET_READ_ONLY } else { "" };
        let answers = client.simple_query(&format!("{asks}{is_seen}{set}")).await;
        let answers = answers.map_err(|error| Fault::of(CONNECTING, &error))?;
        let mut said = answers.iter().filter_map(|answer| match answer {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        let (is_read_only, is_standby) = if asks.is_empty() {
            (false, false)
        } else {
            (said.next() == Some("on"), said.next() == Some("t"))
        };
        if has_settings && said.next() != Some("on") {
            return Err(Fault::without_settings());
        }
        if asks.is_empty() || self.wanted.is_met(is_read_only, is_standby) {
            return Ok(());
        }
        let kind = if is_standby { "a standby" } else { "a primary" };
        let state = if is_read_only { "read-only" } else { "read-write" };
        Err(Fault::of_another_kind(format!(
            "PostgreSQL: the server is {kind} and {state}, which `target_session_attrs={}` does not take",
            self.wanted.word()
        )))
    }
}

/// A connection that is ended unless somebody takes it.
struct Unused(AbortHandle);

impl Unused {
    fn take(self) -> AbortHandle {
        let connection = self.0.clone();
        std::mem::forget(self);
        connection
    }
}

impl Drop for Unused {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Place {
    /// The name that the certificate should have.
    fn name(&self) -> &str {
        match self {
            Self::Tcp(_, name) => name,
            #[cfg(unix)]
            Self::Unix(_) => "",
        }
    }

    /// Asks for the end of what a connection that leads here is at; it may be at something else by
    /// then. Returns when the server has heard it.
    pub(crate) async fn cancel(
        &self,
        connection: &CancelToken,
        tls: &MakeRustlsConnect,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        match self {
            Self::Tcp(address, name) => {
                let stream = UntilClosed(TcpStream::connect(address).await?);
                let tls = MakeTlsConnect::<UntilClosed<TcpStream>>::make_tls_connect(
                    &mut tls.clone(),
                    name,
                )?;
                Ok(connection.cancel_query_raw(stream, tls).await?)
            }
            #[cfg(unix)]
            Self::Unix(path) => {
                let stream = UntilClosed(UnixStream::connect(path).await?);
                Ok(connection.cancel_query_raw(stream, NoTls).await?)
            }
        }
    }
}

/// A stream that is shut down only when its peer has closed it.
///
/// That is how a server says that it has passed on what it was asked to cancel.
struct UntilClosed<S>(S);

impl<S: AsyncRead + Unpin> AsyncRead for UntilClosed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for UntilClosed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut bytes = [0; 64];
        loop {
            let mut read = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut self.0).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                return Pin::new(&mut self.0).poll_shutdown(context);
            }
        }
    }
}
