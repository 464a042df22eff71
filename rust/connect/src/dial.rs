// SPDX-License-Identifier: Apache-2.0
//! Opens TCP connections: the addresses of a host race, and a peer that is gone is noticed.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::sleep;

/// Highest age of a connection: names move, and only new connections look them up.
pub(crate) const HIGHEST_AGE: Duration = Duration::from_secs(30 * 60);

/// Longest time that a connection is kept unused: what stands between may forget it.
pub(crate) const HIGHEST_IDLE: Duration = Duration::from_secs(60);

/// How long an address is tried before the next one is tried as well, as RFC 8305 has it.
const HEAD_START: Duration = Duration::from_millis(250);

/// How long a connection is silent before its peer is asked whether it is there, and how often then.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How long a peer may leave what was sent unacknowledged.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// What a connection reads from and writes to, in the clear or encrypted.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// The addresses of a host that were not found to be of no use yet.
pub(crate) struct Addresses(VecDeque<SocketAddr>);

impl Addresses {
    /// Looks a host up.
    pub(crate) async fn of(host: &str, port: u16) -> io::Result<Self> {
        Ok(Self::in_turns(lookup_host((host, port)).await?))
    }

    /// Puts addresses of both kinds in turns, so that a network which has one kind only costs
    /// one head start.
    pub(crate) fn in_turns(found: impl IntoIterator<Item = SocketAddr>) -> Self {
        let found: Vec<_> = found.into_iter().collect();
        let kind = found.first().map(SocketAddr::is_ipv6);
        let (first, second): (Vec<_>, Vec<_>) =
            found.iter().partition(|it| Some(it.is_ipv6()) == kind);
        let mut turns = VecDeque::new();
        for turn in 0..first.len().max(second.len()) {
            turns.extend([&first, &second].into_iter().filter_map(|it| it.get(turn)));
        }
        Self(turns)
    }

    /// Whether none is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Leaves those out that are not to be dialled.
    #[cfg(feature = "http")]
    pub(crate) fn retain(&mut self, keep: impl FnMut(&SocketAddr) -> bool) {
        self.0.retain(keep);
    }

    /// How many are left.
    #[cfg(any(test, feature = "redis"))]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Opens a connection to the address that answers first.
    ///
    /// That address and those that refused are left out by the next call.
    ///
    /// # Errors
    ///
    /// None is left, or all refused: what the last one came to.
    pub(crate) async fn dial(&mut self) -> io::Result<TcpStream> {
        let mut waiting = self.0.clone();
        let mut tried = FuturesUnordered::new();
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        loop {
            if let Some(next) = waiting.pop_front() {
                tried.push(async move { (next, TcpStream::connect(next).await) });
            } else if tried.is_empty() {
                return Err(last);
            }
            tokio::select! {
                Some((address, opened)) = tried.next() => {
                    self.0.retain(|it| *it != address);
                    match opened.and_then(with_options) {
                        Ok(stream) => return Ok(stream),
                        Err(error) => last = error,
                    }
                }
                () = sleep(HEAD_START), if !waiting.is_empty() => {}
            }
        }
    }
}

/// Sends at once, and notices a peer that is gone.
fn with_options(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    socket
        .set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use socket2::{Domain, Socket, Type};
    use tokio::net::TcpListener;

    use super::*;

    /// A socket whose line for connections is full: who connects is not answered.
    fn silent() -> (Socket, SocketAddr, Vec<std::net::TcpStream>) {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        socket.listen(0).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        let patience = Duration::from_millis(50);
        let connect = || std::net::TcpStream::connect_timeout(&address, patience).ok();
        let line = std::iter::from_fn(connect).collect();
        (socket, address, line)
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_hides_no_other() {
        let (_socket, dead, _line) = silent();
        let live = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut addresses = Addresses::in_turns([dead, live.local_addr().unwrap()]);

        let stream = addresses.dial().await.unwrap();

        assert_eq!(stream.peer_addr().unwrap(), live.local_addr().unwrap());
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap() && stream.nodelay().unwrap());
        // It may be tried again; the other one was.
        assert_eq!(addresses.0, [dead]);
    }

    #[tokio::test]
    async fn addresses_that_refuse_are_left_behind_one_by_one() {
        let refused = {
            let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
            gone.local_addr().unwrap()
        };
        let live = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut addresses = Addresses::in_turns([refused, live.local_addr().unwrap()]);

        assert!(addresses.dial().await.is_ok());
        assert!(addresses.is_empty());
        assert_eq!(addresses.dial().await.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn both_kinds_of_addresses_take_turns() {
        let of = |ip: std::net::IpAddr, port| SocketAddr::new(ip, port);
        let (v6, v4) = (Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into());

        let turns = Addresses::in_turns([of(v6, 1), of(v6, 2), of(v6, 3), of(v4, 4)]);

        assert_eq!(turns.0, [of(v6, 1), of(v4, 4), of(v6, 2), of(v6, 3)]);
    }
}
