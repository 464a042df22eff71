// SPDX-License-Identifier: Apache-2.0
//! Signatures of requests as AWS wants them: Signature Version 4.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use jiff::{SignedDuration, Timestamp};
use percent_encoding::percent_decode_str;
use ring::digest::{SHA256, digest};
use ring::hmac;
use serde::Deserialize;
use sparkawait_task::error::StartError;
use sparkawait_task::secret::Secret;
use sparkawait_task::shared::Lent;
use sparkawait_task::supervision::spawn_aside;
use tokio::runtime::Handle;

use super::failure::bad_request;
use super::reply::Outgoing;
use crate::failure::Failure;
use crate::template::{percent_encode_from, percent_encode_path_from, percent_encoded};

const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
const CONTENT: HeaderName = HeaderName::from_static("x-amz-content-sha256");

/// Which keys sign requests, and for what. Has no `Debug`: it has a key.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeysConfig {
    /// The keys as programs for `credential_process` print them.
    pub(super) secret: String,
    service: String,
    region: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Keys {
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    /// When the token ends, as programs for `credential_process` say it.
    expiration: Option<String>,
}

/// How long before keys end they are read again. The AWS SDKs do so at most a quarter of an hour before.
const EARLY: SignedDuration = SignedDuration::from_mins(5);

/// How often a source is asked that still has the keys which end.
const ASKED_EVERY: u64 = 15;

/// Signs requests.
pub(super) struct Signer {
    secret: Arc<Lent<Secret>>,
    scope: Scope,
    ready: ArcSwapOption<Ready>,
    /// The second of the last renewal that nobody was refused for.
    asked: AtomicU64,
}

struct Scope {
    service: String,
    region: String,
}

/// What all requests of a day are signed with.
struct Ready {
    version: u64,
    day: String,
    keys: Keys,
    key: [u8; 32],
    /// When to look for others.
    due: Option<Timestamp>,
}

/// What of a request is signed.
struct Signed<'a> {
    method: &'a str,
    path: &'a str,
    query: &'a str,
    headers: &'a BTreeMap<String, String>,
    /// The hash of the body.
    content: &'a str,
}

impl KeysConfig {
    /// Checks what can be known on the driver.
    pub(super) fn check(&self) -> Result<(), StartError> {
        Keys::read(&self.secret).map(drop).map_err(StartError::option)
    }
}

impl Keys {
    fn read(text: &str) -> Result<Self, &'static str> {
        // The message of the parser may quote a key.
        serde_json::from_str(text).map_err(|_| {
            "the credentials for `aws_sigv4` must be JSON with `AccessKeyId` and `SecretAccessKey`"
        })
    }
}

impl Signer {
    /// Makes what signs with the keys that `secret` has.
    pub(super) fn new(config: &KeysConfig, secret: Lent<Secret>) -> Self {
        let scope = Scope { service: config.service.clone(), region: config.region.clone() };
        let (ready, asked) = (ArcSwapOption::empty(), AtomicU64::new(0));
        Self { secret: Arc::new(secret), scope, ready, asked }
    }

    /// Signs a request; returns the version of the keys.
    pub(super) fn sign(&self, request: &mut Outgoing) -> Result<u64, Failure> {
        let now = Timestamp::now();
        let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
        let ready = self.ready(&time[..8]).map_err(bad_request)?;
        if self.ends_soon(&ready, now) {
            self.renew_aside();
        }
        let content = hex(digest(&SHA256, request.body.as_deref().unwrap_or_default()).as_ref());
        let value = |text: &str| HeaderValue::from_str(text).map_err(|_| wrong_header());
        request.set(DATE, value(&time)?);
        if self.scope.sends_hash() {
            request.set(CONTENT, value(&content)?);
        }
        if let Some(token) = &ready.keys.session_token {
            let mut token = value(token)?;
            token.set_sensitive(true);
            request.set(TOKEN, token);
        }
        let headers = signed_headers(request);
        let signed = Signed {
            method: request.method.as_str(),
            path: request.path.path(),
            query: request.path.query().unwrap_or_default(),
            headers: &headers,
            content: &content,
        };
        let mut authorization = value(&self.scope.authorization(&ready, &time, &signed))?;
        authorization.set_sensitive(true);
        request.set(AUTHORIZATION, authorization);
        Ok(ready.version)
    }

    /// The version of the keys.
    pub(super) fn version(&self) -> u64 {
        self.secret.version()
    }

    /// Whether there may be other keys.
    pub(super) fn may_change(&self) -> bool {
        self.secret.may_change()
    }

    /// Reads the keys again; returns whether there are others.
    pub(super) async fn renew(&self) -> bool {
        self.secret.instead_of(&self.secret.text()).await.is_some()
    }

    /// Whether it is time to look for other keys; says so to one caller.
    fn ends_soon(&self, ready: &Ready, now: Timestamp) -> bool {
        let is_due = ready.due.is_some_and(|it| now >= it);
        let second = u64::try_from(now.as_second()).unwrap_or_default();
        let next = |asked| (second >= asked + ASKED_EVERY).then_some(second);
        is_due && self.asked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }

    /// Reads the keys again, while calls are signed with those that there are.
    fn renew_aside(&self) {
        let secret = Arc::clone(&self.secret);
        spawn_aside(&Handle::current(), "aws keys", async move {
            let known = secret.text();
            secret.instead_of(&known).await;
        });
    }

