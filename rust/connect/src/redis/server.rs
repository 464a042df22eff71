// SPDX-License-Identifier: Apache-2.0
//! Where the server is, and how it is talked to.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use sparkawait_task::error::StartError;
use sparkawait_task::secret::Sources;
use url::{Host, ParseError, Url};

use crate::settings::key_of;
use crate::tls::TlsSettings;

/// Where the server is, and how it is talked to.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Server {
    /// Where it may be: equals, or nodes of a cluster, or sentinels.
    pub(super) url: Vec<String>,
    /// The name that sentinels know the primary by.
    pub(super) sentinel: Option<String>,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    /// What tells the secrets among them from others, whatever they are at the moment: `url 0`,
    /// `url 1`, .. and `password`.
    #[serde(default)]
    pub(super) sources: BTreeMap<String, String>,
    /// What reads them again.
    #[serde(skip)]
    pub(crate) readers: Sources,
    pub(super) database: Option<i64>,
    pub(super) tls: TlsSettings,
    /// Whether a certificate for another host is taken.
    #[serde(default)]
    pub(super) any_host: bool,
    pub(super) connections: usize,
    /// Whether there are several nodes; the URL names one of them.
    pub(super) cluster: bool,
    pub(super) read_from: ReadFrom,
    pub(super) connect_timeout: f64,
    pub(super) idle_timeout: f64,
    pub(super) max_reply_bytes: usize,
}

/// Which nodes of a cluster are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ReadFrom {
    Primary,
    /// Replicas, or the primary if there is none that answers.
    Replica,
}

/// An address, and what it says of who calls.
pub(super) struct Address {
    pub(super) endpoint: Endpoint,
    pub(super) is_tls: bool,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: i64,
}

/// Where an address leads.
#[derive(Clone)]
pub(super) enum Endpoint {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

const PORT: u16 = 6379;

impl Address {
    /// Reads an address.
    pub(super) fn parse(url: &str) -> Result<Self, StartError> {
        // It is not quoted: there may be a password in it.
        let parsed = Url::parse(url);
        parsed.as_ref().ok().and_then(Self::read).ok_or_else(|| {
            let rule = match &parsed {
                Err(ParseError::InvalidPort) => "a port is a number up to 65535",
                Ok(url) if url.fragment().is_some() => "a `#` in a password is `%23`",
                Ok(url) if names_no_number(url) => "its path is the number of a database",
                _ => "nothing is behind `?` but `db`, and of a socket `user` and `pass`",
            };
            StartError::option(format!(
                "`url` must be like `redis://host:6379/0`, `rediss://..` or `redis+unix:///path`: {rule}"
            ))
        })
    }

    fn read(url: &Url) -> Option<Self> {
        let is_tls = matches!(url.scheme(), "rediss" | "valkeys");
        match url.scheme() {
            "redis" | "rediss" | "valkey" | "valkeys" if url.fragment().is_none() => {}
            "unix" | "redis+unix" | "valkey+unix" => return Self::of_socket(url),
            _ => return None,
        }
        let host = match url.host()? {
            Host::Domain(name) => name.to_owned(),
            Host::Ipv4(address) => address.to_string(),
            // Without brackets.
            Host::Ipv6(address) => address.to_string(),
        };
        let text = |text: &str| Some(percent_decode_str(text).decode_utf8().ok()?.into_owned());
        let (username, database) = (url.username(), url.path().trim_matches('/'));
        let [named] = Self::named(url, ["db"])?;
        let database = match (database, named) {
            ("", Some(named)) => named.parse().ok()?,
            ("", None) => 0,
            (database, None) => database.parse().ok()?,
            // Two, and who knows which is meant.
            (_, Some(_)) => return None,
        };
        Some(Self {
            endpoint: Endpoint::Tcp(host, url.port().unwrap_or(PORT)),
            is_tls,
            username: if username.is_empty() { None } else { Some(text(username)?) },
            password: url.password().map_or(Some(None), |it| text(it).map(Some))?,
            database,
        })
    }

    fn of_socket(url: &Url) -> Option<Self> {
        if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
            return None;
        }
        let [username, password, database] = Self::named(url, ["user", "pass", "db"])?;
        Some(Self {
            endpoint: Endpoint::Unix(url.to_file_path().ok()?),
            is_tls: false,
            username,
            password,
            database: database.map_or(Some(0), |it| it.parse().ok())?,
        })
    }

    /// Returns what an address says behind `?`; `None` if it says something else too, or one twice.
    fn named<const N: usize>(url: &Url, names: [&str; N]) -> Option<[Option<String>; N]> {
        let mut found = [const { None }; N];
        for (name, value) in url.query_pairs() {
            let place = &mut found[names.iter().position(|it| *it == name)?];
            if place.replace(value.into_owned()).is_some() {
                return None;
            }
        }
        Some(found)
    }
}

