// SPDX-License-Identifier: Apache-2.0
//! Whom a connection trusts, and how it shows who it is.

use std::error::Error as StdError;
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, Error,
    InvalidMessage, RootCertStore, SignatureScheme,
};
use serde::{Deserialize, Serialize};

use sparkawait_task::error::StartError;

/// Certificates and a key, as PEM texts. Has no `Debug`: the key is a secret.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsSettings {
    /// Authorities to trust instead of the system's.
    ca: Option<String>,
    /// The client's own certificate, with those between it and its authority.
    certificate: Option<String>,
    /// Its key; `None`: it is in the text of the certificate.
    private_key: Option<String>,
}

/// Which certificates of servers are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Those that lead to an authority; there must be one.
    Authorities,
    /// The same; but no connection may need one, so there may be none.
    AuthoritiesIfAny,
    /// Those that lead to an authority, whatever host they were made for.
    AuthoritiesOfAnyHost,
    /// Any; the server must have the certificate's key all the same.
    Anyone,
}

/// What a private key has in it that is encrypted: as PKCS#8 has it, and as older formats do.
const ENCRYPTED: [&str; 2] = ["-----BEGIN ENCRYPTED PRIVATE KEY-----", "Proc-Type: 4,ENCRYPTED"];

impl TlsSettings {
    /// Returns whether authorities were given.
    pub(crate) fn has_ca(&self) -> bool {
        self.ca.is_some()
    }

    /// Returns whether anything was given.
    pub(crate) fn is_given(&self) -> bool {
        *self != Self::default()
    }

    /// Makes the configuration of a client.
    ///
    /// # Errors
    ///
    /// A text is not PEM, does not have what its option needs, or no authority is known.
    pub(crate) fn config(&self, trust: Trust) -> Result<ClientConfig, StartError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| StartError::option(format!("TLS cannot be used: {error}")))?;
        let roots = match trust {
            Trust::Anyone => None,
            _ => Some(self.roots(trust)?),
        };
        let is_of_any_host = matches!(trust, Trust::Anyone | Trust::AuthoritiesOfAnyHost);
        let given = self.ca.as_deref().map_or(Ok(Vec::new()), |ca| certificates(ca, "ca"))?;
        if let Some(expired) = expired(&given, UnixTime::now()) {
            tracing::warn!("{expired}");
        }
        let verifier = Arc::new(Verifier { roots, given, is_of_any_host, provider });
        self.with_client(builder.dangerous().with_custom_certificate_verifier(verifier))
    }

    /// Checks the texts, without the authorities of this machine.
    ///
    /// # Errors
    ///
    /// A text is not PEM, or does not have what its option needs.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        if !self.is_given() {
            return Ok(());
        }
        let roots = match &self.ca {
            Some(ca) => authorities(ca)?,
            None => RootCertStore::empty(),
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| StartError::option(format!("TLS cannot be used: {error}")))?;
        self.with_client(builder.with_root_certificates(roots)).map(drop)
    }

    fn with_client(
        &self,
        builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    ) -> Result<ClientConfig, StartError> {
        let Some(certificate) = &self.certificate else {
            return match self.private_key {
                Some(_) => Err(StartError::option("`private_key` needs `certificate`")),
                None => Ok(builder.with_no_client_auth()),
            };
        };
        let (key, option) = match &self.private_key {
            Some(key) => (key, "private_key"),
            None => (certificate, "certificate"),
        };
        // The library's own words could quote the key.
        if ENCRYPTED.iter().any(|mark| key.contains(mark)) {
            return Err(StartError::option(format!(
                "`{option}` holds a private key that a passphrase encrypts, and there is no option for \
                 one; decrypt it with `openssl pkey -in key.pem -out plain.pem`"
            )));
        }
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| {
            StartError::option(format!("`{option}` holds no private key in PEM form"))
        })?;
        builder.with_client_auth_cert(certificates(certificate, "certificate")?, key).map_err(
            |error| {
                StartError::option(format!("`certificate` and its key cannot be used: {error}"))
            },
        )
    }

    fn roots(&self, trust: Trust) -> Result<RootCertStore, StartError> {
        if let Some(ca) = &self.ca {
            return authorities(ca);
        }
        let mut roots = RootCertStore::empty();
        // What cannot be read is left out: a server that needs it is refused, and says so.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() && trust != Trust::AuthoritiesIfAny {
            return Err(StartError::option(
                "this machine knows no certificate authority; install its certificates, or give `ca`",
            ));
        }
        Ok(roots)
    }
}

