// SPDX-License-Identifier: Apache-2.0
//! Whom a client trusts, and how it shows who it is.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde::{Deserialize, Serialize};

use super::client::Version;
use crate::native::StartError;

/// Certificates and a key, as PEM texts. Has no `Debug`: the key is a secret.
#[derive(Deserialize, Serialize)]
pub(super) struct TlsSettings {
    /// Certificates to trust instead of the system's.
    ca: Option<String>,
    /// The client's own certificate, with those between it and a root.
    cert: Option<String>,
    /// Its private key.
    key: Option<String>,
}

impl TlsSettings {
    /// Makes the configuration of a client that speaks `version`.
    pub(super) fn config(&self, version: Version) -> Result<ClientConfig, StartError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| StartError::option(format!("TLS: {error}")))?
            .with_root_certificates(self.roots()?);
        let mut config = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
                    .map_err(|_| StartError::option("`key` holds no private key in PEM form"))?;
                builder.with_client_auth_cert(certificates(cert, "cert")?, key).map_err(
                    |error| StartError::option(format!("`cert` and `key` do not fit: {error}")),
                )?
            }
            _ => builder.with_no_client_auth(),
        };
        let protocols: &[&[u8]] = match version {
            Version::Auto => &[b"h2", b"http/1.1"],
            Version::Http1 => &[b"http/1.1"],
            Version::Http2 => &[b"h2"],
        };
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(config)
    }

    fn roots(&self) -> Result<RootCertStore, StartError> {
        let mut roots = RootCertStore::empty();
        let Some(ca) = &self.ca else {
            // What cannot be read is left out: a server that needs it is refused, and says so.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            return Ok(roots);
        };
        for certificate in certificates(ca, "ca")? {
            roots.add(certificate).map_err(|error| {
                StartError::option(format!("`ca` holds a certificate that is no root: {error}"))
            })?;
        }
        Ok(roots)
    }
}

fn certificates(pem: &str, option: &str) -> Result<Vec<CertificateDer<'static>>, StartError> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|_| StartError::option(format!("`{option}` is no PEM text")))?;
    if found.is_empty() {
        return Err(StartError::option(format!("`{option}` holds no certificate in PEM form")));
    }
    Ok(found)
}
