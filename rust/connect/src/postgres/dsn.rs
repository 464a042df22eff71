// SPDX-License-Identifier: Apache-2.0
//! Reads the address of servers: a URL or pairs, with the words of libpq that the library lacks.

use sparkawait_task::error::StartError;
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use crate::tls::{TlsSettings, Trust};

/// What an address says.
pub(crate) struct Dsn {
    /// Without what is read here.
    pub(crate) config: Config,
    /// Which certificates it asks for.
    pub(crate) trust: Trust,
    /// Which kind of server it asks for.
    pub(crate) wanted: Wanted,
}

/// Which kind of server is wanted of several: `target_session_attrs`, with all words of libpq.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Any,
    ReadWrite,
    ReadOnly,
    Primary,
    Standby,
    /// A standby, or any where none is.
    PreferStandby,
}

impl Wanted {
    const ALL: [Self; 6] = [
        Self::Any,
        Self::ReadWrite,
        Self::ReadOnly,
        Self::Primary,
        Self::Standby,
        Self::PreferStandby,
    ];

    /// Returns the word for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::ReadWrite => "read-write",
            Self::ReadOnly => "read-only",
            Self::Primary => "primary",
            Self::Standby => "standby",
            Self::PreferStandby => "prefer-standby",
        }
    }

    /// Returns what all hosts are asked for, one after the other.
    pub(crate) fn turns(&self) -> &[Self] {
        match self {
            Self::PreferStandby => &[Self::Standby, Self::Any],
            one => std::slice::from_ref(one),
        }
    }

    /// Whether a server is of that kind.
    pub(crate) fn is_met(self, is_read_only: bool, is_standby: bool) -> bool {
        match self {
            Self::Any | Self::PreferStandby => true,
            Self::ReadWrite => !is_read_only && !is_standby,
            Self::ReadOnly => is_read_only || is_standby,
            Self::Primary => !is_standby,
            Self::Standby => is_standby,
        }
    }
}

impl Dsn {
    /// Reads an address, of servers whose certificates are looked at as `tls` says.
    ///
    /// # Errors
    ///
    /// It is not one, or does not go with certificates. The text is not quoted: it has a password.
    pub(crate) fn read(
        text: &str,
        tls: &TlsSettings,
        is_certified: bool,
    ) -> Result<Self, StartError> {
        let mut dsn = text.to_owned();
        let mode = replace(&mut dsn, "sslmode", &["verify-full", "verify-ca"], "require");
        let words = Wanted::ALL.map(Wanted::word);
        let word = replace(&mut dsn, "target_session_attrs", &words, "any");
        let wanted = Wanted::ALL.into_iter().find(|it| Some(it.word()) == word);
        let mut config: Config = dsn.parse().map_err(|_| invalid(text, word.is_some()))?;
        check_hosts(&config)?;
        if is_certified {
            match config.get_ssl_mode() {
                SslMode::Disable => return Err(StartError::option(UNENCRYPTED)),
                // What certificates are given for must not be left out because somebody says no.
                SslMode::Prefer => drop(config.ssl_mode(SslMode::Require)),
                _ => {}
            }
        }
        // As libpq does with `prefer` and `require`: encrypted, and anyone may answer.
        let trust = match mode {
            Some("verify-ca") => Trust::AuthoritiesOfAnyHost,
            Some(_) => Trust::Authorities,
            None if tls.has_ca() => Trust::Authorities,
            None => Trust::Anyone,
        };
        Ok(Self { config, trust, wanted: wanted.unwrap_or(Wanted::Any) })
    }
}

const UNENCRYPTED: &str = "`dsn` has sslmode=disable, so `ca` and `certificate` would never be \
    used; leave sslmode out, or the certificates";

/// Options of libpq that the library does not know.
const NOT_SPOKEN: [&str; 24] = [
    "client_encoding",
    "fallback_application_name",
    "gssdelegation",
    "gssencmode",
    "gsslib",
    "krbsrvname",
    "max_protocol_version",
    "min_protocol_version",
    "oauth_client_id",
    "oauth_issuer",
    "passfile",
    "replication",
    "require_auth",
    "requirepeer",
    "service",
    "servicefile",
    "ssl_max_protocol_version",
    "ssl_min_protocol_version",
    "sslcertmode",
    "sslcompression",
    "sslcrl",
    "sslcrldir",
    "sslpassword",
    "sslsni",
];

