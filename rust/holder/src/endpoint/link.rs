// SPDX-License-Identifier: Apache-2.0
//! A connection between two processes of one user, shared by all steps between them.
//!
//! ```text
//!   threads of steps                    tokio task of the process
//!      | push, receive, recycle               | reads, writes
//!      +----> [ Connection, inboxes ] <-------+        one lock, once per bundle or burst
//! ```

use std::collections::HashMap;
use std::io::{self, ErrorKind as IoKind};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sparkawait_runtime::tokio_runtime;
use sparkawait_task::shared::Shared;
use sparkawait_task::supervision::spawn_aside;
use sparkawait_wire::{ChannelKey, Connection, ConnectionConfig, ConnectionError, Event};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{ReadHalf, WriteHalf};
use tokio::sync::Notify;

use super::inbox::{Inbox, Received};
use super::messages::{ANSWER, Address, GIVEN_UP, Subject, UNUSED};
use super::socket::connect_within;

/// Room for what comes at once.
const READ: usize = 256 << 10;

/// Bytes that are written at once.
const WRITE: usize = 256 << 10;

/// A connection that nobody uses for so long is closed by the process that made it.
const IDLE: Duration = Duration::from_secs(30);

/// How long the other end may take to say who it is.
const GREETING: Duration = Duration::from_secs(2);

/// How long the other end may take to read that the connection is closed.
const FAREWELL: Duration = Duration::from_secs(1);

/// Bytes of a frame behind its header: a bundle is one message.
const MAX_FRAME: usize = 1 << 30;

/// Connections by the sockets that they lead to.
type Links = HashMap<String, Arc<Link>>;

/// The connections that this process has made.
static LINKS: Shared = Shared::new();

/// Does something with all of them, which does not block: the tokio thread waits for it, too.
fn with_links<T>(act: impl FnOnce(&mut Links) -> T) -> T {
    act(&mut LINKS.of_process::<Mutex<Links>>().lock().unwrap_or_else(PoisonError::into_inner))
}

/// Begins to serve what another process asks for, with the lock of the connection; an error if it
/// cannot.
pub(super) type Serve = fn(Arc<Link>, ChannelKey, Subject) -> io::Result<()>;

/// One end of a connection.
pub(super) struct Link {
    state: Mutex<State>,
    /// Something came, or there is room to send more, or the connection is lost.
    changed: Condvar,
    /// There is something to be written, or nobody is to write any more.
    has_output: Notify,
    /// Absent where nothing is served.
    serve: Option<Serve>,
}

struct State {
    connection: Connection,
    /// What came on the channels that are received on.
    inboxes: HashMap<ChannelKey, Inbox>,
    /// Why the connection is of no use any more.
    lost: Option<String>,
    /// Whether this end closes it, as soon as the other one is told.
    is_leaving: bool,
    /// Why the other end closes it.
    farewell: Option<String>,
}

/// Tells whether nothing could be written because the other end has closed the connection.
fn has_hung_up(error: &io::Error) -> bool {
    matches!(error.kind(), IoKind::BrokenPipe | IoKind::ConnectionReset)
}

