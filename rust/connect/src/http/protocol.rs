// SPDX-License-Identifier: Apache-2.0
//! Which version of HTTP a host speaks, told as soon as there is a connection to it.
//!
//! TLS negotiates it, long before the host has answered. A client makes a connection within the call
//! that needs one, so what the connector sees belongs to the call that is being polled.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hyper_util::client::legacy::connect::Connection;
use reqwest::Version;
use tower_service::Service;

/// What differs for those who send requests: over HTTP/2 many share a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

impl From<Version> for Protocol {
    fn from(version: Version) -> Self {
        if version < Version::HTTP_2 { Self::Http1 } else { Self::Http2 }
    }
}

tokio::task_local! {
    /// Where the call that is being polled has noted what its connection speaks.
    static NEGOTIATED: Arc<OnceLock<Protocol>>;
}

/// Makes `call`, and tells `found` what its connection speaks once other calls may count on it.
///
/// A connection of HTTP/2 can be shared when the call goes on after it was made; those that
/// start before would make one of their own.
pub(super) async fn told<T>(call: impl Future<Output = T>, mut found: impl FnMut(Protocol)) -> T {
    let negotiated = Arc::new(OnceLock::new());
    let mut call = pin!(NEGOTIATED.scope(Arc::clone(&negotiated), call));
    poll_fn(|context| {
        let before = negotiated.get().copied();
        let polled = call.as_mut().poll(context);
        let known = match negotiated.get() {
            Some(Protocol::Http1) => Some(Protocol::Http1),
            _ => before,
        };
        if let Some(protocol) = known {
            found(protocol);
        }
        polled
    })
    .await
}

/// A connector that notes what its connections speak.
#[derive(Clone, Debug)]
pub(super) struct NotesProtocol<S>(pub(super) S);

impl<S, R> Service<R> for NotesProtocol<S>
where
    S: Service<R, Response: Connection, Future: Send + 'static>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        // Calls to hosts that are known do not ask.
        let negotiated = NEGOTIATED.try_with(Arc::clone).ok();
        let noted = move |connection: &S::Response| {
            let Some(negotiated) = negotiated else { return };
            let speaks_http2 = connection.connected().is_negotiated_h2();
            let protocol = if speaks_http2 { Protocol::Http2 } else { Protocol::Http1 };
            #[expect(
                clippy::let_underscore_must_use,
                reason = "it is said once, or the same again"
            )]
            let _ = negotiated.set(protocol);
        };
        self.0.call(request).map(|connected| connected.inspect(noted)).boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tokio::task::yield_now;

    use super::*;

    /// What was found before the connection is made, after, when its call has gone on, and at the end.
    async fn found_when(negotiated: Protocol) -> [Option<Protocol>; 3] {
        let found = RefCell::new(None);
        let mut seen = [None; 3];
        let call = async {
            yield_now().await;
            seen[0] = *found.borrow();
            NEGOTIATED.with(|it| it.set(negotiated)).unwrap();
            yield_now().await;
            seen[1] = *found.borrow();
            yield_now().await;
            seen[2] = *found.borrow();
        };
        told(call, |protocol| *found.borrow_mut() = Some(protocol)).await;
        seen
    }

    #[tokio::test]
    async fn http1_is_told_at_once() {
        let http1 = Some(Protocol::Http1);

        assert_eq!(found_when(Protocol::Http1).await, [None, http1, http1]);
    }

    #[tokio::test]
    async fn http2_is_told_once_the_connection_can_be_shared() {
        let http2 = Some(Protocol::Http2);

        assert_eq!(found_when(Protocol::Http2).await, [None, None, http2]);
    }
}
