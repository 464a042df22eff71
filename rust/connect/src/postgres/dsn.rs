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
        let mut config: Config = dsn.parse().map_err(|_| invalid(text))?;
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
        Ok(Self { config, trust })
    }
}

const UNENCRYPTED: &str = "`dsn` has sslmode=disable, so `ca` and `certificate` would never be \
    used; leave sslmode out, or the certificates";

/// Replaces the value of `name` by another one if it is one of `words`; returns which it was.
fn replace<'a>(dsn: &mut String, name: &str, words: &[&'a str], by: &str) -> Option<&'a str> {
    for (start, _) in dsn.match_indices(name) {
        let is_name = dsn[..start].chars().next_back().is_none_or(is_end);
        let behind = dsn[start + name.len()..].trim_start();
        let value = behind.strip_prefix('=').map(str::trim_start);
        let Some(value) = value.filter(|_| is_name) else { continue };
        let value = value.strip_prefix('\'').unwrap_or(value);
        let is_word = |word: &&&str| {
            let rest = value.strip_prefix(**word);
            rest.is_some_and(|rest| rest.chars().next().is_none_or(is_end))
        };
        if let Some(word) = words.iter().find(is_word) {
            let from = dsn.len() - value.len();
            dsn.replace_range(from..from + word.len(), by);
            return Some(word);
        }
    }
    None
}

/// Whether a character stands before a name or behind a value.
fn is_end(it: char) -> bool {
    it.is_whitespace() || matches!(it, '?' | '&' | '\'')
}

/// Says what is wrong without quoting anything but names of libpq's options.
fn invalid(dsn: &str) -> StartError {
    const FILES: [(&str, &str); 3] =
        [("sslrootcert=", "ca"), ("sslcert=", "certificate"), ("sslkey=", "private_key")];
    if let Some((name, option)) = FILES.iter().find(|(name, _)| dsn.contains(name)) {
        return StartError::option(format!(
            "`dsn` has {name}.., which is given by the argument `{option}` here"
        ));
    }
    StartError::option(
        "`dsn` does not parse; write 'postgresql://user:password@host:port/database', special \
         characters percent-encoded, or 'host=.. user=.. password=.. dbname=..' with options that \
         tokio-postgres knows",
    )
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
    fn certificates_ask_for_encryption() {
        let mode = |dsn| read(dsn, true).map(|it| it.config.get_ssl_mode());

        assert_eq!(mode("host=h").unwrap(), SslMode::Require);
        assert_eq!(mode("host=h sslmode=prefer").unwrap(), SslMode::Require);
        assert!(mode("host=h sslmode=disable").unwrap_err().message.contains("sslmode=disable"));
        assert_eq!(read("host=h", false).unwrap().config.get_ssl_mode(), SslMode::Prefer);
    }
}
