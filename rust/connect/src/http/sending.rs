// SPDX-License-Identifier: Apache-2.0
//! A request that is sent until a response comes, and the body of that.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use sparkawait_task::cause::Cause;
use tokio::time::Instant;

use super::clients::Clients;
use super::failure::{badly_packed, broke_off, in_coding, silent, too_large};
use super::http2;
use super::reply::{Broken, Cut, Outgoing, Reply};
use super::watch::Watch;
use crate::failure::Failure;
use crate::pool::Wish;

/// Most times that a request is sent again that no server took: each time another connection ends
/// under it, or has no room.
const MOST_RESENDS: usize = 5;

/// Sends a request, and sends it again where nothing can have been done about it, or where doing it
/// twice is harmless (`is_repeatable`) and a connection that was kept has ended under it. Nobody hears
/// of that: no server was asked in vain, and no attempt is counted.
pub(super) async fn send(
    clients: &Arc<Clients>,
    watch: &Watch,
    most_bytes: usize,
    is_repeatable: bool,
    request: &Outgoing,
) -> Result<Reply, Broken> {
    let (mut wish, mut resends) = (Wish { is_new: false, careful: !is_repeatable }, 0);
    loop {
        let taken = request.place.take(wish).await;
        let taken = taken.map_err(Broken::NoConnection)?;
        watch.begin();
        let error = match request.over(taken, clients.takes_packed(), most_bytes, watch).await {
            Ok(reply) => return Ok(reply),
            Err(error) => error,
        };
        if let Broken::OfLine { lost, .. } = &error
            && lost.is_too_large()
            && !lost.takes_many_headers
        {
            request.place.origin.has_many_headers.store(true, Ordering::Relaxed);
            // Those that are kept take no more than this one.
            request.place.pool.close_before(Instant::now());
            if is_repeatable {
                continue;
            }
        }
        let is_lost = error.cause() == Cause::Unknown;
        let is_of_connection = match &error {
            Broken::OfLine { lost, idle_since } => idle_since.is_some() && !lost.has_answer,
            Broken::OfStream(http2::Broken::NotTaken) => true,
            Broken::OfStream(http2::Broken::Lost(error)) => error.is_io(),
            _ => false,
        };
        resends += 1;
        if !is_of_connection
            || !error.cause().may_repeat(is_repeatable)
            || (is_lost && wish.is_new)
            || (resends > MOST_RESENDS && matches!(error, Broken::OfStream(_)))
        {
            return Err(error);
        }
        if is_lost {
            wish.is_new = true;
            if let Broken::OfLine { idle_since: Some(since), .. } = error {
                request.place.pool.close_before(since);
            }
        }
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
