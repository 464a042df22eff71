// SPDX-License-Identifier: Apache-2.0
//! The server's thread: accepts connections and serves them.
//!
//! All of it runs on one thread, with a runtime of its own. When the thread
//! ends, so does every connection.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use socket2::{Domain, Socket, Type};
use sparkawait_task::supervision::spawn_aside;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tracing::debug;

use super::service::Service;

/// Connections that may wait to be accepted. A client that opens thousands at
/// once meets retransmissions of a second or more if this is too small.
const BACKLOG: i32 = 4096;
/// How long to wait when no connection can be accepted, usually because the
/// process has no file descriptor left.
const ACCEPT_RETRY: Duration = Duration::from_millis(10);

/// Opens a listening socket on the loopback interface; port 0 picks a free one.
pub(super) fn bind(port: u16) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    // A server that was just stopped leaves its port usable.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Serves connections until `stop` is dropped.
///
/// # Cancel safety
///
/// Dropping the future closes the listening socket; connections go on until the
/// runtime ends.
pub(super) async fn run(listener: TcpListener, service: Arc<Service>, stop: oneshot::Receiver<()>) {
    tokio::select! {
        _ = stop => {}
        () = accept(&listener, &service) => {}
    }
}

async fn accept(listener: &TcpListener, service: &Arc<Service>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let serving = serve(stream, Arc::clone(service));
                spawn_aside(&Handle::current(), "lookup_server", serving);
            }
            Err(error) => {
                debug!(%error, "lookup server cannot accept a connection");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// Serves one connection until either side closes it.
async fn serve(stream: TcpStream, service: Arc<Service>) {
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "lookup server cannot set TCP_NODELAY");
    }
    let answer = service_fn(|request| {
        let service = Arc::clone(&service);
        async move { service.answer(request).await }
    });
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
    let Err(error) = (&mut connection).await else { return };
    // A service error is a `ResetConnection`: without lingering, closing the
    // socket sends RST. Other errors come from clients that went away.
    if error.is_user() {
        let stream = connection.into_parts().io.into_inner();
        if let Err(error) = stream.set_zero_linger() {
            debug!(%error, "lookup server cannot reset a connection");
        }
    }
}
