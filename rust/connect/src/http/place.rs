// SPDX-License-Identifier: Apache-2.0
//! A server, and the connections to it that can be used again.
//!
//! A connection of HTTP/1.1 serves a call at a time and is kept between two. It is closed before the
//! server may do so, since a request that leaves at that moment is lost. One of HTTP/2 is shared; as
//! many are made as the calls need, and not one for each of many that start together.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::HeaderValue;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, Uri};
use hyper_util::client::proxy::matcher::Intercept;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::dials::Dial;
use super::http1::Line;
use super::http2::{SharedLine, Stream};
use super::protocol::Protocol;
use crate::dial::{HIGHEST_AGE, HIGHEST_IDLE};

/// Longest time that a connection is kept without a call, where a lost request must not be sent again and
/// the server does not say how long it keeps connections. Widespread servers do so for 5 seconds.
const CAREFUL_IDLE: Duration = Duration::from_secs(4);

/// How often idle connections are looked at.
pub(super) const SWEEP: Duration = Duration::from_secs(1);

/// How long before its server closes it a connection is left alone: a request takes a while to get there.
const MARGIN: Duration = Duration::from_secs(1);

/// For how long a server without a call that may be sent twice is taken for one that gets none.
const ONLY_CAREFUL: Duration = Duration::from_secs(60);

/// What a server closes before this was not closed because it was idle.
const SHORTEST_SEEN: Duration = Duration::from_secs(1);

/// For how long it counts that a server closed connections that were idle.
const SEEN_FOR: Duration = Duration::from_secs(5 * 60);

/// How long calls wait for a connection that another one makes, which takes two or three round trips.
pub(super) const PATIENCE: Duration = Duration::from_millis(250);

/// How long calls wait for another connection to a server that takes no request over the one that there
/// is; twice as long for each further one.
const NO_STREAM_PAUSE: Duration = Duration::from_secs(1);

/// How often they look whether it takes one.
const NO_STREAM_LOOK: Duration = Duration::from_millis(50);

/// Most connections that are made at a time because those before stalled or failed.
const WIDEST: usize = 64;

/// Most connections that are made on for calls which have given up.
const MOST_LEFT: usize = WIDEST;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// Whom a connection leads to.
pub(super) struct Origin {
    pub(super) is_https: bool,
    /// Without the brackets of IPv6.
    host: String,
    pub(super) port: u16,
    /// A column or a redirection names it, and nobody has allowed it.
    pub(super) is_of_row: bool,
    pub(super) authority: Authority,
    /// Its header.
    pub(super) host_header: HeaderValue,
    pub(super) uri: Uri,
    /// Whom it goes through.
    pub(super) proxy: Option<Intercept>,
    /// Whether a response had more headers than most servers send.
    pub(super) has_many_headers: AtomicBool,
}

impl Origin {
    /// Makes the server of an address; `None` if it can be none.
    pub(super) fn new(
        url: &url::Url,
        is_of_row: bool,
        proxy: impl FnOnce(&Uri) -> Option<Intercept>,
    ) -> Option<Self> {
        let is_https = url.scheme() == "https";
        let named = url.host_str()?;
        let text = match url.port() {
            Some(port) => format!("{named}:{port}"),
            None => named.to_owned(),
        };
        let authority = Authority::try_from(text.as_str()).ok()?;
        let parts = Uri::builder().scheme(url.scheme()).authority(authority.clone());
        let uri = parts.path_and_query("/").build().ok()?;
        Some(Self {
            is_https,
            host: named.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: url.port_or_known_default()?,
            is_of_row,
            authority,
            host_header: HeaderValue::try_from(text).ok()?,
            proxy: proxy(&uri),
            has_many_headers: AtomicBool::new(false),
            uri,
        })
    }

    /// Its name or address.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Whether requests go to a proxy, and name the server in their address.
    pub(super) fn is_forwarded(&self) -> bool {
        !self.is_https && self.proxy.is_some()
    }
}

/// A server with its connections.
pub(super) struct Place {
    pub(super) origin: Origin,
    /// Whether connections may speak HTTP/2.
    pub(super) may_share: bool,
    state: Mutex<State>,
    /// Told when a connection of HTTP/2 has room, or none is made any more.
    pub(super) news: Notify,
}

/// What is known and kept of a server.
pub(super) struct State {
    /// Idle ones; those that served last are at the end.
    idle: Vec<Line>,
    shared: Vec<Arc<SharedLine>>,
    /// Connections that are being made for calls which have given up.
    left: Vec<Dial>,
    pub(super) speaks: Option<Protocol>,
    /// Requests that one connection of HTTP/2 has at a time.
    streams: usize,
    /// When the connections that are being made were begun.
    seeks: Vec<(u64, Instant)>,
    next_seek: u64,
    /// Connections that may be made at a time whatever is needed: more after some that failed.
    width: usize,
    /// Calls that need a connection of HTTP/2 and have none.
    pub(super) lacking: usize,
    /// For how long the server says that it keeps connections.
    announced: Option<Duration>,
    /// For how long it kept one that it closed, at least, and when that was seen.
    seen: Option<(Duration, Instant)>,
    /// When a call came last that may be sent twice.
    carefree_at: Option<Instant>,
}

