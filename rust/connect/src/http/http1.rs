// SPDX-License-Identifier: Apache-2.0
//! A connection of HTTP/1.1, served within the call that uses it.
//!
//! No task of its own: the call that waits for the connection is woken by the socket itself. While it
//! is idle nobody polls it; what the server did meanwhile is seen when it is looked at.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;

use super::wire::{Moves, Reads, Wire};

/// Most headers of a response of a server that was seen to send more than 100. Not for all servers: it costs
/// each response an allocation of 50 KB.
pub(super) const MANY_HEADERS: usize = 1024;

/// A connection, used by one call at a time.
pub(super) struct Line {
    sender: SendRequest<Full<Bytes>>,
    /// Not in place: lines are handed from call to call.
    connection: Option<Box<Connection<TokioIo<Wire>, Full<Bytes>>>>,
    reads: Reads,
    moves: Moves,
    takes_many_headers: bool,
}

/// Why a request has no response.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) error: hyper::Error,
    /// Whether the request began to leave.
    pub(super) was_sent: bool,
    /// Whether anything of a response came.
    pub(super) has_answer: bool,
    /// Whether the response might have many headers.
    pub(super) takes_many_headers: bool,
}

impl Lost {
    /// Whether a response came whose head is too large.
    pub(super) fn is_too_large(&self) -> bool {
        self.error.is_parse_too_large()
    }
}

impl Line {
    /// Makes a connection over `wire`; responses may have more headers than most have, if it is said so.
    pub(super) async fn new(wire: Wire, takes_many_headers: bool) -> hyper::Result<Self> {
        let (reads, moves) = (wire.reads(), wire.moves());
        let mut builder = http1::Builder::new();
        if takes_many_headers {
            builder.max_headers(MANY_HEADERS);
        }
        let (sender, connection) = builder.handshake(TokioIo::new(wire)).await?;
        let connection = Some(Box::new(connection));
        Ok(Self { sender, connection, reads, moves, takes_many_headers })
    }

    /// Returns what tells whether anything comes or leaves.
    pub(super) fn moves(&self) -> Moves {
        self.moves.clone()
    }

    /// Sends a request, and waits for the head of its response.
    pub(super) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Lost> {
        let before = self.reads.count();
        let mut response = pin!(self.sender.try_send_request(request));
        let connection = &mut self.connection;
        let response = poll_fn(|context| {
            // The connection takes the request, and hands over the response.
            poll(connection, context);
            response.as_mut().poll(context)
        });
        response.await.map_err(|mut lost| Lost {
            was_sent: lost.take_message().is_none(),
            has_answer: self.reads.count() != before,
            takes_many_headers: self.takes_many_headers,
            error: lost.into_error(),
        })
    }

    /// Waits for the next bytes of a body; `None` at its end.
    pub(super) async fn chunk(&mut self, body: &mut Incoming) -> Option<hyper::Result<Bytes>> {
        loop {
            let frame = poll_fn(|context| {
                let polled = Pin::new(&mut *body).poll_frame(context);
                if polled.is_ready() {
                    return polled;
                }
                // The connection reads no further than somebody asks.
                poll(&mut self.connection, context);
                Pin::new(&mut *body).poll_frame(context)
            });
            match frame.await? {
                Ok(frame) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Some(Ok(bytes));
                    }
                    // Trailers, which nobody reads.
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Looks at a connection that is not in use: whether it can take a request.
    pub(super) fn is_usable(&mut self) -> bool {
        poll(&mut self.connection, &mut Context::from_waker(Waker::noop()));
        self.connection.is_some() && self.sender.is_ready()
    }
}

/// Lets a connection do what it can.
///
/// One that has come to its end is dropped: a request that it has not taken is told so by that alone.
fn poll(
    connection: &mut Option<Box<Connection<TokioIo<Wire>, Full<Bytes>>>>,
    context: &mut Context<'_>,
) {
    if let Some(open) = connection
        && Pin::new(open).poll(context).is_ready()
    {
        *connection = None;
    }
}
