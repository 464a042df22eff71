// SPDX-License-Identifier: Apache-2.0
//! Calls over HTTP/2, to a server that does what a test says with each request.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::pending;
use futures_util::stream::FuturesUnordered;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, server};
use http::Response;
use sparkawait_arrow::OnError;
use sparkawait_connect::connectors::{self, CONNECTORS};
use sparkawait_core::operator::OutputMode;
use sparkawait_runtime::tokio_runtime;
use sparkawait_task::native::{NativeFunction, Start};
use sparkawait_task::secret::Sources;
use sparkawait_task::task::TaskConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[path = "../../task/tests/support/mod.rs"]
mod support;

use support::{TestTask, input, nullable_column, schema, task_config, with_on_error, with_retries};

type Function = Arc<dyn NativeFunction>;

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is answered with 7.
    Answer,
    /// It is answered once so many requests wait like it.
    AnswerWith(usize),
    /// It is answered, and the connection takes no more requests.
    AnswerAndLeave,
    /// Its stream is reset.
    Reset(Reason),
    /// It is never answered.
    Stall,
    /// Its body is read piece by piece, each a while after the last one, and then it is answered.
    ReadSlowly,
    /// The connection is lost, and nobody is told.
    FallSilent,
    /// The connection is cut.
    HangUp,
}

/// Bytes of a body that a server takes at a time.
const PIECE: u32 = 13 << 10;

/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3_600);

/// A request: how many came before it in all, and how many connections before its own.
#[derive(Clone, Copy, Debug)]
struct Asked {
    request: usize,
    connection: usize,
}

struct Script {
    fate: Box<dyn Fn(Asked) -> Fate + Send + Sync>,
    /// Requests over one connection at a time.
    streams: u32,
    /// When it allows any; what it says to connections that are made before, it does not take back.
    opens: Instant,
    /// Connections at the start that take no request at all, and say so.
    closed: usize,
    /// Why they do not.
    reason: Reason,
    /// For how long a connection may be without a request. Then it is closed, without a GOAWAY.
    idle: Duration,
    /// Connections that were closed so, whose clients know it.
    ended: AtomicUsize,
    connections: AtomicUsize,
    requests: AtomicUsize,
    answered: AtomicUsize,
    waiting: Mutex<Vec<SendResponse<Bytes>>>,
}

/// A server on a thread of its own, which ends with the process.
struct Http2Server {
    address: SocketAddr,
    script: Arc<Script>,
}

impl Http2Server {
    fn start(
        streams: u32,
        closed: usize,
        fate: impl Fn(Asked) -> Fate + Send + Sync + 'static,
    ) -> Self {
        Self::start_closing(streams, closed, Reason::NO_ERROR, fate)
    }

    fn start_closing(
        streams: u32,
        closed: usize,
        reason: Reason,
        fate: impl Fn(Asked) -> Fate + Send + Sync + 'static,
    ) -> Self {
        Self::start_opening(Instant::now(), streams, closed, reason, NEVER, fate)
    }

    fn start_opening(
        opens: Instant,
        streams: u32,
        closed: usize,
        reason: Reason,
        idle: Duration,
        fate: impl Fn(Asked) -> Fate + Send + Sync + 'static,
    ) -> Self {
        let script = Arc::new(Script {
            fate: Box::new(fate),
            streams,
            opens,
            closed,
            reason,
            idle,
            ended: AtomicUsize::default(),
            connections: AtomicUsize::default(),
            requests: AtomicUsize::default(),
            answered: AtomicUsize::default(),
            waiting: Mutex::default(),
        });
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let serving = Arc::clone(&script);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(serving.accept(listener));
        });
        Self { address, script }
    }

    fn connections(&self) -> usize {
        self.script.connections.load(Ordering::SeqCst)
    }

    /// Waits until so many connections were closed because they were idle.
    fn wait_for_ends(&self, count: usize) {
        let begun = Instant::now();
        while self.script.ended.load(Ordering::SeqCst) < count {
            assert!(begun.elapsed() < Duration::from_secs(20), "nobody noticed the end");
            thread::yield_now();
        }
    }

    fn answered(&self) -> usize {
        self.script.answered.load(Ordering::SeqCst)
    }

    /// A call for each row.
    fn function(&self, method: &str, streams: usize, read_timeout: f64) -> Function {
        self.function_with(method, streams, &read_timeout.to_string())
    }

    fn function_with(&self, method: &str, streams: usize, read_timeout: &str) -> Function {
        self.function_of("null", method, streams, read_timeout)
    }

    fn function_of(
        &self,
        body: &str,
        method: &str,
        streams: usize,
        read_timeout: &str,
    ) -> Function {
        let description = format!(
            r#"{{"method": "{method}", "url": "http://{}/", "returns": "json", "body": {body},
                "success": [[200, 299]], "connections": 100, "max_response_bytes": 1000,
                "redirects": 0, "client": {{"connect_timeout": 20.0,
                "read_timeout": {read_timeout}, "version": "2",
                "streams_per_connection": {streams}, "compressed": true, "proxy": "none",
                "tls": {{"ca": null, "certificate": null, "private_key": null}}}}}}"#,
            self.address
        );
        connectors::read(CONNECTORS, "http", &description, Sources::new()).unwrap()
    }
}