/// Tells whether `error` means that a certificate was refused, the server's here or the client's
/// there: it will be the next time too.
pub(crate) fn is_refused_certificate(error: &(dyn StdError + 'static)) -> bool {
    match tls_error(error) {
        Some(Error::InvalidCertificate(_)) => true,
        Some(Error::AlertReceived(alert)) => is_about_a_certificate(*alert),
        _ => false,
    }
}

/// Says of an error of TLS what is wrong and what to do, if users can mend it.
pub(crate) fn in_words(error: &(dyn StdError + 'static)) -> Option<String> {
    if is_cut_off(error) {
        return Some("the connection was cut off, without the word of TLS that ends it".to_owned());
    }
    let text = match tls_error(error)? {
        Error::InvalidCertificate(error) => return Some(of_certificate(error)),
        Error::AlertReceived(alert) if is_about_a_certificate(*alert) => {
            return Some(format!(
                "the server refused the client's certificate, or wants one ({alert:?}); give \
                 `certificate=` and `private_key=`"
            ));
        }
        Error::AlertReceived(AlertDescription::HandshakeFailure) => {
            "the server found nothing that both ends can do (HandshakeFailure): it has a key of P-521, \
             which is not taken here, or no TLS 1.2, or wants a client's certificate (`certificate=` \
             and `private_key=`)"
        }
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the server does not speak TLS on this port; connect to it without TLS (`http://`, \
             `redis://`), or to its port for TLS"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

/// What webpki says of a certificate that is an authority's own.
const IS_OF_AUTHORITY: &str = "CaUsedAsEndEntity";

fn of_certificate(error: &CertificateError) -> String {
    let what = match error {
        CertificateError::UnknownIssuer => {
            "is self-signed, or of an authority that is not trusted here; give the certificate of \
             the authority as `ca=`"
        }
        // With the flag it may sign others, and stands for none of them.
        CertificateError::Other(other) if other.to_string() == IS_OF_AUTHORITY => {
            "is self-signed and one of an authority (`CA:TRUE`); give it as `ca=`, as it is"
        }
        CertificateError::NotValidForName => {
            "is not valid for this name; call the server by a name that its certificate has"
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            return format!(
                "the server's certificate is not valid for this name; call it by one that it has: {}",
                presented.iter().map(|it| plain_name(it)).collect::<Vec<_>>().join(", ")
            );
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "has expired; renew it, or set this machine's clock right"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "is not valid yet; set this machine's clock right"
        }
        CertificateError::Revoked => "was revoked; the server needs another one",
        other => return format!("the server's certificate cannot be used: {other}"),
    };
    format!("the server's certificate {what}")
}

/// Returns `name` of `DnsName("name")`, as names of certificates are shown.
fn plain_name(shown: &str) -> &str {
    shown.split(['(', ')']).nth(1).unwrap_or(shown).trim_matches('"')
}

/// Whether a connection ended without the word of TLS for it. The library says so with an address of its
/// own pages.
fn is_cut_off(error: &(dyn StdError + 'static)) -> bool {
    let mut current = Some(error);
    while let Some(error) = current {
        if let Some(io) = error.downcast_ref::<std::io::Error>()
            && io.kind() == std::io::ErrorKind::UnexpectedEof
            && io.to_string().contains("close_notify")
        {
            return true;
        }
        current = error.source();
    }
    false
}

/// Finds the error of TLS in what wraps it.
fn tls_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Error> {
    let mut current = Some(error);
    while let Some(error) = current {
        if let Some(tls) = error.downcast_ref::<Error>() {
            return Some(tls);
        }
        // An I/O error hides the error in it from `source`.
        let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        current = match inner {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

fn is_about_a_certificate(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::NoCertificate
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRequired
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
    )
}

/// Reads authorities; there is at least one.
fn authorities(ca: &str) -> Result<RootCertStore, StartError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca, "ca")? {
        roots.add(certificate).map_err(|error| {
            StartError::option(format!("`ca` holds a certificate of no authority: {error}"))
        })?;
    }
    Ok(roots)
}

fn certificates(pem: &str, option: &str) -> Result<Vec<CertificateDer<'static>>, StartError> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|_| StartError::option(format!("`{option}` is not PEM text")))?;
    if found.is_empty() {
        return Err(StartError::option(format!("`{option}` holds no certificate in PEM form")));
    }
    Ok(found)
}

/// Says of authorities that were given which have expired: an authority is trusted for its key, and nobody
/// else looks at its time. There are no more names in it than of one.
fn expired(given: &[CertificateDer<'_>], now: UnixTime) -> Option<String> {
    let mut all = given.iter().filter_map(|it| Some((it, expired_at(it, now)?)));
    let (first, since) = all.next()?;
    let (name, more) = (name_of(first), all.count());
    let date = jiff::Timestamp::from_second(i64::try_from(since.as_secs()).ok()?).ok()?;
    let others = if more > 0 { format!(", and {more} more of it,") } else { String::new() };
    Some(format!(
        "the certificate of the authority {name} in `ca`{others} has expired, on {}; it is trusted all the \
         same, which other clients do not do: give the one that the authority has now",
        date.strftime("%Y-%m-%d")
    ))
}

/// Returns the end of a certificate that has expired.
fn expired_at(certificate: &CertificateDer<'_>, now: UnixTime) -> Option<UnixTime> {
    // A certificate's time is the first thing that is looked at.
    let (parsed, none) = (ParsedCertificate::try_from(certificate).ok()?, RootCertStore::empty());
    match verify_server_cert_signed_by_trust_anchor(&parsed, &none, &[], now, &[]) {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            Some(not_after)
        }
        _ => None,
    }
}

/// Returns the name of an authority in quotes: its common name, or its organisation (X.520).
fn name_of(certificate: &CertificateDer<'_>) -> String {
    let mut one = RootCertStore::empty();
    let subject = one.add(certificate.clone()).ok().map(|()| &one.roots[0].subject);
    let attribute = |subject: &[u8], number: u8| {
        let id = [0x06, 0x03, 0x55, 0x04, number];
        let at = subject.windows(id.len()).rposition(|it| it == id)? + id.len();
        // Behind its number: the kind of text, its length, and the text.
        let length = usize::from(*subject.get(at + 1)?);
        Some(String::from_utf8_lossy(subject.get(at + 2..at + 2 + length)?).into_owned())
    };
    let name = subject.and_then(|it| attribute(it, 3).or_else(|| attribute(it, 10)));
    name.map_or_else(|| "without a name".to_owned(), |it| format!("`{}`", it.escape_debug()))
}

/// Looks at the certificate of a server, whose key must have signed the connection in any case.
///
/// Not the library's own, which takes no certificate of an authority as that of a server. `openssl req -x509`
/// makes just that, and curl and Python take it where it was given as an authority.
#[derive(Debug)]
struct Verifier {
    /// Where a certificate must come from; `None`: from anywhere.
    roots: Option<RootCertStore>,
    /// Those that were given: a server may have one of them itself.
    given: Vec<CertificateDer<'static>>,
    /// Whether it may have been made for another host.
    is_of_any_host: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(certificate)?;
        if let Some(roots) = &self.roots {
            let algorithms = self.provider.signature_verification_algorithms.all;
            match verify_server_cert_signed_by_trust_anchor(
                &parsed, roots, between, now, algorithms,
            ) {
                // Its time was looked at before that.
                Err(Error::InvalidCertificate(CertificateError::Other(other)))
                    if other.to_string() == IS_OF_AUTHORITY
                        && self.given.iter().any(|it| it == certificate) => {}
                looked_at => looked_at?,
            }
        }
        if !self.is_of_any_host {
            verify_server_name(&parsed, name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error as IoError, ErrorKind};

    use super::*;

    #[test]
    fn a_connection_that_is_cut_off_is_told_without_the_librarys_address() {
        let library = "peer closed connection without sending TLS close_notify: \
                       \nhttps://docs.rs/rustls/latest/rustls/manual/";
        let words = in_words(&IoError::new(ErrorKind::UnexpectedEof, library)).unwrap();

        assert!(words.starts_with("the connection was cut off"), "{words}");
        assert_eq!(in_words(&IoError::new(ErrorKind::UnexpectedEof, "early eof")), None);
    }

    #[test]
    fn a_handshake_that_fails_is_told_with_what_may_be_the_cause() {
        let words = |alert| in_words(&IoError::other(Error::AlertReceived(alert))).unwrap();
        assert!(words(AlertDescription::HandshakeFailure).contains("P-521"));
        assert!(words(AlertDescription::CertificateRequired).contains("`private_key=`"));
    }

    /// Self-signed, until 2023-03-07 11:13:17 of `Example Root Ä1`, and until 2023-03-08 of an organisation.
    const AUTHORITIES: [&str; 2] = [
        "MIIBWzCCAQKgAwIBAgIBBzAKBggqhkjOPQQDAjAtMRAwDgYDVQQKDAdFeGFtcGxl\n\
         MRkwFwYDVQQDDBBFeGFtcGxlIFJvb3Qgw4QxMB4XDTEzMDEzMTAwMDAwMFoXDTIz\n\
         MDMwNzExMTMxN1owLTEQMA4GA1UECgwHRXhhbXBsZTEZMBcGA1UEAwwQRXhhbXBs\n\
         ZSBSb290IMOEMTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABJsmYGqZ/dKNiEpb\n\
         /MugqbPA3hBI/pyG4MiNBI2b7ZCff/FVWuHeOyyBy7kcHrG11IGEbe1pbvbxCUmB\n\
         iGHedvSjEzARMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDRwAwRAIgccqk\n\
         5A2Euv1uutCiyRdm8MHeWtyfsLW/nBp9DD9M7vYCIAmDKZbKaJCW+AnnCpVcAvXS\n\
         ew1jmTKnSa+7xbewFspg",
        "MIIBMzCB2qADAgECAgEHMAoGCCqGSM49BAMCMBkxFzAVBgNVBAoMDldpdGhvdXQg\n\
         YSBuYW1lMB4XDTEzMDEzMTAwMDAwMFoXDTIzMDMwODAwMDAwMFowGTEXMBUGA1UE\n\
         CgwOV2l0aG91dCBhIG5hbWUwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAASbJmBq\n\
         mf3SjYhKW/zLoKmzwN4QSP6chuDIjQSNm+2Qn3/xVVrh3jssgcu5HB6xtdSBhG3t\n\
         aW728QlJgYhh3nb0oxMwETAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0gA\n\
         MEUCIB9GO1zcNnRV6mpRIEUSvLr/OhtV+M225FhLcI5pN+VjAiEA+5QfGUDeeK61\n\
         p89NeslBnNmnroJLH82Ie4BAFFO/n0Q=",
    ];

    #[test]
    fn an_authority_that_has_expired_is_told_by_its_name_and_date() {
        let pem = AUTHORITIES.map(|text| {
            format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
        });
        let pem = pem.concat();
        let given = certificates(&pem, "ca").unwrap();
        // The second in which the first one ends, the one behind it, and the day after.
        let told = |given: &[CertificateDer<'_>], seconds| {
            expired(given, UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)))
        };

        assert_eq!(told(&given, 1_678_187_597), None);
        let one = told(&given, 1_678_187_598).unwrap();
        assert!(
            one.starts_with(
                "the certificate of the authority `Example Root Ä1` in `ca` has expired, on 2023-03-07; "
            ),
            "{one}"
        );
        let both = told(&given, 1_678_300_000).unwrap();
        assert!(both.contains("`Example Root Ä1` in `ca`, and 1 more of it, has"), "{both}");
        let other = told(&given[1..], 1_678_300_000).unwrap();
        assert!(other.contains("`Without a name` in `ca` has expired, on 2023-03-08"), "{other}");
    }

    #[test]
    fn a_key_with_a_passphrase_is_told_with_what_to_write() {
        for key in [
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIC\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\
             DEK-Info: AES-256-CBC,17AF\n\nMIIC\n-----END RSA PRIVATE KEY-----\n",
        ] {
            let (certificate, private_key) = (Some(String::new()), Some(key.to_owned()));
            let message =
                TlsSettings { ca: None, certificate, private_key }.check().unwrap_err().message;
            assert!(message.contains("openssl pkey") && !message.contains("MIIC"), "{message}");
        }
    }
}