/// Whether the path of a server's address is something else than the number of a database.
fn names_no_number(url: &Url) -> bool {
    let path = url.path().trim_matches('/');
    !url.scheme().contains("unix") && path.bytes().any(|it| !it.is_ascii_digit())
}

impl Server {
    /// Names the connections: equal for descriptions whose connections are each other's equals,
    /// whatever their passwords are at the moment.
    pub(super) fn identity(&self) -> Result<String, StartError> {
        let has_source = |option: &str| self.sources.contains_key(option);
        let mut places = Vec::new();
        for (index, url) in self.url.iter().enumerate() {
            let address = Address::parse(url)?;
            let password = address.password.filter(|_| !has_source(&format!("url {index}")));
            let place = (address.endpoint.to_string(), address.is_tls, address.database);
            places.push((place, (address.username, password)));
        }
        let password = self.password.as_deref().filter(|_| !has_source("password"));
        let login = (&self.username, password, &self.sources, self.database);
        let nodes = (&self.sentinel, self.cluster, self.read_from, self.connections);
        let limits = (self.connect_timeout, self.idle_timeout, self.max_reply_bytes);
        key_of(&(places, login, nodes, limits, &self.tls, self.any_host))
    }
}

#[cfg(test)]
impl Server {
    /// A cluster at `localhost:7000`, where nobody listens.
    pub(super) fn unreachable() -> Self {
        let server = serde_json::json!({
            "url": ["redis://localhost:7000"],
            "cluster": true,
            "connections": 1,
            "connect_timeout": 1.0,
            "idle_timeout": 1.0,
            "max_reply_bytes": 1000,
            "read_from": "primary",
            "tls": { "ca": null, "certificate": null, "private_key": null },
        });
        serde_json::from_value(server).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(url: &str, file: Option<&str>) -> String {
        let sources = file.map(|it| ("url 0".to_owned(), it.to_owned())).into_iter().collect();
        let server = Server { url: vec![url.to_owned()], sources, ..Server::unreachable() };
        server.identity().unwrap()
    }

    #[test]
    fn connections_are_told_apart_by_what_does_not_change() {
        let known = identity("redis://u:hidden@a:1", Some("/token"));
        assert_eq!(identity("redis://u:rotated@a:1", Some("/token")), known);
        for (url, file) in [
            ("redis://u:hidden@a:1", Some("/other")),
            ("redis://u:hidden@a:2", Some("/token")),
            ("redis://u:hidden@a:1/3", Some("/token")),
            ("rediss://u:hidden@a:1", Some("/token")),
            ("redis://u:hidden@a:1", None),
        ] {
            assert_ne!(identity(url, file), known, "{url} {file:?}");
        }
        assert_ne!(identity("redis://:one@a:1", None), identity("redis://:two@a:1", None));
        assert!(!known.contains("hidden"));
    }

    #[test]
    fn an_address_says_where_and_who() {
        let read = |url: &str| {
            let it = Address::parse(url).ok()?;
            let place = format!("{}{}", if it.is_tls { "tls " } else { "" }, it.endpoint);
            Some((place, it.username, it.password, it.database))
        };
        let named = |text: &str| Some(text.to_owned());
        for (url, place, username, password, database) in [
            ("redis://a", "a:6379", None, None, 0),
            ("rediss://a:7/13/", "tls a:7", None, None, 13),
            ("redis://:p%40ss@[::1]:7", "::1:7", None, named("p@ss"), 0),
            ("valkeys://u%C3%A4:@10.0.0.7", "tls 10.0.0.7:6379", named("uä"), None, 0),
            ("redis+unix:///a%20b?db=7&user=u&pass=p", "/a b", named("u"), named("p"), 7),
            ("unix:///s", "/s", None, None, 0),
            ("redis://a?db=3", "a:6379", None, None, 3),
            ("redis://a:7/?db=3", "a:7", None, None, 3),
            ("redis://a?", "a:6379", None, None, 0),
        ] {
            assert_eq!(read(url), Some((place.to_owned(), username, password, database)), "{url}");
        }
        for url in [
            "a:6379",
            "http://a",
            "redis://",
            "redis:///0",
            "redis://a/seven",
            "redis://a:0x7",
            "redis://%ff@a",
            "redis://:%ff@a",
            "redis+unix://a",
            "unix:///s?db=x",
            "rediss://a#insecure",
            "redis://a/1?db=2",
            "redis://a?db=x",
            "redis://a?db=1&db=2",
            "redis://a?password=p",
            "redis://a?protocol=3",
            "redis://a?user=u",
            "unix:///s?username=u",
            "unix://u@/s",
            "unix:///s#f",
        ] {
            assert_eq!(read(url), None, "{url}");
        }
    }
}
