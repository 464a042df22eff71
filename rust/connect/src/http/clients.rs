// SPDX-License-Identifier: Apache-2.0
//! The connections of one set of settings, which all tasks of a process share.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use sparkawait_task::error::StartError;
use sparkawait_task::shared::{Lender, Lent};
use sparkawait_task::supervision::spawn_aside;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use url::Url;

use super::client::ClientSettings;
use super::connect::{Connector, Made};
use super::dials::{Dial, Dialled, NoConnection};
use super::http1::Line;
use super::http2::Stream;
use super::place::{Next, Origin, PATIENCE, Place, SWEEP};
use super::protocol::Protocol;
use super::proxies::Proxies;

/// The connections of this process, by their settings.
static CLIENTS: Lender = Lender::new();

/// Servers that are remembered while nothing is kept of them.
const REMEMBERED_PLACES: usize = 1024;

/// Most open connections before idle ones are closed for new ones.
const MOST_OPEN: usize = 1024;

/// Servers, and the connections to them.
pub(super) struct Clients {
    settings: ClientSettings,
    connector: Connector,
    proxies: Proxies,
    places: Mutex<HashMap<PlaceKey, Arc<Place>>>,
    /// Open connections before idle ones make room: files are the bound of a process.
    most_open: usize,
    is_sweeping: AtomicBool,
    me: Weak<Self>,
}

/// What tells servers apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PlaceKey {
    is_https: bool,
    host: String,
    port: u16,
    /// Those that rows may not lead to everywhere share nothing with the others.
    is_of_row: bool,
}

/// A connection that a call has.
pub(super) enum Taken {
    Line(Line),
    Stream(StreamOf),
}

/// A place on a connection that is shared; given back when it is dropped.
pub(super) struct StreamOf {
    pub(super) stream: Stream,
    // Behind the stream: what it tells of is there by then.
    _room: Room,
}

/// Tells those that wait for it of a place that is free.
struct Room(Arc<Place>);

impl Drop for Room {
    fn drop(&mut self) {
        if self.0.state().lacking > 0 {
            self.0.news.notify_one();
        }
    }
}

/// A call that needs a connection of HTTP/2.
struct Lacking<'a>(&'a Place);

impl<'a> Lacking<'a> {
    fn new(place: &'a Place) -> Self {
        place.state().lacking += 1;
        Self(place)
    }
}

impl Drop for Lacking<'_> {
    fn drop(&mut self) {
        self.0.state().lacking -= 1;
    }
}

/// A connection that is being made and others may wait for; they hear of its end.
struct Seek<'a> {
    place: &'a Place,
    number: Option<u64>,
    found: Option<Protocol>,
}

impl Drop for Seek<'_> {
    fn drop(&mut self) {
        self.place.state().sought(self.number, self.found);
        if self.number.is_some() {
            self.place.news.notify_waiters();
        }
    }
}

/// A call that waits for a connection. If it gives up, the connection is made all the same.
struct Waiting<'a> {
    clients: &'a Clients,
    place: &'a Arc<Place>,
    dial: Option<Dial>,
}

impl<'a> Waiting<'a> {
    fn new(clients: &'a Clients, place: &'a Arc<Place>, dial: Dial) -> Self {
        Self { clients, place, dial: Some(dial) }
    }

    async fn made(mut self) -> Dialled {
        let Some(dial) = &mut self.dial else { return Ok(None) };
        let made = dial.made().await;
        self.dial = None;
        made
    }

    /// Waits no longer than that; `None` if it takes longer.
    async fn made_within(self, limit: Duration) -> Option<Dialled> {
        timeout(limit, self.made()).await.ok()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(dial) = self.dial.take() {
            self.place.state().leave(dial);
            self.clients.look_after();
        }
    }
}

