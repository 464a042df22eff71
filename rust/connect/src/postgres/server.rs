// SPDX-License-Identifier: Apache-2.0
//! Which server is connected to, and how.

use std::collections::BTreeMap;
use std::iter::once;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use serde::Deserialize;
use sparkawait_task::error::StartError;
use sparkawait_task::secret::{Secret, Sources, show};
use tokio::time::timeout;
use tokio_postgres::CancelToken;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::postgres::connect::{Greeting, Opened, Place, READ_ONLY, SEEN, Unreachable, connect};
use crate::postgres::dsn::{Dsn, Wanted};
use crate::postgres::failure::Fault;
use crate::settings::{key_of, seconds};
use crate::tls::TlsSettings;

/// A server and the settings of connections to it.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerConfig {
    /// URL or `key=value` pairs; may have a password.
    dsn: String,
    /// The password, where the address does not have it.
    password: Option<String>,
    /// What tells the secrets among them from others, whatever they are at the moment.
    #[serde(default)]
    sources: BTreeMap<String, String>,
    /// What reads them again.
    #[serde(skip)]
    pub(crate) readers: Sources,
    #[serde(default)]
    tls: TlsSettings,
    /// Whether certificates were given, though the driver may not have them.
    #[serde(default)]
    is_certified: bool,
    /// Longest time to connect in, with encryption and authentication.
    connect_seconds: f64,
    /// What the server allows a statement; `None`: its own setting.
    statement_seconds: Option<f64>,
    /// Whether statements may change data.
    pub(crate) writes: bool,
    /// Connections in this process.
    pub(crate) connections: usize,
    /// Whether the server keeps prepared statements and settings for a connection.
    pub(crate) prepare: bool,
}

// Shows nothing of the address, which has a password.
sparkawait_core::opaque_debug!(ServerConfig, connections: connections);

