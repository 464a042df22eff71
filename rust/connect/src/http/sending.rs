// SPDX-License-Identifier: Apache-2.0
//! A request that is sent once, and the body of its response.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use sparkawait_task::cause::Cause;
use tokio::time::Instant;

use super::again::Earlier;
use super::clients::Clients;
use super::failure::{badly_packed, broke_off, in_coding, silent, too_large};
use super::http2;
use super::reply::{Broken, Cut, Outgoing, Reply};
use super::watch::Watch;
use crate::failure::Failure;
use crate::pool::Wish;

/// Most times that a request goes out again that no server took: each time another connection has no
/// room.
const MOST_RESENDS: usize = 5;

/// A request that has no response.
pub(super) struct NoReply {
    pub(super) broken: Broken,
    /// What the next request has to know, if to send it again is harmless and worth it. It is a
    /// request more to its server, and so a call more.
    pub(super) again: Option<Earlier>,
}

/// Sends a request once. What no server took, since nothing of it left or it was handed back, goes out over
/// another connection: nobody hears of that, since no server was asked in vain.
pub(super) async fn send(
    clients: &Arc<Clients>,
    watch: &Arc<Watch>,
    most_bytes: usize,
    (is_repeatable, earlier): (bool, Earlier),
    request: &Outgoing,
) -> Result<Reply, NoReply> {
    let wish = Wish { is_new: earlier.was_lost, careful: !is_repeatable };
    let mut resends = 0;
    loop {
        let taken = request.place.take(wish).await;
        let taken = taken.map_err(|it| NoReply::last(Broken::NoConnection(it)))?;
        watch.begin().await;
        let broken = match request.over(taken, clients.takes_packed(), most_bytes, watch).await {
            Ok(reply) => return Ok(reply),
            Err(broken) => broken,
        };
        if let Broken::OfLine { lost, .. } = &broken
            && lost.is_too_large()
            && !lost.takes_many_headers
        {
            request.place.origin.has_many_headers.store(true, Ordering::Relaxed);
            // Neither those that are kept nor those in use take more than this one: a new one does.
            request.place.pool.close_before(Instant::now());
            let earlier = Earlier { was_lost: true, ..earlier };
            return Err(NoReply { broken, again: is_repeatable.then_some(earlier) });
        }
        let is_lost = broken.cause() == Cause::Unknown;
        let is_of_connection = match &broken {
            Broken::OfLine { lost, idle_since } => idle_since.is_some() && !lost.has_answer,
            Broken::OfStream(http2::Broken::NotTaken) => true,
            Broken::OfStream(http2::Broken::Lost(error)) => error.is_io(),
            _ => false,
        };
        resends += 1;
        if !is_of_connection
            || !broken.cause().may_repeat(is_repeatable)
            || (is_lost && wish.is_new)
            || (resends > MOST_RESENDS && matches!(broken, Broken::OfStream(_)))
        {
            return Err(NoReply::last(broken));
        }
        if is_lost {
            if let Broken::OfLine { idle_since: Some(since), .. } = broken {
                request.place.pool.close_before(since);
            }
            return Err(NoReply { broken, again: Some(Earlier { was_lost: true, ..earlier }) });
        }
    }
}

/// Sends a request that may be sent twice, of no row: again where a connection has ended under it.
pub(super) async fn send_until_answered(
    clients: &Arc<Clients>,
    watch: &Arc<Watch>,
    most_bytes: usize,
    request: &Outgoing,
) -> Result<Reply, Broken> {
    let mut earlier = Earlier::default();
    loop {
        match send(clients, watch, most_bytes, (true, earlier), request).await {
            Ok(reply) => return Ok(reply),
            Err(NoReply { again: Some(known), .. }) => earlier = known,
            Err(NoReply { broken, .. }) => return Err(broken),
        }
    }
}

impl NoReply {
    fn last(broken: Broken) -> Self {
        Self { broken, again: None }
    }
}

/// Reads the next piece of a body of at most `limit` bytes.
pub(super) async fn next(
    host: &str,
    limit: usize,
    watch: &Watch,
    reply: &mut Reply,
) -> Result<Option<Bytes>, Failure> {
    reply.chunk(watch).await.map_err(|cut| match cut {
        Cut::TooLarge => too_large(host, limit),
        Cut::Silent => silent(host),
        Cut::Coding(coding) => in_coding(host, &coding),
        Cut::Packed(error) => badly_packed(host, &error),
        Cut::Lost(error) => broke_off(host, reply.is_https(), error.as_ref()),
    })
}
