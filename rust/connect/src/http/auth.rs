// SPDX-License-Identifier: Apache-2.0
//! Who calls: headers whose secrets may change, access tokens, and signatures.
//!
//! What a server is shown is added when a request leaves, and not when it is made: rows may wait in
//! between. After a refusal the secrets are read again, once for all calls of the process, and the
//! request leaves once more, in another attempt. Nothing was done about it, so that goes for all methods.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::StatusCode;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use serde::Deserialize;
use sparkawait_task::error::StartError;
use sparkawait_task::secret::{Secret, Sources};
use sparkawait_task::shared::{Lender, Lent};
use tokio::runtime::Handle;

use super::clients::Clients;
use super::failure::bad_request;
use super::oauth::{TokenConfig, Tokens};
use super::reply::Outgoing;
use super::sigv4::{KeysConfig, Signer};
use crate::failure::Failure;
use crate::settings::key_of;
use crate::template::Template;

/// The secrets of this process, by what tells them apart.
static SECRETS: Lender = Lender::new();

/// The access tokens of this process, by their clients.
static TOKENS: Lender = Lender::new();

/// Who calls. Has no `Debug`: it has secrets.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AuthConfig {
    /// The header `Authorization`.
    Header(String),
    Oauth2(TokenConfig),
    AwsSigv4(KeysConfig),
}

/// What reads secrets again.
pub(super) struct Readers<'a> {
    /// What tells them from others, by their names in the description.
    pub(super) told: &'a BTreeMap<String, String>,
    pub(super) sources: &'a Sources,
}

/// What requests show of who calls, where that changes.
pub(super) struct Auth {
    headers: Vec<SecretHeader>,
    own: Option<Own>,
}

enum Own {
    Token(Lent<Arc<Tokens>>),
    Signature(Signer),
}

/// A header whose value is a secret that may change.
struct SecretHeader {
    name: HeaderName,
    secret: Lent<Secret>,
    /// The version that requests have by their templates.
    first: u64,
    current: ArcSwap<(u64, Option<HeaderValue>)>,
}

impl AuthConfig {
    /// Checks what can be known on the driver.
    pub(super) fn check(&self) -> Result<(), StartError> {
        match self {
            Self::Header(_) => Ok(()),
            Self::Oauth2(config) => config.check(),
            Self::AwsSigv4(config) => config.check(),
        }
    }
}

impl Auth {
    /// Starts what requests show; `None` if it is the same in all of them.
    pub(super) fn start(
        config: Option<&AuthConfig>,
        headers: &[(String, String)],
        readers: &Readers<'_>,
        clients: &Arc<Clients>,
        runtime: &Handle,
    ) -> Result<Option<Self>, StartError> {
        let mut changing = Vec::new();
        for (index, (name, template)) in headers.iter().enumerate() {
            let option = format!("header {index}");
            if readers.sources.contains_key(&option)
                && let Ok(name) = HeaderName::from_bytes(name.as_bytes())
                && let Some(text) = Template::parse(template, "headers")?.as_literal()
            {
                changing.push(SecretHeader::new(name, readers.lend(&option, text, runtime)?));
            }
        }
        let own = match config {
            Some(AuthConfig::Header(text)) => {
                if readers.sources.contains_key("auth") {
                    let secret = readers.lend("auth", text, runtime)?;
                    changing.push(SecretHeader::new(AUTHORIZATION, secret));
                }
                None
            }
            Some(AuthConfig::Oauth2(config)) => {
                let secret = readers.lend("auth", &config.secret, runtime)?;
                let source = readers.told.get("auth");
                let own_secret = source.is_none().then_some(&config.secret);
                let key = key_of(&(config.identity(), source, own_secret, clients.key()?))?;
                let make = || Tokens::new(config, secret, clients, runtime);
                Some(Own::Token(TOKENS.lend(&key, runtime, make)?))
            }
            Some(AuthConfig::AwsSigv4(config)) => {
                let secret = readers.lend("auth", &config.secret, runtime)?;
                Some(Own::Signature(Signer::new(config, secret)))
            }
            None => None,
        };
        let is_any = own.is_some() || !changing.is_empty();
        Ok(is_any.then_some(Self { headers: changing, own }))
    }