impl Script {
    async fn accept(&self, listener: std::net::TcpListener) {
        let listener = TcpListener::from_std(listener).unwrap();
        let mut serving = FuturesUnordered::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let connection = self.connections.fetch_add(1, Ordering::SeqCst);
                    serving.push(self.serve(accepted.unwrap().0, connection));
                }
                Some(()) = serving.next() => {}
            }
        }
    }

    async fn serve(&self, stream: TcpStream, connection: usize) {
        if connection < self.closed {
            #[expect(clippy::let_underscore_must_use, reason = "the client may be gone")]
            let _ = refuse(stream, self.reason).await;
            return;
        }
        let mut builder = server::Builder::new();
        builder.initial_window_size(PIECE);
        builder.max_concurrent_streams(if Instant::now() < self.opens { 0 } else { self.streams });
        let (stream, mut rest) = twice(stream);
        let Ok(mut streams) = builder.handshake::<_, Bytes>(stream).await else { return };
        // Kept, so that they are not reset.
        let mut stalled = Vec::new();
        let mut is_served = false;
        loop {
            // One that is new, or whose requests wait, is not idle.
            let is_idle = is_served && self.waiting.lock().unwrap().is_empty();
            let most = if is_idle { self.idle } else { NEVER };
            let next = tokio::time::timeout(most, streams.accept()).await;
            let Ok(next) = next else { return self.end_idle(streams, &mut rest).await };
            let Some(Ok((request, mut respond))) = next else { break };
            is_served = true;
            let asked = self.requests.fetch_add(1, Ordering::SeqCst);
            match (self.fate)(Asked { request: asked, connection }) {
                Fate::Answer => self.answer(respond),
                Fate::AnswerWith(awaited) => {
                    let mut waiting = self.waiting.lock().unwrap();
                    waiting.push(respond);
                    if waiting.len() == awaited {
                        waiting.drain(..).for_each(|it| self.answer(it));
                    }
                }
                Fate::AnswerAndLeave => {
                    self.answer(respond);
                    streams.graceful_shutdown();
                }
                Fate::Reset(reason) => respond.send_reset(reason),
                Fate::Stall => stalled.push(respond),
                Fate::ReadSlowly => {
                    #[expect(
                        clippy::disallowed_methods,
                        reason = "a server of tests has no supervisor"
                    )]
                    tokio::spawn(read_slowly(request.into_body(), respond));
                }
                Fate::FallSilent => pending().await,
                Fate::HangUp => return,
            }
        }
        linger(&mut rest).await;
    }

    /// Closes a connection that has nothing to do, as balancers do that say nothing before.
    async fn end_idle(&self, streams: server::Connection<TcpStream, Bytes>, rest: &mut TcpStream) {
        drop(streams);
        if rest.shutdown().await.is_ok() {
            linger(rest).await;
        }
        self.ended.fetch_add(1, Ordering::SeqCst);
    }

    fn answer(&self, mut respond: SendResponse<Bytes>) {
        let Ok(mut body) = respond.send_response(Response::new(()), false) else { return };
        if body.send_data(Bytes::from_static(br#"{"result": 7}"#), true).is_ok() {
            self.answered.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Answers a request with 7, once its body was read so slowly that it takes longer than any wait for a piece.
async fn read_slowly(mut body: RecvStream, mut respond: SendResponse<Bytes>) {
    while let Some(Ok(piece)) = body.data().await {
        tokio::time::sleep(Duration::from_millis(53)).await;
        if body.flow_control().release_capacity(piece.len()).is_err() {
            return;
        }
    }
    let Ok(mut answer) = respond.send_response(Response::new(()), false) else { return };
    answer.send_data(Bytes::from_static(br#"{"result": 7}"#), true).unwrap();
}

/// A connection to be served and to be read once it is served.
fn twice(stream: TcpStream) -> (TcpStream, TcpStream) {
    let stream = stream.into_std().unwrap();
    let copy = stream.try_clone().unwrap();
    (TcpStream::from_std(stream).unwrap(), TcpStream::from_std(copy).unwrap())
}

/// Reads what a client sent before it knew that nobody takes it, as servers do: the end of a socket
/// that was not read to its end resets the connection, and what was said last is lost with it.
async fn linger(stream: &mut TcpStream) {
    #[expect(clippy::let_underscore_must_use, reason = "the client may be gone")]
    let _ = tokio::io::copy(stream, &mut tokio::io::sink()).await;
}

/// Closes a connection at the first request: GOAWAY, with nothing that was taken.
async fn refuse(mut stream: TcpStream, reason: Reason) -> std::io::Result<()> {
    const HEADERS: u8 = 1;
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await?;
    // No settings of its own; frames are length, type, flags and stream.
    stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await?;
    loop {
        let mut frame = [0; 9];
        stream.read_exact(&mut frame).await?;
        let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).await?;
        if frame[3] == HEADERS {
            // The last stream that was taken, and why.
            stream.write_all(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await?;
            stream.write_all(&u32::from(reason).to_be_bytes()).await?;
            stream.shutdown().await?;
            linger(&mut stream).await;
            return Ok(());
        }
    }
}

fn run(config: TaskConfig, function: &Function, rows: i64) -> Vec<Option<i64>> {
    let start = |replies| Start {
        replies,
        runtime: tokio_runtime::handle().unwrap(),
        input: schema(&["row", "key"]),
        results: schema(&["result"]),
        channel_share: None,
    };
    let mut task = TestTask::new(config, |replies| function.start(start(replies)).unwrap());
    let output: Vec<RecordBatch> = task.run(vec![input(0..rows)]).unwrap();
    output.iter().flat_map(|it| nullable_column(it, "result")).collect()
}

fn task(capacity: usize) -> TaskConfig {
    task_config(OutputMode::Ordered, capacity)
}

#[test]
fn calls_beyond_the_streams_of_a_connection_have_another_one() {
    let server = Http2Server::start(10, 0, |_| Fate::AnswerWith(35));

    let results = run(task(35), &server.function("GET", 10, 20.0), 35);

    // None waited for the others, or none would have been answered.
    assert_eq!(results, [Some(7); 35]);
    assert_eq!(server.connections(), 4);
}

#[test]
fn few_calls_share_one_connection() {
    let server = Http2Server::start(100, 0, |_| Fate::Answer);

    let results = run(task(100), &server.function("GET", 100, 20.0), 1000);

    assert_eq!(results, [Some(7); 1000]);
    assert_eq!(server.connections(), 1);
}

#[test]
fn a_request_that_the_server_did_not_take_is_sent_again_even_if_it_must_not_be_done_twice() {
    // Each attempt sends it some times.
    let server = Http2Server::start(100, 0, |asked| match asked.request {
        0..9 => Fate::Reset(Reason::REFUSED_STREAM),
        _ => Fate::Answer,
    });

    let results = run(with_retries(task(1), 5), &server.function("POST", 100, 20.0), 1);

    assert_eq!((results, server.answered()), (vec![Some(7)], 1));
}

#[test]
fn a_request_that_was_reset_in_another_way_may_have_been_done() {
    let server = Http2Server::start(100, 0, |asked| match asked.request {
        0 => Fate::Reset(Reason::INTERNAL_ERROR),
        _ => Fate::Answer,
    });
    let config = with_on_error(with_retries(task(1), 5), OnError::Null);
    let mut careful = config.clone();
    careful.operator.is_repeatable = false;

    let results = run(careful, &server.function("POST", 100, 20.0), 2);
    assert_eq!((results, server.answered()), (vec![None, Some(7)], 1));

    let server = Http2Server::start(100, 0, |asked| match asked.request {
        0 => Fate::Reset(Reason::INTERNAL_ERROR),
        _ => Fate::Answer,
    });
    assert_eq!(run(config, &server.function("GET", 100, 20.0), 2), [Some(7); 2]);
}

#[test]
fn a_server_that_takes_no_more_requests_over_a_connection_gets_them_over_another() {
    let server = Http2Server::start(100, 1, |asked| match asked.request % 10 {
        9 => Fate::AnswerAndLeave,
        _ => Fate::Answer,
    });

    // Without a retry, and each once.
    let results = run(task(20), &server.function("POST", 100, 20.0), 200);

    assert_eq!((results, server.answered()), (vec![Some(7); 200], 200));
    assert!(server.connections() > 2);
}

#[test]
fn a_connection_that_is_cut_fails_its_calls_and_no_others() {
    let server = Http2Server::start(10, 0, |asked| match asked.request {
        30 => Fate::HangUp,
        _ => Fate::Answer,
    });

    let results = run(with_retries(task(20), 5), &server.function("GET", 10, 20.0), 200);

    assert_eq!(results, [Some(7); 200]);
}

#[test]
fn a_connection_that_was_closed_while_it_was_idle_and_without_a_goaway_loses_no_request() {
    const ROUNDS: usize = 5;
    let (now, idle) = (Instant::now(), Duration::from_millis(7));
    let server =
        Http2Server::start_opening(now, 3, 0, Reason::NO_ERROR, idle, |_| Fate::AnswerWith(3));
    let function = server.function("POST", 3, 20.0);
    for round in 1..=ROUNDS {
        // All at once, so that a connection is idle behind them and not between them.
        assert_eq!(run(task(3), &function, 3), [Some(7); 3]);
        assert_eq!(server.connections(), round);
        server.wait_for_ends(round);
    }

    assert_eq!(server.answered(), ROUNDS * 3, "each once");
}

#[test]
fn a_stream_that_stalls_holds_up_no_other() {
    let server = Http2Server::start(100, 0, |asked| match asked.request {
        5 => Fate::Stall,
        _ => Fate::Answer,
    });
    let config = with_on_error(task(10), OnError::Null);

    let results = run(config, &server.function("GET", 100, 1.0), 100);

    assert_eq!(results.iter().filter(|it| it.is_none()).count(), 1);
    assert_eq!((server.answered(), server.connections()), (99, 1));
}

#[test]
fn a_server_that_takes_a_body_slowly_is_not_silent_and_one_that_has_it_may_be() {
    let body = format!(r#"{{"raw": "{}"}}"#, "x".repeat(32 * PIECE as usize));
    let server = Http2Server::start(100, 0, |asked| match asked.request {
        0 => Fate::ReadSlowly,
        _ => Fate::Stall,
    });
    let config = with_on_error(task(1), OnError::Null);

    let results = run(config, &server.function_of(&body, "POST", 100, "0.9"), 2);

    assert_eq!(results, [Some(7), None]);
}

#[test]
fn a_connection_that_falls_silent_is_given_up() {
    let server = Http2Server::start(100, 0, |asked| match asked.connection {
        0 => Fate::FallSilent,
        _ => Fate::Answer,
    });

    let results = run(with_retries(task(10), 5), &server.function("GET", 100, 0.5), 50);

    assert_eq!(results, [Some(7); 50]);
    assert_eq!(server.connections(), 2);
}

#[test]
fn what_came_behind_the_last_request_that_was_taken_is_sent_again_whatever_the_reason() {
    for reason in [Reason::NO_ERROR, Reason::ENHANCE_YOUR_CALM, Reason::INTERNAL_ERROR] {
        let server = Http2Server::start_closing(100, 1, reason, |_| Fate::Answer);

        // Without a retry, and each once.
        let results = run(task(17), &server.function("POST", 100, 20.0), 101);

        assert_eq!((results, server.answered()), (vec![Some(7); 101], 101), "{reason:?}");
    }
}

#[test]
fn a_server_that_allows_few_requests_at_a_time_gets_no_more() {
    let server = Http2Server::start(3, 0, |_| Fate::AnswerWith(20));

    // None waits in line for another one, or none would be answered.
    let results = run(task(20), &server.function("POST", 100, 20.0), 20);

    assert_eq!((results, server.answered()), (vec![Some(7); 20], 20));
    assert!(server.connections() >= 7);
}

#[test]
fn a_server_that_allows_no_request_for_the_moment_gets_few_connections() {
    let opens = Instant::now() + Duration::from_millis(700);
    let server =
        Http2Server::start_opening(opens, 3, 0, Reason::NO_ERROR, NEVER, |_| Fate::AnswerWith(13));

    let results = run(task(13), &server.function("POST", 100, 20.0), 13);

    assert_eq!((results, server.answered()), (vec![Some(7); 13], 13));
    // Over the first one it takes none, then the calls have as many as they need.
    assert!((5..=7).contains(&server.connections()), "{}", server.connections());
}

#[test]
fn a_connection_that_fell_silent_gets_no_further_attempt() {
    let server = Http2Server::start(100, 0, |asked| match asked.connection {
        0 => Fate::FallSilent,
        _ => Fate::Answer,
    });
    let mut config = with_retries(task(11), 3);
    let brief = Duration::from_millis(250);
    (config.operator.attempt_timeout, config.rows.attempt_timeout) = (Some(brief), brief);

    let results = run(config, &server.function_with("GET", 100, "null"), 53);

    assert_eq!(results, [Some(7); 53]);
    assert_eq!(server.connections(), 2);
}
