// SPDX-License-Identifier: Apache-2.0
//! The clients of one set of settings: several, where the calls to a host need several connections.
//!
//! A client has one connection to a host that speaks HTTP/2, and a server allows a number of
//! requests over it at a time, its streams. What is beyond them would stand in line inside of the
//! client, where nobody counts it and where timeouts go on. So a call takes the first client that
//! has a stream left for its host, and the next one is made when none has.
//!
//! Over HTTP/1.1 one client has as many connections as there are calls. Which of the two a host
//! speaks is negotiated with TLS, so the first call to a host makes its connection alone: of many
//! that start together each would make one, and over HTTP/2 all but one of these are for nothing.
//! The others wait until its connection is there or has failed, and no longer than [`PATIENCE`].

use std::collections::HashMap;
use std::future::Future;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::FixedState;
use reqwest::{Client, Url};
use sparkawait_task::error::StartError;
use sparkawait_task::shared::Shared;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::client::ClientSettings;
use super::protocol::{Protocol, told};

/// The clients of this process, by their settings.
static CLIENTS: Shared = Shared::new();

/// Hosts that are remembered while nothing is under way to them.
const REMEMBERED_HOSTS: usize = 1024;

/// How long calls wait for the first connection to their host, which takes two or three round trips.
const PATIENCE: Duration = Duration::from_millis(250);

/// Clients with the same settings, which all tasks of a process share.
pub(super) struct Clients {
    settings: ClientSettings,
    first: Client,
    /// Requests over one connection at a time.
    streams: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Those after the first, which speak HTTP/2 alone.
    more: Vec<Client>,
    /// By scheme, host and port.
    hosts: HashMap<u64, Host>,
}

#[derive(Default)]
struct Host {
    speaks: Speaks,
    /// Requests under way, client by client.
    under_way: Vec<usize>,
}

/// What is known of the version that a host speaks.
#[derive(Default)]
enum Speaks {
    #[default]
    Unknown,
    /// A call makes the first connection.
    Sought {
        /// When the others wait no longer.
        until: Instant,
        /// Closed when that call knows, or has ended.
        by: watch::Receiver<()>,
    },
    Known(Protocol),
}

/// A stream of a connection; given back when it is dropped.
pub(super) struct Stream {
    clients: Arc<Clients>,
    /// Where it is counted; `None`: over HTTP/1.1 alone, which has none.
    counted: Option<Counted>,
}

struct Counted {
    host: u64,
    client: usize,
    /// What the host is taken to speak.
    protocol: Option<Protocol>,
    /// There if this call makes the first connection to its host.
    seeks: Option<watch::Sender<()>>,
}

impl Clients {
    /// Returns the clients with these settings; `runtime` serves their connections.
    pub(super) fn of_this_process(
        settings: &ClientSettings,
        runtime: &Handle,
    ) -> Result<Arc<Self>, StartError> {
        let key = settings.key()?;
        let _entered = runtime.enter();
        CLIENTS.get_or_make(&key, || Self::new(settings.clone()))
    }

    /// Makes the first client.
    fn new(settings: ClientSettings) -> Result<Self, StartError> {
        let first = settings.build()?;
        let streams = settings.streams();
        Ok(Self { settings, first, streams, state: Mutex::default() })
    }

    /// Returns a client to make requests with; any may send them.
    pub(super) fn any(&self) -> &Client {
        &self.first
    }