/// Tells whether the other end is a process of the same user.
#[cfg(target_os = "linux")]
fn is_ours(stream: &UnixStream) -> bool {
    rustix::net::sockopt::socket_peercred(stream)
        .is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

/// The folder sees to it.
#[cfg(not(target_os = "linux"))]
fn is_ours(_stream: &UnixStream) -> bool {
    true
}

impl Link {
    /// Asks a process for something, over the connection that there is, or a new one.
    pub(super) fn ask(address: &Address, subject: &Subject) -> io::Result<(Arc<Self>, ChannelKey)> {
        let place = &address.path;
        // With the lock of all links, so that none is closed between two steps.
        let open = |links: &mut Links| {
            let link = links.get(place)?;
            link.open(subject).ok().map(|channel| (Arc::clone(link), channel))
        };
        if let Some(asked) = with_links(open) {
            return Ok(asked);
        }
        // Without it, since a process that stands still may not take a connection for long.
        let stream = connect_within(place.as_ref(), ANSWER / 2)?;
        let link = Self::start(stream, address.token, None, Some(place.clone()))?;
        with_links(|links| {
            if let Some(asked) = open(links) {
                link.leave(UNUSED, "another thread has connected, too");
                return Ok(asked);
            }
            let channel = link.open(subject)?;
            links.insert(place.clone(), Arc::clone(&link));
            Ok((link, channel))
        })
    }

    /// Speaks over a stream from now on.
    pub(super) fn start(
        stream: UnixStream,
        token: [u8; 16],
        serve: Option<Serve>,
        place: Option<String>,
    ) -> io::Result<Arc<Self>> {
        if !is_ours(&stream) {
            return Err(io::Error::new(IoKind::PermissionDenied, "another user's process"));
        }
        stream.set_nonblocking(true)?;
        let config = ConnectionConfig { max_frame: MAX_FRAME, ..ConnectionConfig::of_host() };
        let connection = Connection::new(config, token);
        let state = State {
            connection,
            inboxes: HashMap::new(),
            lost: None,
            is_leaving: false,
            farewell: None,
        };
        let link = Arc::new(Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            has_output: Notify::new(),
            serve,
        });
        let (of_task, runtime) = (Arc::clone(&link), tokio_runtime::handle()?);
        spawn_aside(&runtime, "connection", async move {
            let guard = Guard(of_task);
            let reason = guard.0.drive(stream, place.as_deref()).await;
            guard.0.lose(&reason.to_string());
            if let Some(place) = place {
                guard.0.forget(&place);
            }
        });
        Ok(link)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for something; what comes is [received](Self::receive).
    pub(super) fn open(&self, subject: &Subject) -> io::Result<ChannelKey> {
        let mut state = self.lock();
        state.check()?;
        let channel = state.connection.open(subject.to_bytes()).map_err(io::Error::other)?;
        state.inboxes.insert(channel, Inbox::default());
        drop(state);
        self.has_output.notify_one();
        Ok(channel)
    }

    /// Waits for what comes on a channel, at most for `timeout`.
    pub(super) fn receive(&self, channel: ChannelKey, timeout: Duration) -> io::Result<Received> {
        let is_quiet = |state: &mut State| {
            state.lost.is_none() && state.inboxes.get(&channel).is_some_and(Inbox::is_empty)
        };
        let waiting = self.changed.wait_timeout_while(self.lock(), timeout, is_quiet);
        let (mut state, _) = waiting.unwrap_or_else(PoisonError::into_inner);
        let inbox = state.inboxes.get_mut(&channel).ok_or(IoKind::NotConnected)?;
        match inbox.take() {
            Received::Nothing => state.check().map(|()| Received::Nothing),
            received => Ok(received),
        }
    }

    /// Ends the use of what was received.
    pub(super) fn recycle(&self, channel: ChannelKey, cost: u32) {
        self.lock().connection.recycle(channel, cost);
        self.has_output.notify_one();
    }

    /// Sends something on a channel once there is room, at most after `timeout`; false if there is
    /// none, or if something came on `answers`.
    ///
    /// Under one lock: others that send on the connection would take the room meanwhile.
    pub(super) fn push_within(
        &self,
        channel: ChannelKey,
        answers: Option<ChannelKey>,
        payload: &Bytes,
        timeout: Duration,
    ) -> io::Result<bool> {
        let is_quiet = |state: &State| {
            answers.is_none_or(|it| state.inboxes.get(&it).is_some_and(Inbox::is_empty))
        };
        let waits = |state: &mut State| {
            let connection = &state.connection;
            let is_full = connection.is_sending(channel) && !connection.is_available(channel);
            state.lost.is_none() && is_full && is_quiet(state)
        };
        let waiting = self.changed.wait_timeout_while(self.lock(), timeout, waits);
        let (mut state, _) = waiting.unwrap_or_else(PoisonError::into_inner);
        state.check()?;
        if !state.connection.is_available(channel) || !is_quiet(&state) {
            return Ok(false);
        }
        let pushed = state.connection.push(channel, payload.clone());
        drop(state);
        self.has_output.notify_one();
        pushed.map(|()| true).map_err(|_| IoKind::BrokenPipe.into())
    }

    /// Returns whether the other end wants what is sent on a channel.
    pub(super) fn is_wanted(&self, channel: ChannelKey) -> bool {
        let state = self.lock();
        state.lost.is_none() && state.connection.is_sending(channel)
    }

    /// Ends what is sent on a channel.
    pub(super) fn end(&self, channel: ChannelKey) {
        self.lock().connection.end(channel);
        self.has_output.notify_one();
    }

    /// Ends what is sent on a channel, and says why.
    pub(super) fn reset(&self, channel: ChannelKey, code: u16, reason: Bytes) {
        self.lock().connection.reset(channel, code, reason);
        self.has_output.notify_one();
    }

    /// Wants no more of a channel. Idempotent.
    pub(super) fn close(&self, channel: ChannelKey) {
        let mut state = self.lock();
        if let Some(inbox) = state.inboxes.remove(&channel) {
            for (cost, _) in inbox.messages {
                state.connection.recycle(channel, cost);
            }
            state.connection.cancel(channel);
            drop(state);
            self.has_output.notify_one();
        }
    }

    /// Makes the next user open another connection.
    fn forget(self: &Arc<Self>, place: &str) {
        with_links(|links| self.remove_from(links, place));
    }

    /// Does so if nobody uses this one; returns whether it did.
    fn forget_unused(self: &Arc<Self>, place: &str) -> bool {
        with_links(|links| {
            let is_used = self.is_used();
            if !is_used {
                self.remove_from(links, place);
            }
            !is_used
        })
    }

    /// Another one may be at its place since it had as many channels as it may.
    fn remove_from(self: &Arc<Self>, links: &mut Links, place: &str) {
        if links.get(place).is_some_and(|it| Arc::ptr_eq(it, self)) {
            links.remove(place);
        }
    }

    fn is_used(&self) -> bool {
        !self.lock().inboxes.is_empty()
    }

    fn lose(&self, reason: &str) {
        self.lock().lost.get_or_insert_with(|| reason.to_owned());
        self.changed.notify_all();
        self.has_output.notify_one();
    }

    /// Reads and writes until the connection is lost, or nobody uses it; returns why.
    async fn drive(self: &Arc<Self>, stream: UnixStream, place: Option<&str>) -> io::Error {
        let mut stream = match tokio::net::UnixStream::from_std(stream) {
            Ok(stream) => stream,
            Err(error) => return error,
        };
        let (reader, writer) = stream.split();
        let mut reading = std::pin::pin!(self.read(reader));
        let mut writing = std::pin::pin!(self.write(writer));
        let mut is_written = false;
        let ended = tokio::select! {
            ended = &mut reading => ended,
            ended = &mut writing => {
                is_written = true;
                ended
            }
            ended = self.watch(place) => ended,
        };
        if !is_written && self.lock().is_leaving {
            #[expect(
                clippy::let_underscore_must_use,
                reason = "who does not read it finds out by the end of the stream"
            )]
            let _ = tokio::time::timeout(FAREWELL, writing).await;
        } else if is_written && ended.as_ref().is_err_and(has_hung_up) {
            #[expect(
                clippy::let_underscore_must_use,
                reason = "whatever the other end has said before is still to be read"
            )]
            let _ = tokio::time::timeout(FAREWELL, reading).await;
        }
        let farewell = self.lock().farewell.take();
        let told = farewell.map(|it| io::Error::other(format!("closed by the other end: {it}")));
        told.or(ended.err()).unwrap_or_else(|| IoKind::UnexpectedEof.into())
    }

    /// Closes the connection as soon as the other end is told why.
    fn leave(&self, code: u16, reason: &str) {
        let mut state = self.lock();
        state.connection.go_away(code, Bytes::copy_from_slice(reason.as_bytes()));
        state.is_leaving = true;
        drop(state);
        self.has_output.notify_one();
    }

    async fn read(self: &Arc<Self>, mut reader: ReadHalf<'_>) -> io::Result<()> {
        let mut bytes = BytesMut::new();
        loop {
            if bytes.capacity() - bytes.len() < READ / 4 {
                bytes.reserve(READ);
            }
            if reader.read_buf(&mut bytes).await? == 0 {
                return Ok(());
            }
            self.handle_read(&mut bytes).map_err(io::Error::other)?;
        }
    }

    fn handle_read(self: &Arc<Self>, bytes: &mut BytesMut) -> Result<(), ConnectionError> {
        let mut state = self.lock();
        if let Err(error) = state.connection.handle_read(bytes) {
            // The connection has something to say of it.
            state.is_leaving = true;
            drop(state);
            self.has_output.notify_one();
            return Err(error);
        }
        while let Some(event) = state.connection.poll_event() {
            if let Some((channel, subject)) = state.note(event) {
                let served = self.serve.map(|serve| serve(Arc::clone(self), channel, subject));
                if !matches!(served, Some(Ok(()))) {
                    state.connection.reset(channel, GIVEN_UP, Bytes::new());
                }
            }
        }
        drop(state);
        self.changed.notify_all();
        self.has_output.notify_one();
        Ok(())
    }

    async fn write(&self, mut writer: WriteHalf<'_>) -> io::Result<()> {
        let mut chunks = Vec::new();
        loop {
            let is_leaving = self.poll_write(&mut chunks)?;
            if chunks.is_empty() {
                if is_leaving {
                    return Ok(());
                }
                self.has_output.notified().await;
                self.lock().check()?;
                continue;
            }
            // There is room for more.
            self.changed.notify_all();
            for chunk in chunks.drain(..) {
                writer.write_all(&chunk).await?;
            }
        }
    }

    /// Takes what to write; returns whether this end says why it closes the connection.
    fn poll_write(&self, chunks: &mut Vec<Bytes>) -> io::Result<bool> {
        let mut state = self.lock();
        state.connection.poll_write(WRITE, chunks).map_err(io::Error::other)?;
        Ok(state.is_leaving)
    }

    /// Sees to it that the other end says who it is, and that no connection is kept for nobody.
    async fn watch(self: &Arc<Self>, place: Option<&str>) -> io::Result<()> {
        tokio::time::sleep(GREETING).await;
        if !self.lock().connection.is_greeted() {
            let silent = format!("the other end did not say who it is within {GREETING:?}");
            return Err(io::Error::other(silent));
        }
        let Some(place) = place else { return std::future::pending().await };
        let mut was_used = true;
        loop {
            tokio::time::sleep(IDLE).await;
            let is_used = self.is_used();
            if !is_used && !was_used && self.forget_unused(place) {
                let reason = "nobody used the connection";
                self.leave(UNUSED, reason);
                return Err(io::Error::other(reason));
            }
            was_used = is_used;
        }
    }
}