/// What a call that needs a connection does.
pub(super) enum Next {
    Take(Line),
    Share(Stream),
    /// It has one made; give the number back.
    Make(Option<u64>),
    /// Others do; it looks again on news, or then.
    Wait(Instant),
}

impl Place {
    pub(super) fn new(
        origin: Origin,
        may_share: bool,
        speaks: Option<Protocol>,
        streams: usize,
    ) -> Self {
        let state = State::new(speaks, streams);
        Self { origin, may_share, state: Mutex::new(state), news: Notify::new() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what the server says of its connections.
    pub(super) fn note(&self, headers: &HeaderMap) {
        let Some(announced) = headers.get(KEEP_ALIVE).and_then(announced) else { return };
        self.state().announced = Some(announced);
    }
}

/// Returns when to make another connection to a server that takes no request for the moment over those it
/// has, which were made at these times; `None`: at once, since there are none.
fn next_beside(closed: impl Iterator<Item = Instant>) -> Option<Instant> {
    let (count, last) =
        closed.fold((0, None), |(count, last), made| (count + 1, last.max(Some(made))));
    let doublings: u32 = count.clamp(1, 6) - 1;
    Some(last? + NO_STREAM_PAUSE * (1 << doublings))
}

/// Reads `timeout=5` out of a header.
fn announced(value: &HeaderValue) -> Option<Duration> {
    let parts = value.to_str().ok()?.split(',');
    let seconds = parts.filter_map(|it| it.trim().split_once('='));
    let timeout = seconds.into_iter().find(|(name, _)| name.trim().eq_ignore_ascii_case("timeout"));
    timeout?.1.trim().parse().ok().map(Duration::from_secs)
}

impl State {
    fn new(speaks: Option<Protocol>, streams: usize) -> Self {
        Self {
            idle: Vec::new(),
            shared: Vec::new(),
            left: Vec::new(),
            speaks,
            streams,
            seeks: Vec::new(),
            next_seek: 0,
            width: 1,
            lacking: 0,
            announced: None,
            seen: None,
            carefree_at: None,
        }
    }

    /// Says what a call does that needs a connection; a new one, if it says so.
    pub(super) fn next(
        &mut self,
        now: Instant,
        may_share: bool,
        is_new: bool,
        careful: bool,
    ) -> Next {
        if !careful {
            self.carefree_at = Some(now);
        }
        self.take_in(now);
        if !is_new && let Some(line) = self.take_idle(now, careful) {
            return Next::Take(line);
        }
        if let Some(stream) = self.take_stream(now, careful) {
            return Next::Share(stream);
        }
        let closed = self.shared.iter().filter(|it| it.streams() == 0);
        if let Some(until) = next_beside(closed.map(|it| it.made)).filter(|it| now < *it) {
            return Next::Wait(until.min(now + NO_STREAM_LOOK));
        }
        if !may_share || self.speaks == Some(Protocol::Http1) {
            return Next::Make(None);
        }
        let begun = self.seeks.len();
        self.seeks.retain(|(_, since)| now < *since + PATIENCE);
        if self.seeks.len() < begun {
            self.widen();
        }
        let needed = match self.speaks {
            // One that takes no request tells nothing of how many the next one takes.
            Some(Protocol::Http2) if self.streams > 0 => (self.lacking + 1).div_ceil(self.streams),
            _ => 1,
        };
        if self.seeks.len() >= needed.max(self.width) {
            let first = self.seeks.iter().map(|(_, since)| *since).min();
            return Next::Wait(first.unwrap_or(now) + PATIENCE);
        }
        self.next_seek += 1;
        self.seeks.push((self.next_seek, now));
        Next::Make(Some(self.next_seek))
    }

    fn widen(&mut self) {
        self.width = (self.width * 2).min(WIDEST);
    }

    fn take_idle(&mut self, now: Instant, careful: bool) -> Option<Line> {
        let longest = self.longest_idle(now, careful);
        while let Some(mut line) = self.idle.pop() {
            let idle = line.idle_since.map_or(Duration::ZERO, |since| now - since);
            if idle >= longest {
                // Those that served before it were idle for longer.
                if careful && !self.is_only_careful(now) {
                    self.idle.push(line);
                } else {
                    self.idle.clear();
                }
                return None;
            }
            if now < line.made + HIGHEST_AGE && line.is_usable() {
                return Some(line);
            }
        }
        None
    }

    /// Whether all calls are ones that must not be sent twice: what is too old for them is too old.
    fn is_only_careful(&self, now: Instant) -> bool {
        self.carefree_at.is_none_or(|it| now >= it + ONLY_CAREFUL)
    }

    /// How long a connection may have been idle for the next call: the one rule for those of HTTP/1.1
    /// and of HTTP/2.
    fn longest_idle(&self, now: Instant, careful: bool) -> Duration {
        let before = |kept: Duration| match kept.checked_sub(MARGIN) {
            Some(less) if !less.is_zero() => less,
            _ => kept / 2,
        };
        let seen = self.seen.filter(|(_, when)| now < *when + SEEN_FOR).map(|(kept, _)| kept);
        let assumed = if careful { CAREFUL_IDLE } else { HIGHEST_IDLE };
        // A server that closed one later than that may close the next one earlier; one that says how long
        // it keeps them is believed.
        let usual = self.announced.map_or(assumed, before).min(HIGHEST_IDLE);
        seen.map_or(usual, |it| before(it).min(usual))
    }

    fn take_stream(&mut self, now: Instant, careful: bool) -> Option<Stream> {
        self.leave_shared(now);
        let longest = self.longest_idle(now, careful);
        let is_fresh =
            |it: &&Arc<SharedLine>| it.idle_since().is_none_or(|since| now < since + longest);
        self.shared.iter().filter(is_fresh).find_map(SharedLine::take)
    }

    /// Forgets the connections of HTTP/2 that are too old, or that the server closes; notes for how long
    /// it kept one that was idle.
    fn leave_shared(&mut self, now: Instant) {
        let mut kept = None;
        self.shared.retain(|it| {
            let is_leaving = it.is_leaving();
            if let Some(since) = it.idle_since().filter(|_| is_leaving) {
                kept = Some(now - since);
            }
            !is_leaving && now < it.made + HIGHEST_AGE
        });
        self.note_kept(kept, now);
    }

    /// Notes that the server has closed a connection since the last look, which was idle for so long now.
    fn note_kept(&mut self, idle: Option<Duration>, now: Instant) {
        let kept = idle.map(|it| it.saturating_sub(SWEEP)).filter(|it| *it >= SHORTEST_SEEN);
        if let Some(kept) = kept {
            self.seen = Some((kept, now));
        }
    }

    /// Keeps a connection for the next call.
    pub(super) fn keep(&mut self, mut line: Line, now: Instant) {
        if now < line.made + HIGHEST_AGE {
            line.idle_since = Some(now);
            self.idle.push(line);
        }
    }

    /// Keeps a connection that is being made for a call which has given up; of many the one that takes
    /// longest is given up, too.
    pub(super) fn leave(&mut self, dial: Dial) {
        if self.left.len() >= MOST_LEFT {
            drop(self.left.remove(0));
        }
        self.left.push(dial);
    }

    /// Returns the one of these that was begun first, if it is not there yet.
    pub(super) fn adopt(&mut self) -> Option<Dial> {
        (!self.left.is_empty()).then(|| self.left.remove(0))
    }

    /// Keeps those of these that are there by now for the next calls.
    fn take_in(&mut self, now: Instant) {
        let mut under_way = Vec::new();
        for mut dial in std::mem::take(&mut self.left) {
            match dial.outcome() {
                Some(Ok(Some(line))) => self.keep(line, now),
                Some(Ok(None) | Err(_)) => {}
                None => under_way.push(dial),
            }
        }
        self.left = under_way;
    }

    /// Shares a connection, and notes what the server speaks and allows.
    pub(super) fn share(&mut self, line: &Arc<SharedLine>) {
        self.streams = line.streams();
        self.shared.push(Arc::clone(line));
    }

    /// Notes that a connection was made, or that it was not.
    pub(super) fn sought(&mut self, seek: Option<u64>, found: Option<Protocol>) {
        if let Some(seek) = seek {
            self.seeks.retain(|(it, _)| *it != seek);
        }
        match found {
            Some(protocol) => {
                self.speaks = Some(protocol);
                self.width = 1;
            }
            None if seek.is_some() => self.widen(),
            None => {}
        }
    }

    /// Closes the idle connections that served no later than one that the server has closed: it did
    /// the same to them, most likely.
    pub(super) fn drop_before(&mut self, dead: Option<Instant>) {
        self.idle.retain(|it| it.idle_since > dead);
    }

    /// Closes what was idle for too long, and what the server has closed; returns whether anything is
    /// left to look after.
    pub(super) fn sweep(&mut self, now: Instant) -> bool {
        self.take_in(now);
        let longest = self.longest_idle(now, self.is_only_careful(now));
        let mut kept = None;
        self.idle.retain_mut(|line| {
            let idle = line.idle_since.map_or(Duration::ZERO, |since| now - since);
            if !line.is_usable() {
                kept = Some(idle);
                return false;
            }
            idle < longest && now < line.made + HIGHEST_AGE
        });
        self.note_kept(kept, now);
        self.leave_shared(now);
        self.shared.retain(|it| it.idle_since().is_none_or(|since| now < since + longest));
        !self.is_empty()
    }

    /// When the connections that are idle were used last.
    pub(super) fn idle_since(&self) -> impl Iterator<Item = Instant> {
        self.idle.iter().filter_map(|it| it.idle_since)
    }

    /// Whether nothing is kept here.
    pub(super) fn is_empty(&self) -> bool {
        self.idle.is_empty() && self.shared.is_empty() && self.left.is_empty()
    }
}

#[cfg(test)]
mod tests;
