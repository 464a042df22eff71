// SPDX-License-Identifier: Apache-2.0
//! Encryption of connections, with libpq's meaning of `sslmode`.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use serde::Deserialize;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::native::StartError;

/// Files of certificates, in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Certificates {
    /// The authorities that the server's certificate must come from; the system's by default.
    ca: Option<String>,
    /// The client's own certificate and those that lead to its authority.
    certificate: Option<String>,
    /// The key of the client's certificate.
    key: Option<String>,
}

impl Certificates {
    /// Makes what opens encrypted connections; `verifies` even without an authority given.
    pub(crate) fn connector(&self, verifies: bool) -> Result<MakeRustlsConnect, StartError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| StartError::option(format!("TLS cannot be used: {error}")))?;
        let builder = if verifies || self.ca.is_some() {
            builder.with_root_certificates(self.roots()?)
        } else {
            // As libpq does with `prefer` and `require`: encrypted, and anyone may answer.
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        };
        let config = match (&self.certificate, &self.key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(certificate), Some(key)) => {
                let key = PrivateKeyDer::from_pem_file(Path::new(key))
                    .map_err(|error| unreadable("key", key, error))?;
                builder
                    .with_client_auth_cert(certificates("certificate", certificate)?, key)
                    .map_err(|error| unreadable("certificate", certificate, error))?
            }
            _ => return Err(StartError::option("give both `certificate` and `key`, or neither")),
        };
        Ok(MakeRustlsConnect::new(config))
    }

    fn roots(&self) -> Result<RootCertStore, StartError> {
        let mut roots = RootCertStore::empty();
        if let Some(path) = &self.ca {
            for certificate in certificates("ca", path)? {
                roots.add(certificate).map_err(|error| unreadable("ca", path, error))?;
            }
        } else {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        if roots.is_empty() {
            return Err(StartError::option(
                "no certificate authority was found on this machine; give `ca` a file",
            ));
        }
        Ok(roots)
    }
}

fn certificates(option: &str, path: &str) -> Result<Vec<CertificateDer<'static>>, StartError> {
    CertificateDer::pem_file_iter(Path::new(path))
        .and_then(Iterator::collect)
        .map_err(|error| unreadable(option, path, error))
}

fn unreadable(option: &str, path: &str, error: impl std::fmt::Display) -> StartError {
    StartError::option(format!("`{option}` names file `{path}`, which cannot be used: {error}"))
}

/// Takes any certificate, whose key must have signed the connection all the same.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