impl Clients {
    /// Returns the connections with these settings.
    pub(super) fn of_this_process(
        settings: &ClientSettings,
        runtime: &Handle,
    ) -> Result<Lent<Arc<Self>>, StartError> {
        let key = settings.key()?;
        let _entered = runtime.enter();
        CLIENTS.lend(&key, runtime, || Self::make_all(settings.clone()))
    }

    fn make_all(settings: ClientSettings) -> Result<Arc<Self>, StartError> {
        let connector = settings.connector()?;
        let proxies = settings.proxies()?;
        Ok(Arc::new_cyclic(|me| Self {
            settings,
            connector,
            proxies,
            places: Mutex::default(),
            most_open: most_open(),
            is_sweeping: AtomicBool::new(false),
            me: Weak::clone(me),
        }))
    }

    #[cfg(test)]
    pub(super) fn for_test() -> Arc<Self> {
        static MADE: std::sync::OnceLock<Arc<Clients>> = std::sync::OnceLock::new();
        let make = || Self::make_all(ClientSettings::for_test()).expect("settings that are right");
        Arc::clone(MADE.get_or_init(make))
    }

    /// Returns what only equal connections have.
    pub(super) fn key(&self) -> Result<String, StartError> {
        self.settings.key()
    }

    /// Whether responses may come packed.
    pub(super) fn takes_packed(&self) -> bool {
        self.settings.takes_packed()
    }

    /// Returns the server of an address; `None` if it can be none.
    pub(super) fn place(&self, url: &Url, is_of_row: bool) -> Option<Arc<Place>> {
        let key = PlaceKey {
            is_https: url.scheme() == "https",
            host: url.host_str()?.to_owned(),
            port: url.port_or_known_default()?,
            is_of_row,
        };
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = places.get(&key) {
            return Some(Arc::clone(place));
        }
        if places.len() >= REMEMBERED_PLACES {
            places.retain(|_, it| Arc::strong_count(it) > 1 || !it.state().is_empty());
        }
        let origin = Origin::new(url, is_of_row, |uri| self.proxies.of(uri))?;
        let may_share = self.settings.may_speak_http2(key.is_https);
        let spoken = self.settings.protocol();
        let place = Arc::new(Place::new(origin, may_share, spoken, self.settings.streams()));
        places.insert(key, Arc::clone(&place));
        Some(place)
    }