    /// Takes a stream for a request to `url`, and the client that has it.
    ///
    /// Waits while another call makes the first connection to the host.
    pub(super) async fn take(self: &Arc<Self>, url: &Url) -> (Client, Stream) {
        let clients = Arc::clone(self);
        if !self.settings.may_speak_http2(url) {
            return (self.first.clone(), Stream { clients, counted: None });
        }
        let host = host_of(url);
        let sought = self.state().sought(host);
        if let Some((until, mut by)) = sought {
            #[expect(
                clippy::let_underscore_must_use,
                reason = "nothing is ever sent, and whoever has waited goes on, whatever has come of it"
            )]
            let _ = timeout_at(until, by.changed()).await;
        }
        let mut state = self.state();
        let counted = state.take(host, self.streams, self.settings.protocol());
        let sender = match counted.client.checked_sub(1) {
            None => self.first.clone(),
            Some(index) => match state.more.get(index) {
                Some(client) => client.clone(),
                // The settings made a client before.
                None => match self.settings.over_http2().build() {
                    Ok(client) => {
                        state.more.push(client.clone());
                        client
                    }
                    Err(_) => self.first.clone(),
                },
            },
        };
        drop(state);
        (sender, Stream { clients, counted: Some(counted) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns what a call to `host` has to wait for, and until when; `None`: nothing.
    fn sought(&self, host: u64) -> Option<(Instant, watch::Receiver<()>)> {
        match &self.hosts.get(&host)?.speaks {
            Speaks::Sought { until, by } => Some((*until, by.clone())),
            Speaks::Unknown | Speaks::Known(_) => None,
        }
    }

    /// Counts a request to `host`, at the client that has a stream for it.
    ///
    /// `spoken` is what all hosts speak, if the settings say so.
    fn take(&mut self, host: u64, streams: usize, spoken: Option<Protocol>) -> Counted {
        if self.hosts.len() > REMEMBERED_HOSTS && !self.hosts.contains_key(&host) {
            self.hosts.retain(|_, host| host.under_way.iter().any(|count| *count > 0));
        }
        let name = host;
        let host = self.hosts.entry(name).or_default();
        let mut seeks = None;
        if let Speaks::Unknown = host.speaks {
            host.speaks = if let Some(protocol) = spoken {
                Speaks::Known(protocol)
            } else {
                let (seeker, by) = watch::channel(());
                seeks = Some(seeker);
                Speaks::Sought { until: Instant::now() + PATIENCE, by }
            };
        }
        let protocol = match host.speaks {
            Speaks::Known(protocol) => Some(protocol),
            Speaks::Unknown | Speaks::Sought { .. } => None,
        };
        let is_counted = protocol == Some(Protocol::Http2);
        let has_room = |count: &usize| !is_counted || *count < streams;
        let client = host.under_way.iter().position(has_room).unwrap_or(host.under_way.len());
        if client == host.under_way.len() {
            host.under_way.push(0);
        }
        host.under_way[client] += 1;
        Counted { host: name, client, protocol, seeks }
    }
}

impl Stream {
    /// Sends a request over it, by what its client makes of the request.
    pub(super) async fn send<E>(
        &mut self,
        sent: impl Future<Output = Result<reqwest::Response, E>>,
    ) -> Result<reqwest::Response, E> {
        let seeks = self.counted.as_ref().is_some_and(|it| it.seeks.is_some());
        let response =
            if seeks { told(sent, |protocol| self.found(protocol)).await } else { sent.await }?;
        self.found(Protocol::from(response.version()));
        Ok(response)
    }

    /// Notes what the host speaks.
    fn found(&mut self, protocol: Protocol) {
        let Some(counted) = &mut self.counted else { return };
        if counted.protocol.replace(protocol) == Some(protocol) {
            return;
        }
        if let Some(host) = self.clients.state().hosts.get_mut(&counted.host) {
            host.speaks = Speaks::Known(protocol);
        }
        counted.seeks = None;
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let Some(Counted { host, client, seeks, .. }) = self.counted.take() else { return };
        if let Some(host) = self.clients.state().hosts.get_mut(&host) {
            host.under_way[client] -= 1;
            if seeks.is_some() && matches!(host.speaks, Speaks::Sought { .. }) {
                // The next one seeks; those that waited for this one do not wait again.
                host.speaks = Speaks::Unknown;
            }
        }
    }
}

/// Returns what scheme, host and port come to; hosts of which it is the same share their streams.
fn host_of(url: &Url) -> u64 {
    let authority = (url.scheme(), url.host_str(), url.port_or_known_default());
    FixedState::default().hash_one(authority)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts a request to a host of HTTP/2; returns its client.
    fn take(state: &mut State, host: u64, streams: usize) -> usize {
        state.take(host, streams, Some(Protocol::Http2)).client
    }

    #[test]
    fn the_first_client_with_a_stream_left_is_taken() {
        let mut state = State::default();
        let taken: Vec<usize> = (0..5).map(|_| take(&mut state, 1, 2)).collect();
        assert_eq!(taken, [0, 0, 1, 1, 2]);

        state.hosts.get_mut(&1).unwrap().under_way[0] -= 1;
        let taken = [take(&mut state, 1, 2), take(&mut state, 1, 2), take(&mut state, 7, 2)];
        assert_eq!(taken, [0, 2, 0]);
    }

    #[test]
    fn one_client_is_enough_for_http1_and_for_a_host_that_is_not_known() {
        let mut state = State::default();
        for spoken in [Some(Protocol::Http1), None] {
            assert_eq!([(); 3].map(|()| state.take(1, 1, spoken).client), [0; 3]);
        }
    }

    #[test]
    fn one_call_seeks_at_a_time() {
        let mut state = State::default();
        assert!(state.sought(1).is_none());

        let first = state.take(1, 1, None);
        let second = state.take(1, 1, None);

        assert!(first.seeks.is_some() && second.seeks.is_none());
        let (_, by) = state.sought(1).unwrap();
        assert!(by.has_changed().is_ok(), "others wait for it");
        drop(first);
        assert!(by.has_changed().is_err(), "and no longer than it is there");
        assert!(state.sought(2).is_none(), "those of other hosts never");
    }

    #[test]
    fn hosts_without_a_request_are_forgotten_when_there_are_too_many() {
        let mut state = State::default();
        take(&mut state, 0, 1);
        for host in 1..5000 {
            take(&mut state, host, 1);
            state.hosts.get_mut(&host).unwrap().under_way[0] = 0;
        }

        assert!(state.hosts.len() <= REMEMBERED_HOSTS + 1);
        assert_eq!(state.hosts[&0].under_way, [1]);
    }

    #[test]
    fn a_host_is_scheme_name_and_port() {
        let of = |url: &str| host_of(&Url::parse(url).unwrap());
        assert_eq!(of("https://h/a?b"), of("https://h:443/"));
        assert_ne!(of("https://h/"), of("http://h/"));
        assert_ne!(of("https://h/"), of("https://h:444/"));
        assert_ne!(of("https://h/"), of("https://i/"));
    }
}