    /// Has a request show who calls; returns which version that is.
    pub(super) async fn show(&self, request: &mut Outgoing) -> Result<u64, Failure> {
        let mut shown = 0;
        for header in &self.headers {
            let version = header.secret.version();
            shown += version;
            if version != header.first {
                let value = header.value(version).ok_or_else(|| {
                    let name = &header.name;
                    bad_request(&format!(
                        "the secret in header `{name}` has characters that no header may have"
                    ))
                })?;
                request.set(header.name.clone(), value);
            }
        }
        match &self.own {
            Some(Own::Token(tokens)) => {
                let token = Tokens::get(tokens).await?;
                shown += token.number;
                request.set(AUTHORIZATION, token.value.clone());
            }
            Some(Own::Signature(signer)) => shown += signer.sign(request)?,
            None => {}
        }
        Ok(shown)
    }

    /// Whether a status says that the server does not take what it was shown.
    pub(super) fn is_refusal(&self, status: StatusCode) -> bool {
        // AWS answers this for tokens that have ended.
        let is_forbidden = status == StatusCode::FORBIDDEN;
        status == StatusCode::UNAUTHORIZED || (is_forbidden && self.is_of_aws())
    }

    /// Whether requests are signed for AWS, which says in the code of an error what others say in a status.
    pub(super) fn is_of_aws(&self) -> bool {
        matches!(self.own, Some(Own::Signature(_)))
    }

    /// Looks for something else to show than the version that was refused; returns whether there is.
    pub(super) async fn renew(&self, refused: u64) -> bool {
        if self.version() != refused {
            return true;
        }
        let mut is_new = false;
        for header in &self.headers {
            is_new |= header.secret.instead_of(&header.secret.text()).await.is_some();
        }
        match &self.own {
            Some(Own::Token(tokens)) => is_new |= Tokens::renew(tokens).await,
            Some(Own::Signature(signer)) => is_new |= signer.renew().await,
            None => {}
        }
        is_new
    }

    /// Whether there may be something else to show before long.
    pub(super) fn may_change(&self) -> bool {
        let is_fixed = |own: &Own| matches!(own, Own::Signature(signer) if !signer.may_change());
        !self.headers.is_empty() || self.own.as_ref().is_some_and(|own| !is_fixed(own))
    }

    fn version(&self) -> u64 {
        let headers = self.headers.iter().map(|it| it.secret.version()).sum::<u64>();
        headers
            + match &self.own {
                Some(Own::Token(tokens)) => tokens.number(),
                Some(Own::Signature(signer)) => signer.version(),
                None => 0,
            }
    }
}

impl Readers<'_> {
    /// Returns a secret that the process shares, with the text that it has now.
    fn lend(&self, name: &str, text: &str, runtime: &Handle) -> Result<Lent<Secret>, StartError> {
        let reader = self.sources.get(name).cloned();
        let source = self.told.get(name).filter(|_| reader.is_some());
        let key = key_of(&(source, source.is_none().then_some(text)))?;
        let _entered = runtime.enter();
        let secret = SECRETS
            .lend(&key, runtime, || Ok::<_, StartError>(Secret::new(text, reader.clone())))?;
        // What a task was started with is the newest.
        secret.replace(Secret::new(text, reader));
        Ok(secret)
    }
}

impl SecretHeader {
    fn new(name: HeaderName, secret: Lent<Secret>) -> Self {
        let first = secret.version();
        Self { name, secret, first, current: ArcSwap::from_pointee((first, None)) }
    }

    /// Returns the value of a version, or of a newer one; `None` if no header may have it.
    fn value(&self, version: u64) -> Option<HeaderValue> {
        let current = self.current.load();
        if current.0 == version
            && let Some(value) = &current.1
        {
            return Some(value.clone());
        }
        let value = secret_value(&self.secret.text())?;
        self.current.store(Arc::new((version, Some(value.clone()))));
        Some(value)
    }
}

/// Makes the value of a header that nobody is shown; `None` if no header may have it.
pub(super) fn secret_value(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}