    /// Takes a connection to `place`; a new one, if it is said so. `careful`: the request must not be
    /// sent twice.
    pub(super) async fn take(
        &self,
        place: &Arc<Place>,
        is_new: bool,
        careful: bool,
    ) -> Result<Taken, NoConnection> {
        let (mut lacking, mut is_patient) = (None, true);
        loop {
            let mut news = pin!(place.news.notified());
            let next = {
                let mut state = place.state();
                // Its own share of what is needed is counted by `next`.
                state.lacking -= usize::from(lacking.is_some());
                let next = state.next(Instant::now(), place.may_share, is_new, careful);
                state.lacking += usize::from(lacking.is_some());
                if matches!(next, Next::Wait(_)) {
                    news.as_mut().enable();
                }
                next
            };
            match next {
                Next::Take(line) => return Ok(Taken::Line(line)),
                Next::Share(stream) => return Ok(Taken::Stream(StreamOf::new(stream, place))),
                Next::Make(seek) => {
                    if seek.is_some() && lacking.is_none() {
                        lacking = Some(Lacking::new(place));
                    }
                    let left = (seek.is_none() && is_patient).then(|| place.state().adopt());
                    if let Some(dial) = left.flatten() {
                        let made = Waiting::new(self, place, dial).made_within(PATIENCE).await;
                        // One that stalls holds nobody up: the next one is its own.
                        is_patient = made.is_some();
                        if let Some(Ok(Some(line))) = made {
                            return Ok(Taken::Line(line));
                        }
                        continue;
                    }
                    // If it is shared, there is room on it now, or others have taken all of that.
                    if let Some(line) = self.dial(place, seek).made().await? {
                        return Ok(Taken::Line(line));
                    }
                }
                Next::Wait(until) => {
                    if lacking.is_none() {
                        lacking = Some(Lacking::new(place));
                    }
                    #[expect(
                        clippy::let_underscore_must_use,
                        reason = "it looks again, whether there are news or not"
                    )]
                    let _ = timeout_at(until, news).await;
                }
            }
        }
    }

    /// Has a connection made.
    fn dial<'a>(&'a self, place: &'a Arc<Place>, seek: Option<u64>) -> Waiting<'a> {
        let (me, to) = (Weak::clone(&self.me), Arc::clone(place));
        let dial = Dial::start(async move {
            match me.upgrade() {
                Some(clients) => clients.make(&to, seek).await,
                None => Err(NoConnection::Failed("its connections were let go".into())),
            }
        });
        Waiting::new(self, place, dial)
    }

    async fn make(&self, place: &Arc<Place>, seek: Option<u64>) -> Dialled {
        let mut sought = Seek { place, number: seek, found: None };
        if self.connector.open.load(Ordering::Relaxed) >= self.most_open {
            self.make_room(self.most_open / 8);
        }
        let made = match self.connector.connect(&place.origin).await {
            Err(error) if error.has_no_files() && self.make_room(usize::MAX) => {
                self.connector.connect(&place.origin).await?
            }
            made => made?,
        };
        sought.found = Some(made.protocol());
        Ok(match made {
            Made::Line(line) => Some(line),
            Made::Shared(line) => {
                self.look_after();
                place.state().share(&line);
                None
            }
        })
    }

    /// Keeps a connection for the next call, unless its server has closed it.
    pub(super) fn keep(&self, place: &Place, mut line: Line) {
        if line.is_usable() {
            place.state().keep(line, Instant::now());
            self.look_after();
        }
    }

    /// Closes some of the connections that were idle for longest, of all servers; returns whether
    /// there were any.
    fn make_room(&self, many: usize) -> bool {
        let places = self.all_places();
        let mut idle: Vec<Instant> = Vec::new();
        for place in &places {
            idle.extend(place.state().idle_since());
        }
        if idle.is_empty() {
            return false;
        }
        let last = many.clamp(1, idle.len()) - 1;
        let (_, last, _) = idle.select_nth_unstable(last);
        for place in &places {
            place.state().drop_before(Some(*last));
        }
        true
    }

    fn all_places(&self) -> Vec<Arc<Place>> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.values().cloned().collect()
    }

    /// Has connections looked at while there are any that nobody uses.
    fn look_after(&self) {
        if self.is_sweeping.load(Ordering::Relaxed) || self.is_sweeping.swap(true, Ordering::AcqRel)
        {
            return;
        }
        let me = Weak::clone(&self.me);
        spawn_aside(&Handle::current(), "http connections", async move {
            loop {
                sleep(SWEEP).await;
                let Some(clients) = me.upgrade() else { return };
                if !clients.sweep() {
                    clients.is_sweeping.store(false, Ordering::Release);
                    // What was kept in between would not be looked at.
                    if !clients.sweep() || clients.is_sweeping.swap(true, Ordering::AcqRel) {
                        return;
                    }
                }
            }
        });
    }

    fn sweep(&self) -> bool {
        let now = Instant::now();
        let places = self.all_places();
        let kept = places.iter().map(|it| it.state().sweep(now));
        kept.fold(false, |any, kept| any | kept)
    }
}

impl StreamOf {
    fn new(stream: Stream, place: &Arc<Place>) -> Self {
        Self { stream, _room: Room(Arc::clone(place)) }
    }
}

/// Returns half of the files that this process may have open, as the bound of its requests is.
fn most_open() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let half = files.map_or(usize::MAX, |files| usize::try_from(files / 2).unwrap_or(usize::MAX));
    half.clamp(8, MOST_OPEN)
}
