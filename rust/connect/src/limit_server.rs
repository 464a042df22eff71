// SPDX-License-Identifier: Apache-2.0
//! The server of a job's limits, in the driver's process: clock and sockets of
//! [`sparkawait_lease::Conversation`].
//!
//! Any thread may start and drop it. Its connections are tokio tasks; an exchange takes a lock for
//! microseconds.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use sparkawait_lease::{Conversation, Secret, Server};
use sparkawait_task::supervision::spawn_aside;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout_at};

/// How long somebody may take to say the secret.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a worker may be silent, or not read what it asked for. One that has nothing to say connects
/// again when it has.
const LONGEST_SILENCE: Duration = Duration::from_secs(90);

/// Connections at a time that have not said the secret yet.
const STRANGERS: usize = 256;

const READ_BYTES: usize = 16 << 10;

/// A server that answers workers of one job, until it is dropped.
#[derive(Debug)]
pub struct LimitServer {
    address: Option<SocketAddr>,
    limits: Arc<Limits>,
    task: AbortHandle,
}

#[derive(Debug)]
struct Limits {
    server: Mutex<Server>,
    published: Condvar,
    secret: Secret,
    started: Instant,
}

impl LimitServer {
    /// Listens at a port, any free one for 0.
    ///
    /// # Errors
    ///
    /// The address is not one of this machine, or is in use.
    pub fn start(runtime: &Handle, host: &str, port: u16, secret: &str) -> io::Result<Self> {
        let listener = StdListener::bind((host, port))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let _entered = runtime.enter();
        let listener = TcpListener::from_std(listener)?;
        let accept = async move || {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        let limits = Limits::new(secret);
        let serving = serve(runtime.clone(), accept, Arc::clone(&limits));
        let task = spawn_aside(runtime, "limits.server", serving);
        Ok(Self { address: Some(address), limits, task })
    }

    /// Listens at a socket of this machine that is not there yet: no port opens.
    ///
    /// # Errors
    ///
    /// The path cannot be made.
    pub fn start_at(runtime: &Handle, path: &str, secret: &str) -> io::Result<Self> {
        let _entered = runtime.enter();
        let listener = UnixListener::bind(path)?;
        let accept = async move || Ok(listener.accept().await?.0);
        let limits = Limits::new(secret);
        let serving = serve(runtime.clone(), accept, Arc::clone(&limits));
        let task = spawn_aside(runtime, "limits.server", serving);
        Ok(Self { address: None, limits, task })
    }

    /// Returns what workers have published, oldest first.
    pub fn take_published(&self) -> Vec<String> {
        self.limits.server.lock().unwrap_or_else(PoisonError::into_inner).take_published()
    }

    /// Waits until something is published, for so long at most; returns whether it is.
    pub fn wait_published(&self, patience: Duration) -> bool {
        self.limits.wait_published(patience)
    }

    /// The port that it listens at.
    pub fn port(&self) -> Option<u16> {
        self.address.map(|it| it.port())
    }
}

impl Drop for LimitServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Limits {
    fn new(secret: &str) -> Arc<Self> {
        let (server, published) = (Mutex::default(), Condvar::new());
        Arc::new(Self { server, published, secret: Secret::new(secret), started: Instant::now() })
    }

    fn take(&self, talk: &mut Conversation, bytes: &[u8], replies: &mut Vec<u8>) {
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        let now = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        talk.take(bytes, &mut server, &self.secret, now, replies);
        if server.has_published() {
            self.published.notify_one();
        }
    }

    fn wait_published(&self, patience: Duration) -> bool {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.published.wait_timeout_while(server, patience, |it| !it.has_published());
        waited.unwrap_or_else(PoisonError::into_inner).0.has_published()
    }
}

/// Takes connections until it is aborted, and ends them then.
async fn serve<S>(runtime: Handle, accept: impl AsyncFn() -> io::Result<S>, limits: Arc<Limits>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let strangers = Arc::new(Semaphore::new(STRANGERS));
    let (_open, is_open) = watch::channel(());
    while let Ok(stranger) = Arc::clone(&strangers).acquire_owned().await {
        match accept().await {
            Ok(stream) => {
                let (mut is_open, limits) = (is_open.clone(), Arc::clone(&limits));
                spawn_aside(&runtime, "limits.connection", async move {
                    tokio::select! {
                        _ = is_open.changed() => {}
                        () = talk(stream, &limits, stranger) => {}
                    }
                });
            }
            Err(error) => {
                // Such as no file descriptor: one may be free later.
                tracing::warn!(%error, "the server of the job's limits takes no connection");
                sleep(PATIENCE).await;
            }
        }
    }
}

/// Answers one connection until it ends.
async fn talk<S>(mut stream: S, limits: &Limits, stranger: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut talk = Conversation::default();
    let mut stranger = Some(stranger);
    let (mut bytes, mut replies) = (vec![0; READ_BYTES], Vec::new());
    let mut until = Instant::now() + PATIENCE;
    loop {
        let read = timeout_at(until, stream.read(&mut bytes)).await;
        let Ok(Ok(count @ 1..)) = read else { return };
        limits.take(&mut talk, &bytes[..count], &mut replies);
        if talk.is_known() {
            drop(stranger.take());
            until = Instant::now() + LONGEST_SILENCE;
        }
        let written = timeout_at(until, stream.write_all(&replies)).await;
        replies.clear();
        if !matches!(written, Ok(Ok(()))) || talk.is_over() {
            return;
        }
    }
}