/// The words for encryption that are understood.
const MODES: [&str; 5] = ["disable", "prefer", "require", "verify-ca", "verify-full"];

/// Returns the values that `name` may have been given; what only looks like an option is in a value.
fn values<'a>(dsn: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    dsn.match_indices(name).filter_map(move |(start, _)| {
        let is_name = dsn[..start].chars().next_back().is_none_or(is_end);
        let value = dsn[start + name.len()..].trim_start().strip_prefix('=')?.trim_start();
        is_name.then(|| value.strip_prefix('\'').unwrap_or(value))
    })
}

fn has_option(dsn: &str, name: &str) -> bool {
    values(dsn, name).next().is_some()
}

fn has_value(dsn: &str, name: &str, word: &str) -> bool {
    values(dsn, name).any(|value| begins_with(value, word))
}

/// Whether a value is a word.
fn begins_with(value: &str, word: &str) -> bool {
    value.strip_prefix(word).is_some_and(|rest| rest.chars().next().is_none_or(is_end))
}

/// Replaces the value of `name` by another one if it is one of `words`; returns which it was.
fn replace<'a>(dsn: &mut String, name: &str, words: &[&'a str], by: &str) -> Option<&'a str> {
    let found = values(dsn, name).find_map(|value| {
        let word = words.iter().find(|word| begins_with(value, word))?;
        // As many bytes are behind it.
        Some((dsn.len() - value.len(), *word))
    });
    let (from, word) = found?;
    dsn.replace_range(from..from + word.len(), by);
    Some(word)
}

/// Whether a character stands before a name or behind a value.
fn is_end(it: char) -> bool {
    it.is_whitespace() || matches!(it, '?' | '&' | '\'')
}

/// Checks that each host has an address and a port.
fn check_hosts(config: &Config) -> Result<(), StartError> {
    let (hosts, addresses) = (config.get_hosts().len(), config.get_hostaddrs().len());
    let (most, ports) = (hosts.max(addresses), config.get_ports().len());
    if most == 0 {
        return Err(StartError::option(
            "`dsn` names no host; write 'host=..' or 'postgresql://host/database'",
        ));
    }
    if hosts.min(addresses) != 0 && hosts != addresses || ports > 1 && ports != most {
        return Err(StartError::option(format!(
            "`dsn` has {hosts} hosts, {addresses} hostaddrs and {ports} ports; give one of each for \
             each host, or one port for all"
        )));
    }
    Ok(())
}

/// Says what is wrong without quoting anything but names of libpq's options.
fn invalid(dsn: &str, has_attrs: bool) -> StartError {
    const FILES: [(&str, &str); 3] =
        [("sslrootcert=", "ca"), ("sslcert=", "certificate"), ("sslkey=", "private_key")];
    if let Some((name, option)) = FILES.iter().find(|(name, _)| dsn.contains(name)) {
        return StartError::option(format!(
            "`dsn` has {name}.., which is given by the argument `{option}` here"
        ));
    }
    if let Some(name) = NOT_SPOKEN.into_iter().find(|it| has_option(dsn, it)) {
        return StartError::option(format!(
            "`dsn` has the option `{name}` of libpq, which is not spoken here; leave it out"
        ));
    }
    if let Some(rule) = misshapen(dsn) {
        return StartError::option(format!(
            "`dsn` {rule}; write 'postgresql://user:password@host:5432/database'"
        ));
    }
    if has_option(dsn, "sslmode") && !MODES.iter().any(|it| has_value(dsn, "sslmode", it)) {
        let modes = MODES.join(", ");
        return StartError::option(format!(
            "`dsn` has another `sslmode` than {modes}, or does not parse"
        ));
    }
    if !has_attrs && dsn.contains("target_session_attrs") {
        let words = Wanted::ALL.map(Wanted::word).join(", ");
        return StartError::option(format!(
            "`dsn` has another `target_session_attrs` than {words}, or does not parse"
        ));
    }
    StartError::option(
        "`dsn` does not parse; write 'postgresql://user:password@host:port/database', special \
         characters percent-encoded, or 'host=.. user=.. password=.. dbname=..' with options that \
         tokio-postgres knows",
    )
}

