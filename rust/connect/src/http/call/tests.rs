// SPDX-License-Identifier: Apache-2.0
//! Tests of single calls, over real connections and with a clock that the test moves.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::pin::pin;
use std::sync::mpsc;
use std::thread;

use futures_util::FutureExt;
use http::uri::PathAndQuery;
use tokio::task::yield_now;
use url::Url;

use super::*;
use crate::connectors::parse;
use crate::http::HttpConfig;
use crate::http::watch::Clock;
use crate::reply_budget::ReplyBudget;
use sparkawait_core::queue::EntryId;

/// Bytes of the body; more than two units of a budget.
const BODY: usize = 700_001;

/// Answers one request: the last byte leaves when it is told so. Returns the port.
fn serve(told: mpsc::Receiver<()>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let _ = connection.read(&mut [0; 4096]).unwrap();
        write!(connection, "HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n").unwrap();
        connection.write_all(&vec![b'x'; BODY - 1]).unwrap();
        told.recv().unwrap();
        connection.write_all(b"x").unwrap();
    });
    port
}

fn rules(budget: Arc<ReplyBudget>) -> CallRules {
    let config = r#"{"method": "GET", "url": "http://h/", "returns": "body",
        "success": [[200, 299]], "connections": 1, "max_response_bytes": 1000000, "redirects": 0,
        "client": {"connect_timeout": 20.0, "read_timeout": 7.0, "version": "auto",
        "streams_per_connection": 100, "compressed": true, "proxy": "none",
        "tls": {"ca": null, "certificate": null, "private_key": null}}}"#;
    let config: HttpConfig = parse("http", config).unwrap();
    let rules = config.rules(false, false, None).unwrap();
    CallRules { budget, ..rules }
}

#[tokio::test]
async fn a_response_that_waits_for_memory_here_is_not_the_silence_of_its_server() {
    let (tell, told) = mpsc::channel();
    let url = Url::parse(&format!("http://127.0.0.1:{}/", serve(told))).unwrap();
    let budget = ReplyBudget::of_units(2);
    let mut others = [budget.share(), budget.share()];
    for other in &mut others {
        // All of it, and what one may have beyond.
        other.grow_to(512 << 10).await;
    }
    let rules = Arc::new(rules(Arc::clone(&budget)));
    let clients = Clients::for_test();
    let mut request = Outgoing::for_test();
    request.method = Method::GET;
    request.place = clients.place(&url, false).unwrap();
    request.path = PathAndQuery::from_static("/");
    let clock = Arc::new(Clock::new(rules.silence));
    let watch = Watch::new(&clock);
    let attempt = AttemptId { entry: EntryId::from_u64(7), attempt: 1 };
    let known = (attempt, Earlier::default());
    let mut call = pin!(call(clients, Arc::clone(&rules), Arc::clone(&watch), known, request));

    // It waits for its server, and then for the others.
    let mut has_waited = false;
    while !has_waited || watch.is_waiting() {
        assert!(call.as_mut().now_or_never().is_none());
        has_waited |= watch.is_waiting();
        yield_now().await;
    }
    (0..1000).for_each(|_| clock.tick([&watch].into_iter()));
    assert!(call.as_mut().now_or_never().is_none());

    drop(others);
    tell.send(()).unwrap();
    let Outcome::Found(found) = call.await.outcome else { panic!("it has failed") };
    assert_eq!(found.body.len(), BODY);
}
