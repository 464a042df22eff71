// SPDX-License-Identifier: Apache-2.0
//! A connection of HTTP/2, which many calls share.
//!
//! A task drives it, and asks it for a sign of life (a ping): at times while calls wait, and at
//! once after a call was given up and nothing has come since it was sent. Until it answers no
//! further call takes it; if it stays silent, the task closes it.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, Bytes};
use h2::client::{Builder, Connection, SendRequest};
use h2::{Ping, PingPong, Reason, RecvStream};
use http::{Request, Response};
use sparkawait_task::supervision::spawn_aside;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::watch::Watch;
use super::wire::{Reads, Wire};

/// How long a new connection waits for what its server allows, which is the first that it says.
const SETTINGS_PATIENCE: Duration = Duration::from_secs(1);

/// What a server is taken to allow until it says so.
const STREAMS_UNSAID: usize = 100;

/// Stands for what was not said yet: no server says just this.
const NOT_SAID: usize = usize::MAX - 7;

/// As much may be on its way of one response, and of all of a connection. With less, long distances
/// are slow: a server stops until it is told to go on.
const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 5 << 20;

/// When a connection is asked whether it is alive, and for how long it may keep that to itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pings {
    pub(super) every: Duration,
    pub(super) patience: Duration,
}

/// A connection.
pub(super) struct SharedLine {
    sender: SendRequest<Upload>,
    /// Most requests at a time, if the server allows as many.
    most: usize,
    life: Arc<Life>,
    pub(super) made: Instant,
}

/// What its calls and the task that drives it tell one another.
struct Life {
    /// Requests that are under way.
    in_use: AtomicUsize,
    /// Nanoseconds after it was made, when the last one ended that was alone.
    idle_after: AtomicU64,
    /// It takes no further request.
    is_leaving: AtomicBool,
    /// A call was given up over it, and nothing came since.
    is_doubted: AtomicBool,
    doubt: Notify,
    reads: Reads,
}

/// A request's place on a connection; given back when it is dropped.
pub(super) struct Stream {
    line: Arc<SharedLine>,
    /// What had been read when it was sent.
    reads: u64,
    is_answered: bool,
}

/// The body of a request. What leaves of it shows that its server is not silent.
pub(super) struct Upload {
    left: Bytes,
    watch: Arc<Watch>,
}

/// Why a request over HTTP/2 has no response.
#[derive(Debug)]
pub(super) enum Broken {
    /// The server did nothing about it, or never got it.
    NotTaken,
    /// It is not a valid request.
    Wrong(h2::Error),
    /// Who knows.
    Lost(h2::Error),
}

impl SharedLine {
    /// Makes a connection over `wire`, and waits for what its server allows: requests beyond that
    /// would wait inside of the library, where nobody counts them.
    pub(super) async fn new(wire: Wire, most: usize, pings: Pings) -> Result<Arc<Self>, h2::Error> {
        let reads = wire.reads();
        let mut builder = Builder::new();
        builder
            .initial_max_send_streams(NOT_SAID)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .enable_push(false);
        let (sender, mut connection) = builder.handshake::<_, Upload>(wire).await?;
        let pong = connection.ping_pong();
        let said = poll_fn(|context| match Pin::new(&mut connection).poll(context) {
            Poll::Pending if sender.current_max_send_streams() != NOT_SAID => Poll::Ready(Ok(())),
            polled => polled,
        });
        if let Ok(said) = timeout(SETTINGS_PATIENCE, said).await {
            said?;
        }
        let life = Arc::new(Life {
            in_use: AtomicUsize::new(0),
            idle_after: AtomicU64::new(0),
            is_leaving: AtomicBool::new(false),
            is_doubted: AtomicBool::new(false),
            doubt: Notify::new(),
            reads,
        });
        let driven = drive(connection, pong, pings, Arc::clone(&life));
        spawn_aside(&Handle::current(), "http2 connection", driven);
        Ok(Arc::new(Self { sender, most, life, made: Instant::now() }))
    }

    /// Requests that it takes at a time.
    pub(super) fn streams(&self) -> usize {
        let allowed = match self.sender.current_max_send_streams() {
            NOT_SAID => STREAMS_UNSAID,
            said => said,
        };
        allowed.min(self.most)
    }

    /// Whether it takes no further request, now or ever.
    pub(super) fn is_leaving(&self) -> bool {
        self.life.is_leaving.load(Ordering::Relaxed)
    }

