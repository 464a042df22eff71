// SPDX-License-Identifier: Apache-2.0
//! Access tokens for the credentials of a client (OAuth 2.0, RFC 6749, 4.4).
//!
//! ```text
//!   fetched          4/5 of its life        its end
//!      |---- used ------|--- used, fetched aside ---|--- calls wait for a new one
//! ```
//!
//! A process has one token for all of its tasks, and fetches one at a time, at most once a second. A
//! task of its own does that, which goes on where the calls that wait for the token have given up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use rand::RngExt;
use serde::Deserialize;
use serde_json::Value;
use sparkawait_core::policy::CallSign;
use sparkawait_task::cause::Cause;
use sparkawait_task::error::StartError;
use sparkawait_task::secret::{Secret, show};
use sparkawait_task::shared::Lent;
use sparkawait_task::supervision::spawn_aside;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use url::Url;

use super::address::path_of;
use super::clients::Clients;
use super::failure::{Refusal, RetryStatuses, refused, status_failure, transport_failure};
use super::reply::Outgoing;
use super::sending::{next, send_until_answered};
use super::watch::{Clock, Watch};
use crate::failure::Failure;
use crate::making::Making;
use crate::template::percent_encoded;

/// Least time from one request for a token to the next.
const PAUSE: Duration = Duration::from_secs(1);

/// Longest time from one failed request to the next, while there is a token.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Longest time that a request for a token takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Most bytes of an answer.
const MOST_BYTES: usize = 1 << 20;

/// Who gets tokens, and where. Has no `Debug`: it has a secret.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenConfig {
    pub(super) secret: String,
    token_url: String,
    client_id: String,
    parameters: Vec<(String, String)>,
    /// Whether the client says who it is in a header, and not in the form.
    in_header: bool,
}

/// A token, and until when it is used.
pub(super) struct Token {
    pub(super) value: HeaderValue,
    /// Which one it is of those that were fetched.
    pub(super) number: u64,
    renew: Option<Instant>,
    ends: Option<Instant>,
}

/// The tokens of one client.
pub(super) struct Tokens {
    config: TokenConfig,
    secret: Lent<Secret>,
    clients: Arc<Clients>,
    url: Url,
    host: String,
    current: ArcSwapOption<Token>,
    /// Locked for as long as a look takes.
    fetching: Mutex<Fetching>,
    is_renewing: AtomicBool,
    runtime: Handle,
}

/// The last request for a token.
#[derive(Default)]
struct Fetching {
    begun: Option<Instant>,
    token: Option<Making<Result<Arc<Token>, Failure>>>,
}

/// What a server answers that gives a token.
#[derive(Deserialize)]
struct Answer {
    access_token: String,
    token_type: Option<String>,
    #[serde(default)]
    expires_in: Value,
}

impl TokenConfig {
    /// What tells it from others, without its secret.
    pub(super) fn identity(&self) -> (&str, &str, &[(String, String)], bool) {
        (&self.token_url, &self.client_id, &self.parameters, self.in_header)
    }

    /// Checks what can be known on the driver.
    pub(super) fn check(&self) -> Result<(), StartError> {
        self.url().map(drop)
    }

    fn url(&self) -> Result<Url, StartError> {
        let url = Url::parse(&self.token_url).ok();
        let url = url.filter(|it| matches!(it.scheme(), "http" | "https") && it.has_host());
        url.ok_or_else(|| StartError::option("`token_url` is not an address of http or https"))
    }
}

impl Token {
    fn is_good(&self, now: Instant) -> bool {
        self.ends.is_none_or(|ends| now < ends)
    }
}

impl Fetching {
    /// Starts the next request, a second after the one before began.
    fn start(&mut self, tokens: &Arc<Tokens>) -> Making<Result<Arc<Token>, Failure>> {
        let now = Instant::now();
        let begun = self.begun.map_or(now, |before| now.max(before + PAUSE));
        self.begun = Some(begun);
        let asking = Arc::clone(tokens);
        let token = Making::start(&tokens.runtime, "http access token", async move {
            sleep_until(begun).await;
            asking.fetch_now(begun).await
        });
        self.token.insert(token).clone()
    }
}