impl State {
    fn check(&self) -> io::Result<()> {
        match &self.lost {
            None => Ok(()),
            Some(reason) => Err(io::Error::new(IoKind::ConnectionAborted, reason.clone())),
        }
    }

    /// Files what has happened; returns what the other end asks for.
    fn note(&mut self, event: Event) -> Option<(ChannelKey, Subject)> {
        match event {
            Event::Data { channel, cost, payload } => match self.inboxes.get_mut(&channel) {
                Some(inbox) => inbox.messages.push_back((cost, payload)),
                None => self.connection.recycle(channel, cost),
            },
            Event::Ended { channel } => self.end(channel, Received::Ended),
            Event::Reset { channel, code, reason } => {
                self.end(channel, Received::Reset(code, reason));
            }
            Event::Opened { channel, subject } => match Subject::read(&subject) {
                Some(Subject::Rows(of)) => match self.inboxes.get_mut(&of) {
                    Some(inbox) => inbox.wanted = Some(channel),
                    None => self.connection.reset(channel, GIVEN_UP, Bytes::new()),
                },
                Some(subject) => return Some((channel, subject)),
                None => self.connection.reset(channel, GIVEN_UP, Bytes::new()),
            },
            Event::GoneAway { reason, .. } => {
                self.farewell = Some(String::from_utf8_lossy(&reason).into_owned());
            }
            Event::Greeted | Event::Cancelled { .. } => {}
        }
        None
    }

    fn end(&mut self, channel: ChannelKey, end: Received) {
        if let Some(inbox) = self.inboxes.get_mut(&channel) {
            inbox.end = Some(end);
        }
    }
}

/// Tells those who wait when the task of a connection ends, also by a panic.
struct Guard(Arc<Link>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.lose("the connection has ended");
    }
}

// Shows nothing of what is on its way.
sparkawait_core::opaque_debug!(Link);

#[cfg(test)]
mod tests;