    /// Returns since when no request is under way, if none is.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.life.in_use.load(Ordering::Relaxed) == 0;
        let after = Duration::from_nanos(self.life.idle_after.load(Ordering::Relaxed));
        is_idle.then(|| self.made + after)
    }

    /// Takes a place on it, if one is free. To be called by one at a time.
    pub(super) fn take(self: &Arc<Self>) -> Option<Stream> {
        let in_use = self.life.in_use.load(Ordering::Relaxed);
        let is_doubted = self.life.is_doubted.load(Ordering::Relaxed);
        if self.is_leaving() || is_doubted || in_use >= self.streams() {
            return None;
        }
        self.life.in_use.fetch_add(1, Ordering::Relaxed);
        let reads = self.life.reads.count();
        Some(Stream { line: Arc::clone(self), reads, is_answered: false })
    }
}

impl Upload {
    pub(super) fn new(body: Bytes, watch: &Arc<Watch>) -> Self {
        Self { left: body, watch: Arc::clone(watch) }
    }
}

impl Buf for Upload {
    fn remaining(&self) -> usize {
        self.left.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.left
    }

    fn advance(&mut self, count: usize) {
        self.left.advance(count);
        self.watch.moved();
    }
}

impl Stream {
    /// Sends a request, and waits for the head of its response.
    pub(super) async fn send(
        &mut self,
        request: Request<()>,
        body: Option<Upload>,
    ) -> Result<Response<RecvStream>, Broken> {
        let mut sender = self.line.sender.clone();
        self.reads = self.line.life.reads.count();
        let (response, mut stream) = match sender.send_request(request, body.is_none()) {
            Ok(sent) => sent,
            Err(error) if error.is_go_away() || error.is_io() || error.is_reset() => {
                self.line.life.is_leaving.store(true, Ordering::Relaxed);
                self.is_answered = true;
                return Err(Broken::NotTaken);
            }
            Err(error) => return Err(Broken::Wrong(error)),
        };
        if let Some(body) = body {
            // What the server does not take yet waits in the library, which shares its memory.
            stream.send_data(body, true).map_err(Broken::Lost)?;
        }
        match response.await {
            Ok(response) => Ok(response),
            Err(error) => {
                self.is_answered = true;
                if !error.is_reset() {
                    self.line.life.is_leaving.store(true, Ordering::Relaxed);
                }
                // A connection's end names the last request that it took: this one came behind.
                let is_beyond = error.is_go_away();
                let is_refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
                let is_not_taken = error.is_remote() && (is_beyond || is_refused);
                Err(if is_not_taken { Broken::NotTaken } else { Broken::Lost(error) })
            }
        }
    }

    /// Notes that the response was read to its end.
    pub(super) fn is_answered(&mut self) {
        self.is_answered = true;
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let life = &self.line.life;
        if life.in_use.fetch_sub(1, Ordering::Relaxed) == 1 {
            let after = u64::try_from(self.line.made.elapsed().as_nanos()).unwrap_or(u64::MAX);
            life.idle_after.store(after, Ordering::Relaxed);
        }
        if !self.is_answered && life.reads.count() == self.reads {
            life.is_doubted.store(true, Ordering::Relaxed);
            life.doubt.notify_one();
        }
    }
}

/// Waits for the next bytes of a body; `None` at its end.
pub(super) async fn chunk(body: &mut RecvStream) -> Option<Result<Bytes, h2::Error>> {
    let bytes = match body.data().await? {
        Ok(bytes) => bytes,
        // What is whole was answered before the connection ended.
        Err(error) if error.reason() == Some(Reason::NO_ERROR) && body.is_end_stream() => {
            return None;
        }
        Err(error) => return Some(Err(error)),
    };
    // The server may send as much again.
    Some(body.flow_control().release_capacity(bytes.len()).map(|()| bytes))
}

/// Serves a connection to its end.
async fn drive(
    connection: Connection<Wire, Upload>,
    mut pong: Option<PingPong>,
    pings: Pings,
    life: Arc<Life>,
) {
    let mut connection = pin!(connection);
    let mut heard = life.reads.count();
    loop {
        tokio::select! {
            _ = &mut connection => break,
            () = life.doubt.notified() => {}
            () = sleep(pings.every) => {
                let before = std::mem::replace(&mut heard, life.reads.count());
                if life.in_use.load(Ordering::Relaxed) == 0 || before != heard {
                    continue;
                }
            }
        }
        let Some(pong) = &mut pong else { continue };
        tokio::select! {
            _ = &mut connection => break,
            answered = timeout(pings.patience, pong.ping(Ping::opaque())) => match answered {
                Ok(Ok(_)) => life.is_doubted.store(false, Ordering::Relaxed),
                // Its calls end with it.
                _ => break,
            }
        }
    }
    life.is_leaving.store(true, Ordering::Relaxed);
}