impl Tokens {
    /// Makes a client that has no token yet.
    pub(super) fn new(
        config: &TokenConfig,
        secret: Lent<Secret>,
        clients: &Arc<Clients>,
        runtime: &Handle,
    ) -> Result<Arc<Self>, StartError> {
        let url = config.url()?;
        let host = format!("the token server `{}`", url.host_str().unwrap_or_default());
        Ok(Arc::new(Self {
            config: config.clone(),
            secret,
            clients: Arc::clone(clients),
            url,
            host,
            current: ArcSwapOption::empty(),
            fetching: Mutex::default(),
            is_renewing: AtomicBool::new(false),
            runtime: runtime.clone(),
        }))
    }

    /// The number of the token that is used now; 0 if there is none.
    pub(super) fn number(&self) -> u64 {
        self.current.load().as_ref().map_or(0, |it| it.number)
    }

    /// Returns a token; the first one, and one in place of a token that has ended, is waited for.
    pub(super) async fn get(this: &Arc<Self>) -> Result<Arc<Token>, Failure> {
        let now = Instant::now();
        if let Some(token) = this.current.load_full().filter(|it| it.is_good(now)) {
            if token.renew.is_some_and(|renew| now >= renew) {
                Self::renew_aside(this, &token);
            }
            return Ok(token);
        }
        // Apart: what each call in progress keeps of it is a pointer.
        Box::pin(Self::fetch(this, this.number())).await
    }

    /// Fetches a token in place of the one that was refused; returns whether there is another one.
    pub(super) async fn renew(this: &Arc<Self>) -> bool {
        let known = this.number();
        // The row fails by what its server said.
        Self::fetch(this, known).await.is_ok_and(|it| it.number != known)
    }

    /// Fetches a token while the one before is used; again and again until that ends.
    fn renew_aside(this: &Arc<Self>, token: &Arc<Token>) {
        if this.is_renewing.swap(true, Ordering::AcqRel) {
            return;
        }
        let (me, token) = (Arc::downgrade(this), Arc::clone(token));
        spawn_aside(&this.runtime, "http access tokens", async move {
            let mut pause = PAUSE;
            while token.is_good(Instant::now())
                && let Some(tokens) = Weak::upgrade(&me)
                && let Err(failed) = Self::fetch(&tokens, token.number).await
            {
                let reason = failed.call.summary;
                tracing::warn!(
                    reason,
                    "an access token could not be renewed; the last one is used"
                );
                drop(tokens);
                sleep(pause + pause.mul_f64(chance())).await;
                pause = LONGEST_PAUSE.min(pause * 2);
            }
            if let Some(tokens) = Weak::upgrade(&me) {
                tokens.is_renewing.store(false, Ordering::Release);
            }
        });
    }

    /// Waits for a token, unless another one than `known` has come meanwhile. Those who wait for one
    /// request share what it came to.
    async fn fetch(this: &Arc<Self>, known: u64) -> Result<Arc<Token>, Failure> {
        let token = {
            let mut fetching = this.fetching.lock().unwrap_or_else(PoisonError::into_inner);
            let is_newer = |it: &Arc<Token>| it.number != known && it.is_good(Instant::now());
            if let Some(token) = this.current.load_full().filter(is_newer) {
                return Ok(token);
            }
            match fetching.token.as_ref().filter(|it| !it.is_over()) {
                Some(token) => token.clone(),
                None => fetching.start(this),
            }
        };
        let panicked = || refused(&this.host, "asking for a token panicked; the log says why");
        token.made().await.unwrap_or_else(|| Err(panicked().before_call()))
    }

    /// Asks for a token, and has it used.
    async fn fetch_now(&self, begun: Instant) -> Result<Arc<Token>, Failure> {
        let fetched = if let Ok(answer) = timeout(PATIENCE, self.ask()).await {
            answer.and_then(|answer| self.token(&answer, self.number() + 1, begun))
        } else {
            let call = refused(&self.host, "no token came within 30 seconds").call;
            let sign = CallSign::TimedOut;
            Err(Failure { sign, ..Failure::passing(Cause::NotSent, call) })
        };
        // The call itself was not made.
        let token = Arc::new(fetched.map_err(Failure::before_call)?);
        self.current.store(Some(Arc::clone(&token)));
        Ok(token)
    }

