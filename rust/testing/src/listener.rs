// SPDX-License-Identifier: Apache-2.0
//! The thread of a server: accepts connections and serves them.
//!
//! All of it runs on one thread, with a runtime of its own. When the thread
//! ends, so does every connection.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use socket2::{Domain, Socket, Type};
use sparkawait_task::supervision::spawn_aside;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tracing::debug;

/// Connections that may wait to be accepted. A client that opens thousands at
/// once meets retransmissions of a second or more if this is too small.
const BACKLOG: i32 = 4096;
/// How long to wait when no connection can be accepted, usually because the
/// process has no file descriptor left.
const ACCEPT_RETRY: Duration = Duration::from_millis(10);

/// Reset the connection instead of answering.
#[derive(Debug, thiserror::Error)]
#[error("connection is reset on purpose")]
pub(crate) struct ResetConnection;

/// What answers the requests of a server.
pub(crate) trait Answers: Send + Sync + 'static {
    /// What its threads and tasks are called.
    const NAME: &'static str;

    /// Answers one request.
    fn answer(
        &self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Full<Bytes>>, ResetConnection>> + Send;
}

/// The thread that serves, of the process that started it.
#[derive(Debug)]
pub(crate) struct ServerThread {
    /// `None` once stopped.
    running: Mutex<Option<Running>>,
    address: SocketAddr,
    process: u32,
}

#[derive(Debug)]
struct Running {
    /// Dropped to end the thread.
    stop: oneshot::Sender<()>,
    handle: JoinHandle<()>,
}

impl ServerThread {
    /// Starts a thread; it accepts connections when this returns.
    pub(crate) fn spawn<S: Answers>(port: u16, service: Arc<S>) -> io::Result<Self> {
        let listener = bind(port)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            // Entered, not blocked on: the caller may be in a runtime of its own.
            let _entered = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let (stop, stopped) = oneshot::channel();
        let serve = move || runtime.block_on(run(listener, service, stopped));
        let handle = Builder::new().name(format!("sparkawait-{}", S::NAME)).spawn(serve)?;
        let running = Mutex::new(Some(Running { stop, handle }));
        Ok(Self { running, address, process: std::process::id() })
    }

    /// Returns where the server listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the id of the process that started the server.
    pub(crate) fn process(&self) -> u32 {
        self.process
    }

    /// Ends the thread, and with its runtime every connection. In another process than the one that
    /// started it, it does nothing.
    pub(crate) fn stop(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(running) = running else { return };
        if std::process::id() == self.process {
            drop(running.stop);
            // A panic of the thread was printed when it happened; the server is
            // stopped either way.
            drop(running.handle.join());
        } else {
            // The thread was not forked: waiting for it would never end.
            std::mem::forget(running);
        }
    }
}

impl Drop for ServerThread {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Opens a listening socket on the loopback interface; port 0 picks a free one.
fn bind(port: u16) -> io::Result<std::net::TcpListener> {
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
async fn run<S: Answers>(listener: TcpListener, service: Arc<S>, stop: oneshot::Receiver<()>) {
    tokio::select! {
        _ = stop => {}
        () = accept(&listener, &service) => {}
    }
}

async fn accept<S: Answers>(listener: &TcpListener, service: &Arc<S>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let serving = serve(stream, Arc::clone(service));
                spawn_aside(&Handle::current(), S::NAME, serving);
            }
            Err(error) => {
                debug!(%error, "a server cannot accept a connection");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// Serves one connection until either side closes it.
async fn serve<S: Answers>(stream: TcpStream, service: Arc<S>) {
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "a server cannot set TCP_NODELAY");
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
            debug!(%error, "a server cannot reset a connection");
        }
    }
}
