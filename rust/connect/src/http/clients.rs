// SPDX-License-Identifier: Apache-2.0
//! The clients of one set of settings: several, where the calls to a host need several connections.
//!
//! A client has one connection to a host that speaks HTTP/2, and a server allows a number of
//! requests over it at a time, its streams. What is beyond them would stand in line inside of the
//! client, where nobody counts it and where timeouts go on. So a call takes the first client that
//! has a stream left for its host, and the next one is made when none has.
//!
//! Over HTTP/1.1 one client has as many connections as there are calls. Which of the two a host
//! speaks is known once it has answered; until then it is taken to be HTTP/2.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::FixedState;
use reqwest::{Client, Url, Version};
use sparkawait_task::error::StartError;
use sparkawait_task::shared::Shared;
use tokio::runtime::Handle;

use super::client::ClientSettings;

/// The clients of this process, by their settings.
static CLIENTS: Shared = Shared::new();

/// Hosts that are remembered while nothing is under way to them.
const REMEMBERED_HOSTS: usize = 1024;

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
    /// Those after the first.
    more: Vec<Client>,
    /// By scheme, host and port.
    hosts: HashMap<u64, Host>,
}

#[derive(Default)]
struct Host {
    speaks_http1: bool,
    /// Requests under way, client by client.
    under_way: Vec<usize>,
}

/// A stream of a connection; given back when it is dropped.
pub(super) struct Stream {
    clients: Arc<Clients>,
    /// Where it is counted; `None`: over HTTP/1.1, which has none.
    counted: Option<Counted>,
}

#[derive(Clone, Copy)]
struct Counted {
    host: u64,
    client: usize,
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
    pub(super) fn take(self: &Arc<Self>, url: &Url) -> (Client, Stream) {
        let clients = Arc::clone(self);
        if !self.settings.may_speak_http2(url) {
            return (self.first.clone(), Stream { clients, counted: None });
        }
        let host = host_of(url);
        let mut state = self.state();
        let client = state.take(host, self.streams);
        let sender = match client.checked_sub(1) {
            None => self.first.clone(),
            Some(index) => match state.more.get(index) {
                Some(client) => client.clone(),
                // The settings made a client before.
                None => match self.settings.build() {
                    Ok(client) => {
                        state.more.push(client.clone());
                        client
                    }
                    Err(_) => self.first.clone(),
                },
            },
        };
        drop(state);
        (sender, Stream { clients, counted: Some(Counted { host, client }) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Counts a request to `host`; returns the client that has a stream for it.
    fn take(&mut self, host: u64, streams: usize) -> usize {
        if self.hosts.len() > REMEMBERED_HOSTS && !self.hosts.contains_key(&host) {
            self.hosts.retain(|_, host| host.under_way.iter().any(|count| *count > 0));
        }
        let host = self.hosts.entry(host).or_default();
        let has_room = |count: &usize| host.speaks_http1 || *count < streams;
        let client = host.under_way.iter().position(has_room).unwrap_or(host.under_way.len());
        if client == host.under_way.len() {
            host.under_way.push(0);
        }
        host.under_way[client] += 1;
        client
    }
}

impl Stream {
    /// Says which version the host has answered by.
    pub(super) fn answered(&self, version: Version) {
        let Some(Counted { host, .. }) = self.counted else { return };
        if let Some(host) = self.clients.state().hosts.get_mut(&host) {
            host.speaks_http1 = version < Version::HTTP_2;
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let Some(Counted { host, client }) = self.counted else { return };
        if let Some(host) = self.clients.state().hosts.get_mut(&host) {
            host.under_way[client] -= 1;
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

    #[test]
    fn the_first_client_with_a_stream_left_is_taken() {
        let mut state = State::default();
        let taken: Vec<usize> = (0..5).map(|_| state.take(1, 2)).collect();
        assert_eq!(taken, [0, 0, 1, 1, 2]);

        state.hosts.get_mut(&1).unwrap().under_way[0] -= 1;
        assert_eq!((state.take(1, 2), state.take(1, 2), state.take(7, 2)), (0, 2, 0));
    }

    #[test]
    fn one_client_is_enough_for_http1() {
        let mut state = State::default();
        state.take(1, 1);
        state.hosts.get_mut(&1).unwrap().speaks_http1 = true;

        assert_eq!([(); 3].map(|()| state.take(1, 1)), [0; 3]);
    }

    #[test]
    fn hosts_without_a_request_are_forgotten_when_there_are_too_many() {
        let mut state = State::default();
        state.take(0, 1);
        for host in 1..5000 {
            state.take(host, 1);
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