impl ServerConfig {
    /// Checks the settings, without the authorities of this machine.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        self.read()?;
        self.tls.check()?;
        self.limits().map(drop)
    }

    /// Names the connections: equal for settings whose connections are each other's equals, whatever
    /// their passwords are at the moment and their statements may take.
    pub(crate) fn identity(&self) -> Result<String, StartError> {
        // Without the options that are added, which have the limit of statements.
        let is_certified = self.is_certified || self.tls.is_given();
        let Dsn { config, trust, wanted } = Dsn::read(&self.dsn, &self.tls, is_certified)?;
        let has_source = |option| self.sources.contains_key(option);
        let of_dsn = config.get_password().filter(|_| !has_source("dsn"));
        let password = self.password.as_deref().filter(|_| !has_source("password"));
        // Its own text has no password.
        let address = format!("{config:?} {trust:?} {wanted:?}");
        let settings = (self.connect_seconds, self.statement_seconds.is_some(), self.writes);
        let pool = (self.connections, self.prepare, &self.tls);
        key_of(&(address, of_dsn, password, &self.sources, settings, pool))
    }

    /// Reads how the statements of a lookup are sent.
    pub(crate) fn rules(&self) -> Result<Rules, StartError> {
        let (_, silence) = self.limits()?;
        let begin = if self.prepare { None } else { self.begin() };
        Ok(Rules { begin, milliseconds: self.statement_milliseconds(), silence })
    }

    /// Reads the settings.
    pub(crate) fn server(&self) -> Result<Server, StartError> {
        let Dsn { trust, wanted, .. } = self.read()?;
        let (limit, _) = self.limits()?;
        let is_set_read_only = self.prepare && !self.writes && wanted != Wanted::Any;
        Ok(Server {
            secrets: self.secrets(),
            config: self.clone(),
            greeting: Greeting { wanted, is_set_read_only },
            unreachable: Unreachable::default(),
            tls: MakeRustlsConnect::new(self.tls.config(trust)?),
            keeps_statements: self.prepare,
            milliseconds: self.statement_milliseconds(),
            limit,
        })
    }

    fn secrets(&self) -> Secrets {
        let reader = |option| self.readers.get(option).map(Arc::clone);
        Secrets {
            dsn: Secret::new(&self.dsn, reader("dsn")),
            password: self.password.as_deref().map(|it| Secret::new(it, reader("password"))),
        }
    }

    /// Reads the address.
    fn read(&self) -> Result<Dsn, StartError> {
        self.read_text(&self.dsn)
    }

    fn read_text(&self, text: &str) -> Result<Dsn, StartError> {
        let is_certified = self.is_certified || self.tls.is_given();
        let mut dsn = Dsn::read(text, &self.tls, is_certified)?;
        let config = &mut dsn.config;
        if self.prepare {
            let (given, milliseconds) = (config.get_options(), self.statement_milliseconds());
            let options = self.options(given.unwrap_or_default(), dsn.wanted, milliseconds);
            if !options.is_empty() {
                config.options(options.trim());
            }
        }
        if config.get_application_name().is_none() {
            config.application_name("sparkawait");
        }
        Ok(dsn)
    }

    /// Reads how long to connect, and how long a server may be silent.
    fn limits(&self) -> Result<(Duration, Option<Duration>), StartError> {
        let limit = seconds(self.connect_seconds, "connect_timeout")?;
        let statement = self.statement_seconds.map(|it| seconds(it, "statement_timeout"));
        Ok((limit, statement.transpose()?.map(|statement| statement.saturating_add(limit))))
    }

    /// Returns what a connection that keeps its settings is opened with.
    fn options(&self, given: &str, wanted: Wanted, milliseconds: Option<u64>) -> String {
        let mut options = given.to_owned();
        if !self.writes && wanted == Wanted::Any {
            options.push_str(READ_ONLY);
        }
        options.extend(milliseconds.map(|limit| format!(" -c statement_timeout={limit}ms")));
        // A primary that is set to read only would be taken for a standby: that comes once its kind is
        // known.
        if !options.is_empty() || !self.writes {
            options.push_str(SEEN);
        }
        options
    }

    /// Returns what opens a transaction with the same settings; `None`: there are none.
    fn begin(&self) -> Option<String> {
        let mut text = if self.writes { "begin" } else { "begin read only" }.to_owned();
        let limit = self.statement_milliseconds();
        text.extend(limit.map(|limit| format!("; set local statement_timeout = {limit}")));
        (text != "begin").then_some(text)
    }

    /// Returns what a statement may take; rounded up, because 0 means no limit.
    fn statement_milliseconds(&self) -> Option<u64> {
        let limit = Duration::try_from_secs_f64(self.statement_seconds?).ok()?;
        u64::try_from(limit.as_nanos().div_ceil(1_000_000)).ok()
    }
}

/// What connections are made with.
pub(crate) struct Server {
    config: ServerConfig,
    secrets: Secrets,
    greeting: Greeting,
    unreachable: Unreachable,
    tls: MakeRustlsConnect,
    /// Whether a connection keeps the statements that were prepared on it.
    pub(crate) keeps_statements: bool,
    /// What a connection allows a statement when it is opened.
    pub(crate) milliseconds: Option<u64>,
    /// Longest time to connect to a host in.
    pub(crate) limit: Duration,
}

/// What may change while connections are made.
struct Secrets {
    dsn: Secret,
    password: Option<Secret>,
}

impl Secrets {
    fn all(&self) -> impl Iterator<Item = &Secret> {
        once(&self.dsn).chain(&self.password)
    }
}

/// How the statements of a lookup are sent.
pub(crate) struct Rules {
    /// Opens the transaction of each query, where connections keep no settings.
    pub(crate) begin: Option<String>,
    /// What the server allows a statement; `None`: its own setting.
    pub(crate) milliseconds: Option<u64>,
    /// Longest silence of a server that has something to say; it ends statements before that.
    pub(crate) silence: Option<Duration>,
}

impl Server {
    /// Takes over the secrets that a task was started with: they are the newest.
    pub(crate) fn renew(&self, config: &ServerConfig) {
        let Secrets { dsn, password } = config.secrets();
        let new = once(dsn).chain(password);
        self.secrets.all().zip(new).for_each(|(own, new)| own.replace(new));
    }

    /// Opens a connection, served by a tokio task of its own until the client is dropped.
    ///
    /// Where the server refuses who connects, the secrets are read again.
    pub(crate) async fn connect(&self) -> Result<Opened, Fault> {
        let secrets: Vec<&Secret> = self.secrets.all().collect();
        let connect = || self.connect_now().boxed();
        show(&secrets, connect, Fault::is_of_caller, Fault::that_may_pass).await
    }