    fn token(&self, answer: &Answer, number: u64, asked: Instant) -> Result<Token, Failure> {
        let kind = answer.token_type.as_deref().unwrap_or("Bearer");
        if !kind.eq_ignore_ascii_case("bearer") {
            return Err(refused(&self.host, "it gave a token of another type than `Bearer`"));
        }
        let value = HeaderValue::from_str(&format!("Bearer {}", answer.access_token));
        let mut value =
            value.map_err(|_| refused(&self.host, "it gave a token that no header may have"))?;
        value.set_sensitive(true);
        let seconds = match &answer.expires_in {
            Value::String(text) => text.parse().ok(),
            value => value.as_f64(),
        };
        let life = seconds.and_then(|it: f64| Duration::try_from_secs_f64(it.max(1.0)).ok());
        // Each process in a moment of its own.
        let renew = life.and_then(|life| asked.checked_add(life.mul_f64(0.8 + 0.1 * chance())));
        let ends = life.and_then(|life| asked.checked_add(life));
        Ok(Token { value, number, renew, ends })
    }

    /// Asks for a token; with another secret, if the one before was refused and there is one.
    async fn ask(&self) -> Result<Answer, Failure> {
        let is_refused = |it: &Failure| matches!(it.call.status, Some(400 | 401));
        let ask = || self.ask_now().boxed();
        show(&[&*self.secret], ask, is_refused, Failure::that_may_pass).await
    }

    async fn ask_now(&self) -> Result<Answer, Failure> {
        let request = self.request(&self.secret.text())?;
        let (status, headers, body) = self.exchange(request).await?;
        // What comes with a success may be a token, and is never quoted.
        if !status.is_success() {
            let statuses = RetryStatuses::default();
            let (headers, body, is_throttled) = (&headers, &body[..], false);
            let refusal = Refusal { status, headers, body, is_throttled };
            return Err(status_failure(&self.host, &refusal, &statuses));
        }
        let wrong = || refused(&self.host, "its answer is not JSON with an `access_token`");
        serde_json::from_slice(&body).map_err(|_| wrong())
    }

    fn request(&self, secret: &str) -> Result<Outgoing, Failure> {
        let wrong = || refused(&self.host, "it cannot be asked at this address");
        let TokenConfig { client_id, parameters, in_header, .. } = &self.config;
        let given = parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        // Another grant than that of a client's own credentials has what it needs beside it.
        let is_said = parameters.iter().any(|(name, _)| name == "grant_type");
        let own_grant = (!is_said).then_some(("grant_type", "client_credentials"));
        let mut form: Vec<(&str, &str)> = own_grant.into_iter().chain(given).collect();
        let mut own = Vec::new();
        if *in_header {
            let text =
                format!("{}:{}", percent_encoded(client_id.as_str()), percent_encoded(secret));
            let value = format!("Basic {}", STANDARD.encode(text));
            let mut value = HeaderValue::try_from(value).map_err(|_| wrong())?;
            value.set_sensitive(true);
            own.push((AUTHORIZATION, value));
        } else {
            form.extend([("client_id", client_id.as_str()), ("client_secret", secret)]);
        }
        let pairs = form
            .iter()
            .map(|(name, it)| format!("{}={}", percent_encoded(*name), percent_encoded(*it)));
        let body = pairs.collect::<Vec<_>>().join("&");
        let fixed = [
            (HOST, ""),
            (CONTENT_TYPE, "application/x-www-form-urlencoded"),
            (ACCEPT, "application/json"),
        ];
        let fixed = fixed.map(|(name, value)| (name, HeaderValue::from_static(value)));
        Ok(Outgoing {
            method: Method::POST,
            place: self.clients.place(&self.url, false).ok_or_else(wrong)?,
            path: path_of(&self.url).ok_or_else(wrong)?,
            fixed: Arc::new(HeaderMap::from_iter(fixed)),
            own,
            body: Some(body.into()),
            is_redirected: false,
        })
    }

    /// Sends a request, and reads the whole response.
    async fn exchange(&self, request: Outgoing) -> Result<(StatusCode, HeaderMap, Bytes), Failure> {
        let watch = Watch::new(&Arc::new(Clock::new(None)));
        // Two tokens are as good as one.
        let reply = send_until_answered(&self.clients, &watch, MOST_BYTES, &request).await;
        let mut reply = reply.map_err(|broken| transport_failure(&self.host, &request, broken))?;
        let (status, headers) = (reply.status, reply.headers.clone());
        let mut body = BytesMut::new();
        while let Some(chunk) = next(&self.host, MOST_BYTES, &watch, &mut reply).await? {
            if body.len() + chunk.len() > MOST_BYTES {
                return Err(refused(&self.host, "its answer is too long"));
            }
            body.extend_from_slice(&chunk);
        }
        Ok((status, headers, body.freeze()))
    }
}

/// Returns a number from 0 to 1.
fn chance() -> f64 {
    rand::rng().random()
}
