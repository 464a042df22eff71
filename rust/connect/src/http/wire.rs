// SPDX-License-Identifier: Apache-2.0
//! The bytes of a connection, in the clear or encrypted, and whether any came.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::dial::Duplex;

/// How often bytes came over a connection. One that has not changed says that nothing came.
#[derive(Clone, Debug, Default)]
pub(super) struct Reads(Arc<AtomicU64>);

impl Reads {
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The same of bytes that came or left. One that has not changed says that the server does nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Moves(Reads);

impl Moves {
    pub(super) fn count(&self) -> u64 {
        self.0.count()
    }
}

/// One of the connections that are open; counted until it is dropped.
#[derive(Debug)]
pub(super) struct Open(Arc<AtomicUsize>);

impl Open {
    pub(super) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection whose reads and writes are counted.
pub(super) struct Wire {
    io: Box<dyn Duplex>,
    reads: Reads,
    moves: Moves,
    _open: Open,
}

impl Wire {
    pub(super) fn new(io: Box<dyn Duplex>, open: Open) -> Self {
        Self { io, reads: Reads::default(), moves: Moves::default(), _open: open }
    }

    /// Returns what tells whether anything comes or leaves.
    pub(super) fn moves(&self) -> Moves {
        self.moves.clone()
    }

    /// Notes whether bytes have left.
    fn written(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(written, Poll::Ready(Ok(1..))) {
            self.moves.0.0.fetch_add(1, Ordering::Relaxed);
        }
        written
    }

    /// Returns what tells of its reads.
    pub(super) fn reads(&self) -> Reads {
        self.reads.clone()
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(context, into))?;
        if into.filled().len() > before {
            self.reads.0.fetch_add(1, Ordering::Relaxed);
            self.moves.0.0.fetch_add(1, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        self.written(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, slices);
        self.written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