    fn ready(&self, day: &str) -> Result<Arc<Ready>, &'static str> {
        let version = self.secret.version();
        let ready = self.ready.load();
        if let Some(ready) = ready.as_ref().filter(|it| it.version == version && it.day == day) {
            return Ok(Arc::clone(ready));
        }
        let keys = Keys::read(&self.secret.text())?;
        let key = self.scope.key(&keys.secret_access_key, day);
        let ends: Option<Timestamp> = keys.expiration.as_ref().and_then(|it| it.parse().ok());
        let due = ends.map(|it| it.saturating_sub(EARLY).unwrap_or(Timestamp::MIN));
        let ready = Arc::new(Ready { version, day: day.to_owned(), keys, key, due });
        self.ready.store(Some(Arc::clone(&ready)));
        Ok(ready)
    }
}

impl Scope {
    /// Whether the hash of the body is sent along, as searches without servers want it, too.
    fn sends_hash(&self) -> bool {
        self.is_s3() || self.service == "aoss"
    }

    /// Whether paths are signed as they are.
    fn is_s3(&self) -> bool {
        matches!(self.service.as_str(), "s3" | "s3-outposts" | "s3express" | "s3-object-lambda")
    }

    /// Returns what signs the requests of a day.
    fn key(&self, secret: &str, day: &str) -> [u8; 32] {
        let key = mac(format!("AWS4{secret}").as_bytes(), day);
        let key = mac(&mac(&key, &self.region), &self.service);
        mac(&key, "aws4_request")
    }

    /// Returns the value of the header `Authorization`.
    fn authorization(&self, ready: &Ready, time: &str, signed: &Signed<'_>) -> String {
        let mut canonical = format!(
            "{}\n{}\n{}\n",
            signed.method,
            canonical_path(signed.path, self.is_s3()),
            canonical_query(signed.query)
        );
        for (name, value) in signed.headers {
            canonical.extend([name.as_str(), ":", value.as_str(), "\n"]);
        }
        let names = signed.headers.keys().map(String::as_str).collect::<Vec<_>>().join(";");
        canonical.extend(["\n", names.as_str(), "\n", signed.content]);
        let scope = format!("{}/{}/{}/aws4_request", ready.day, self.region, self.service);
        let hash = hex(digest(&SHA256, canonical.as_bytes()).as_ref());
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{hash}");
        let signature = hex(&mac(&ready.key, &text));
        let id = &ready.keys.access_key_id;
        format!(
            "AWS4-HMAC-SHA256 Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}"
        )
    }
}

/// Returns the headers of a request that are signed: those that say what is asked of AWS.
fn signed_headers(request: &Outgoing) -> BTreeMap<String, String> {
    let mut signed = BTreeMap::new();
    let fixed = request.fixed.iter();
    for (name, value) in fixed.chain(request.own.iter().map(|(name, value)| (name, value))) {
        let is_signed =
            *name == HOST || *name == CONTENT_TYPE || name.as_str().starts_with("x-amz-");
        if is_signed {
            signed.insert(name.as_str().to_owned(), canonical_value(value.as_bytes()));
        }
    }
    // A request that names no host of its own has an empty one.
    let host = signed.entry(HOST.as_str().to_owned()).or_default();
    if host.is_empty() {
        *host = canonical_value(request.place.origin.host_header.as_bytes());
    }
    signed
}

/// Returns a header's value without the spaces that mean nothing.
fn canonical_value(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    text.split(' ').filter(|it| !it.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Returns the path that is signed: S3 takes it as it is, with the slashes of keys, all others encode it
/// once more.
fn canonical_path(path: &str, is_s3: bool) -> String {
    let mut segments: Vec<Cow<'_, [u8]>> = Vec::new();
    let behind = path.strip_prefix('/').unwrap_or(path);
    for segment in behind.split('/') {
        if is_s3 {
            segments.push(percent_decode_str(segment).into());
            continue;
        }
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            _ => segments.push(Cow::Borrowed(segment.as_bytes())),
        }
    }
    let mut out = Vec::new();
    for segment in &segments {
        out.push(b'/');
        let start = out.len();
        out.extend_from_slice(segment);
        if is_s3 {
            percent_encode_path_from(start, &mut out);
        } else {
            percent_encode_from(start, &mut out);
        }
    }
    let is_open = !is_s3 && matches!(behind.rsplit('/').next(), Some("" | "." | ".."));
    if out.is_empty() || (is_open && out.last() != Some(&b'/')) {
        out.push(b'/');
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Returns the parameters that are signed: encoded alike, and in their order.
fn canonical_query(query: &str) -> String {
    let encoded = |text: &str| percent_encoded(percent_decode_str(text).collect::<Vec<u8>>());
    let pairs = query.split('&').filter(|it| !it.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let mut pairs: Vec<_> = pairs.map(|(name, value)| (encoded(name), encoded(value))).collect();
    pairs.sort_unstable();
    let texts: Vec<_> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
    texts.join("&")
}

fn mac(key: &[u8], text: &str) -> [u8; 32] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes());
    let mut bytes = [0; 32];
    bytes.copy_from_slice(tag.as_ref());
    bytes
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        #[expect(clippy::let_underscore_must_use, reason = "writing to a string cannot fail")]
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn wrong_header() -> Failure {
    bad_request("the keys for `aws_sigv4` have characters that no header may have")
}

#[cfg(test)]
mod tests;
