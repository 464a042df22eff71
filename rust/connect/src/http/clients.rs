// SPDX-License-Identifier: Apache-2.0
//! The connections of one set of settings, which all tasks of a process share.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use http::HeaderMap;
use sparkawait_task::error::StartError;
use sparkawait_task::shared::{Lender, Lent};
use tokio::runtime::Handle;
use tokio::time::Instant;
use url::Url;

use super::client::ClientSettings;
use super::connect::{Connector, Made, NoConnection};
use super::http1::Line;
use super::http2::Stream;
use super::origin::{Origin, announced};
use super::proxies::Proxies;
use crate::pool::{Age, Dial, Kept, Lease, Pool, Wish};

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
    me: Weak<Self>,
}

/// A server with its connections.
pub(super) struct Place {
    pub(super) origin: Arc<Origin>,
    pub(super) pool: Arc<Pool<To>>,
}

impl Place {
    /// Notes what the server says of its connections.
    pub(super) fn note(&self, headers: &HeaderMap) {
        if let Some(announced) = announced(headers) {
            self.pool.announce(announced);
        }
    }

    /// Takes a connection.
    pub(super) async fn take(self: &Arc<Self>, wish: Wish) -> Result<Taken, NoConnection> {
        loop {
            let stream = match self.pool.take(wish).await? {
                Lease::Whole(Kept { connection: Made::Line(line), age }) => {
                    return Ok(Taken::Line(line, age));
                }
                Lease::Whole(Kept { connection: Made::Shared(line), .. }) => line.take(),
                Lease::Room(stream) => Some(stream),
            };
            if let Some(stream) = stream {
                return Ok(Taken::Stream(StreamOf { stream, _room: Room(Arc::clone(self)) }));
            }
        }
    }

    /// Keeps a connection for the next call, unless its server has closed it.
    pub(super) fn keep(&self, mut line: Line, age: Age) {
        if line.is_usable() {
            self.pool.keep(Kept { connection: Made::Line(line), age });
        }
    }
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

/// What makes connections to a server.
pub(super) struct To {
    clients: Weak<Clients>,
    origin: Arc<Origin>,
}

impl Dial for To {
    type Connection = Made;
    type Failure = NoConnection;

    const NAME: &'static str = "http connecting";

    const IS_BOUNDED: bool = false;

    async fn dial(&self) -> Result<Made, NoConnection> {
        match self.clients.upgrade() {
            Some(clients) => clients.make(&self.origin).await,
            None => Err(NoConnection::Failed("its connections were let go".into())),
        }
    }

    fn panicked() -> NoConnection {
        NoConnection::Failed("connecting panicked; the log says why".into())
    }
}

/// A connection that a call has.
pub(super) enum Taken {
    Line(Line, Age),
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
        self.0.pool.has_room();
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
            places.retain(|_, it| Arc::strong_count(it) > 1 || !it.pool.is_empty());
        }
        let origin = Arc::new(Origin::new(url, is_of_row, |uri| self.proxies.of(uri))?);
        let room = (!self.settings.may_speak_http2(key.is_https)).then_some(1);
        let to = To { clients: Weak::clone(&self.me), origin: Arc::clone(&origin) };
        let place = Arc::new(Place { origin, pool: Pool::new(to, room) });
        places.insert(key, Arc::clone(&place));
        Some(place)
    }

    /// Makes a connection.
    async fn make(&self, origin: &Origin) -> Result<Made, NoConnection> {
        if self.connector.open.load(Ordering::Relaxed) >= self.most_open {
            self.make_room(self.most_open / 8);
        }
        match self.connector.connect(origin).await {
            Err(error) if error.has_no_files() && self.make_room(usize::MAX) => {
                self.connector.connect(origin).await
            }
            made => made,
        }
    }

    /// Closes some of the connections that were idle for longest, of all servers; returns whether
    /// there were any.
    fn make_room(&self, many: usize) -> bool {
        let places = self.all_places();
        let mut idle: Vec<Instant> = Vec::new();
        for place in &places {
            place.pool.idle_since(|since| idle.push(since));
        }
        if idle.is_empty() {
            return false;
        }
        let last = many.clamp(1, idle.len()) - 1;
        let (_, last, _) = idle.select_nth_unstable(last);
        for place in &places {
            place.pool.close_before(*last);
        }
        true
    }

    fn all_places(&self) -> Vec<Arc<Place>> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.values().cloned().collect()
    }
}

/// Returns half of the files that this process may have open, as the bound of its requests is.
fn most_open() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let half = files.map_or(usize::MAX, |files| usize::try_from(files / 2).unwrap_or(usize::MAX));
    half.clamp(8, MOST_OPEN)
}
