// SPDX-License-Identifier: Apache-2.0
//! Which server is connected to, and how.

use std::fmt::{self, Write};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sparkawait_task::error::StartError;
use tokio::time::timeout;
use tokio_postgres::{CancelToken, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::postgres::connect::{Greeting, Opened, Place, Unreachable, connect};
use crate::postgres::dsn::{Dsn, Wanted};
use crate::postgres::failure::Failure;
use crate::tls::TlsSettings;

/// A server and the settings of connections to it.
#[derive(Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerConfig {
    /// URL or `key=value` pairs; has a password.
    dsn: String,
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

/// Shows nothing of the address, which has a password.
impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConfig")
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

impl ServerConfig {
    /// Checks the settings, without the authorities of this machine.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        self.read()?;
        self.tls.check()?;
        self.limits().map(drop)
    }

    /// Reads the settings.
    pub(crate) fn server(&self) -> Result<Server, StartError> {
        let Dsn { config, trust, wanted } = self.read()?;
        let (limit, silence) = self.limits()?;
        let is_set = self.prepare && !self.writes && wanted != Wanted::Any;
        let settings = if is_set { "set default_transaction_read_only = on" } else { "" };
        Ok(Server {
            config,
            greeting: Greeting { wanted, settings },
            unreachable: Unreachable::default(),
            tls: MakeRustlsConnect::new(self.tls.config(trust)?),
            keeps_statements: self.prepare,
            begin: if self.prepare { None } else { self.begin() },
            limit,
            silence,
        })
    }

    /// Reads the address.
    fn read(&self) -> Result<Dsn, StartError> {
        let is_certified = self.is_certified || self.tls.is_given();
        let mut dsn = Dsn::read(&self.dsn, &self.tls, is_certified)?;
        let config = &mut dsn.config;
        if self.prepare {
            let options = self.options(config.get_options().unwrap_or_default(), dsn.wanted);
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
        let duration = |seconds: f64, name: &str| {
            Duration::try_from_secs_f64(seconds)
                .map_err(|_| StartError::option(format!("`{name}` is out of range")))
        };
        let limit = duration(self.connect_seconds, "connect_timeout")?;
        let statement = self.statement_seconds.map(|it| duration(it, "statement_timeout"));
        Ok((limit, statement.transpose()?.map(|statement| statement.saturating_add(limit))))
    }

    /// Returns what a connection that keeps its settings is opened with.
    fn options(&self, given: &str, wanted: Wanted) -> String {
        let mut options = given.to_owned();
        if !self.writes && wanted == Wanted::Any {
            options.push_str(" -c default_transaction_read_only=on");
        } else if !self.writes {
            // A primary would be taken for a standby: it is set once the kind of the server is known.
            // This says nothing, and is there for poolers: they refuse it, and so what is set later,
            // which they would leave behind for others.
            options.push_str(" -c default_transaction_deferrable=off");
        }
        if let Some(limit) = self.statement_milliseconds() {
            #[expect(clippy::let_underscore_must_use, reason = "writing to a string cannot fail")]
            let _ = write!(options, " -c statement_timeout={limit}ms");
        }
        options
    }

    /// Returns what opens a transaction with the same settings; `None`: there are none.
    fn begin(&self) -> Option<String> {
        let mut text = if self.writes { "begin" } else { "begin read only" }.to_owned();
        if let Some(limit) = self.statement_milliseconds() {
            #[expect(clippy::let_underscore_must_use, reason = "writing to a string cannot fail")]
            let _ = write!(text, "; set local statement_timeout = {limit}");
        }
        (text != "begin").then_some(text)
    }

    fn statement_milliseconds(&self) -> Option<f64> {
        self.statement_seconds.map(|seconds| (seconds * 1000.0).ceil())
    }
}

/// What connections are made with.
pub(crate) struct Server {
    config: Config,
    greeting: Greeting,
    unreachable: Unreachable,
    tls: MakeRustlsConnect,
    /// Whether a connection keeps the statements that were prepared on it.
    pub(crate) keeps_statements: bool,
    /// Opens the transaction of each query, where connections keep no settings.
    pub(crate) begin: Option<String>,
    /// Longest time to connect to a host in.
    pub(crate) limit: Duration,
    /// Longest silence of a server that has something to say; it ends statements before that.
    pub(crate) silence: Option<Duration>,
}

impl Server {
    /// Opens a connection, served by a tokio task of its own until the client is dropped.
    pub(crate) async fn connect(&self) -> Result<Opened, Failure> {
        connect(&self.config, &self.tls, &self.greeting, self.limit, &self.unreachable).await
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
        let server = config("host=a user=b options='-c x=y'").server().unwrap();

        assert_eq!(
            server.config.get_options(),
            Some("-c x=y -c default_transaction_read_only=on -c statement_timeout=500ms")
        );
        assert_eq!(server.config.get_application_name(), Some("sparkawait"));
    }

    #[test]
    fn a_primary_that_is_asked_for_is_read_only_once_it_is_known_to_be_one() {
        let server = config("host=a,b target_session_attrs=read-write").server().unwrap();

        let options = "-c default_transaction_deferrable=off -c statement_timeout=500ms";
        assert_eq!(server.config.get_options(), Some(options));
        assert_eq!(server.greeting.wanted, Wanted::ReadWrite);
        assert_eq!(server.greeting.settings, "set default_transaction_read_only = on");
    }

    #[test]
    fn without_prepared_statements_the_settings_are_those_of_each_transaction() {
        let mut config = ServerConfig { prepare: false, ..config("host=a user=b") };

        let server = config.server().unwrap();
        assert_eq!(server.config.get_options(), None);
        let begin = "begin read only; set local statement_timeout = 500";
        assert_eq!(server.begin.as_deref(), Some(begin));
        (config.writes, config.statement_seconds) = (true, None);
        assert_eq!(config.server().unwrap().begin, None);
    }

    #[test]
    fn neither_debug_nor_errors_show_the_address() {
        let config = config("postgres://u:hidden@h/d?word=hidden");

        assert!(!format!("{config:?}").contains("hidden"));
        let error = config.server().err().unwrap();
        assert!(!error.message.contains("hidden"));
    }
}