/// Says what is wrong with a text that should be a URL.
fn misshapen(dsn: &str) -> Option<&'static str> {
    let Some((scheme, rest)) = dsn.split_once("://") else {
        return (!dsn.contains('=')).then_some("has neither `postgresql://` nor `host=..`");
    };
    if !matches!(scheme, "postgresql" | "postgres") {
        let is_word = scheme.chars().all(|it| it.is_ascii_alphanumeric() || "+:.-".contains(it));
        return is_word.then_some("has another scheme than `postgresql://`");
    }
    let hosts = rest.rsplit('@').next()?.split(['/', '?']).next()?;
    let ports = hosts.split(',').filter_map(|it| it.rsplit(']').next()?.split_once(':'));
    let is_wrong = |(_, port): (&str, &str)| !port.is_empty() && port.parse::<u16>().is_err();
    ports.into_iter().any(is_wrong).then_some("has a port that is not a number up to 65535")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(dsn: &str, is_certified: bool) -> Result<Dsn, StartError> {
        Dsn::read(dsn, &TlsSettings::default(), is_certified)
    }

    #[test]
    fn modes_that_verify_are_understood() {
        for (dsn, trust) in [
            ("postgres://h/d?sslmode=verify-full", Trust::Authorities),
            ("postgres://h/d?x=y&sslmode=verify-ca", Trust::AuthoritiesOfAnyHost),
            ("host=h sslmode = 'verify-ca' user=u", Trust::AuthoritiesOfAnyHost),
            ("host=h sslmode=require", Trust::Anyone),
        ] {
            let dsn = dsn.replace("x=y", "connect_timeout=7");
            let read = read(&dsn, false).unwrap();
            assert_eq!(
                (read.config.get_ssl_mode(), read.trust),
                (SslMode::Require, trust),
                "{dsn}"
            );
        }
        let error = read("host=h sslrootcert=/x", false).err().unwrap();
        assert!(error.message.contains("`ca`"));
    }

    #[test]
    fn what_only_looks_like_a_mode_is_left_alone() {
        for dsn in ["host=h password=asslmode=verify-ca", "host=h user=sslmode sslmode=require"] {
            let mut text = dsn.to_owned();
            assert_eq!(replace(&mut text, "sslmode", &["verify-ca"], "require"), None);
            assert_eq!(text, dsn);
        }
    }

    #[test]
    fn all_kinds_of_servers_have_their_word() {
        for kind in Wanted::ALL {
            let wanted = |dsn: &str| read(&format!("{dsn}{}", kind.word()), false).unwrap().wanted;
            assert_eq!(wanted("host=a,b target_session_attrs="), kind);
            assert_eq!(wanted("postgres://a,b/d?target_session_attrs="), kind);
            assert!(kind.turns().iter().all(|it| it.turns() == [*it]), "{kind:?}");
        }
        let message = read("host=a target_session_attrs=master", false).err().unwrap().message;
        assert!(message.contains("prefer-standby"), "{message}");
        // A standby is read-only; a primary may be.
        for (is_read_only, is_standby, takes) in [
            (true, true, ["any", "read-only", "standby", "prefer-standby"].as_slice()),
            (true, false, &["any", "read-only", "primary", "prefer-standby"]),
            (false, false, &["any", "read-write", "primary", "prefer-standby"]),
        ] {
            let met = Wanted::ALL.into_iter().filter(|it| it.is_met(is_read_only, is_standby));
            assert_eq!(met.map(Wanted::word).collect::<Vec<_>>(), takes);
        }
    }

    #[test]
    fn each_host_has_one_port_or_all_have_the_same() {
        let is_read = |dsn| read(dsn, false).is_ok();
        assert!(is_read("host=a,b port=1,2") && is_read("host=a,b port=1") && is_read("host=a,b"));
        assert!(is_read("hostaddr=127.0.0.1"));
        for dsn in ["user=u", "host=a,b,c port=1,2", "host=a,b hostaddr=127.0.0.1"] {
            assert!(!is_read(dsn), "{dsn}");
        }
    }

    #[test]
    fn certificates_ask_for_encryption() {
        let mode = |dsn| read(dsn, true).map(|it| it.config.get_ssl_mode());

        assert_eq!(mode("host=h").unwrap(), SslMode::Require);
        assert_eq!(mode("host=h sslmode=prefer").unwrap(), SslMode::Require);
        assert!(mode("host=h sslmode=disable").unwrap_err().message.contains("sslmode=disable"));
        assert_eq!(read("host=h", false).unwrap().config.get_ssl_mode(), SslMode::Prefer);
    }
}