    async fn connect_now(&self) -> Result<Opened, Fault> {
        let Secrets { dsn, password } = &self.secrets;
        let read = self.config.read_text(&dsn.text());
        let mut config = read.map_err(|error| Fault::permanent(error.message))?.config;
        if let Some(password) = password {
            config.password(&*password.text());
        }
        connect(&config, &self.tls, &self.greeting, self.limit, &self.unreachable).await
    }

    /// Asks the server to end what a connection is at; it may be at something else by then.
    pub(crate) async fn cancel(&self, connection: &CancelToken, place: &Place) {
        let asked = Box::pin(place.cancel(connection, &self.tls));
        if !matches!(timeout(self.limit, asked).await, Ok(Ok(()))) {
            tracing::debug!("PostgreSQL could not be asked to end a statement");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(dsn: &str) -> ServerConfig {
        ServerConfig {
            dsn: dsn.to_owned(),
            password: None,
            sources: BTreeMap::new(),
            readers: Sources::new(),
            tls: TlsSettings::default(),
            is_certified: false,
            connect_seconds: 1.0,
            statement_seconds: Some(0.5),
            writes: false,
            connections: 2,
            prepare: true,
        }
    }

    #[test]
    fn connections_read_only_and_have_a_timeout_unless_told_otherwise() {
        let read = config("host=a user=b options='-c x=y'").read().unwrap().config;

        assert_eq!(
            read.get_options(),
            Some(
                "-c x=y -c default_transaction_read_only=on -c statement_timeout=500ms \
                 -c sparkawait.settings=on"
            )
        );
        assert_eq!(read.get_application_name(), Some("sparkawait"));
    }

    #[test]
    fn a_primary_that_is_asked_for_is_read_only_once_it_is_known_to_be_one() {
        let config = config("host=a,b target_session_attrs=read-write");
        let server = config.server().unwrap();

        let options = "-c statement_timeout=500ms -c sparkawait.settings=on";
        assert_eq!(config.read().unwrap().config.get_options(), Some(options));
        let Greeting { wanted, is_set_read_only } = server.greeting;
        assert_eq!((wanted, is_set_read_only), (Wanted::ReadWrite, true));
    }

    #[test]
    fn without_prepared_statements_the_settings_are_those_of_each_transaction() {
        let mut config = ServerConfig { prepare: false, ..config("host=a user=b") };

        assert_eq!(config.read().unwrap().config.get_options(), None);
        let begin = "begin read only; set local statement_timeout = 500";
        assert_eq!(config.rules().unwrap().begin.as_deref(), Some(begin));
        (config.writes, config.statement_seconds) = (true, None);
        assert_eq!(config.rules().unwrap().begin, None);
    }

    #[test]
    fn connections_are_told_apart_by_what_does_not_change() {
        let identity = |config: &ServerConfig| config.identity().unwrap();
        let given = config("host=a user=b password=hidden");
        let known = identity(&given);
        assert_eq!(
            identity(&ServerConfig { statement_seconds: Some(7.0), ..given.clone() }),
            known
        );
        assert_ne!(identity(&config("host=a user=b password=other")), known);
        assert_ne!(identity(&ServerConfig { writes: true, ..given.clone() }), known);

        let of_secret = |dsn: &str, file: &str| {
            let sources = BTreeMap::from([("dsn".to_owned(), file.to_owned())]);
            identity(&ServerConfig { sources, ..config(dsn) })
        };
        let known = of_secret("host=a user=b password=hidden", "/token");
        assert_eq!(of_secret("host=a user=b password=rotated", "/token"), known);
        assert_ne!(of_secret("host=a user=b password=hidden", "/other"), known);
        assert_ne!(of_secret("host=c user=b password=hidden", "/token"), known);
        assert!(!known.contains("hidden"));
    }

    #[test]
    fn neither_debug_nor_errors_show_the_address() {
        let config = config("postgres://u:hidden@h/d?word=hidden");

        assert!(!format!("{config:?}").contains("hidden"));
        let error = config.server().err().unwrap();
        assert!(!error.message.contains("hidden"));
    }
}
