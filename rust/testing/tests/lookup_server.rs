// SPDX-License-Identifier: Apache-2.0
//! The server as its clients meet it, over real sockets.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use sparkawait_testing::latency::Latency;
use sparkawait_testing::lookup_server::{
    Bytes, Faults, LookupServer, LookupServerConfig, LookupServerError, Stats,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// Fails a test that would hang. Nothing waits for it otherwise.
const PATIENCE: Duration = Duration::from_secs(20);

/// One keep-alive connection.
struct Client(BufReader<TcpStream>);

/// What a test looks at in a response.
#[derive(Debug, PartialEq)]
struct Reply {
    status: u16,
    /// In lower case, one header a line.
    head: String,
    body: String,
}

impl Client {
    async fn connect(server: &LookupServer) -> Self {
        Self(BufReader::new(TcpStream::connect(server.address()).await.unwrap()))
    }

    async fn send(&mut self, method: &str, path: &str, body: &str) {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.0.write_all(request.as_bytes()).await.unwrap();
    }

    async fn receive(&mut self) -> std::io::Result<Reply> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.0.read_u8().await?);
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let status = head[9..12].parse().unwrap();
        let (_, length) = head.split_once("content-length: ").unwrap();
        let length = length.split_once("\r\n").unwrap().0.parse().unwrap();
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await?;
        Ok(Reply { status, head, body: String::from_utf8(body).unwrap() })
    }

    async fn get(&mut self, path: &str) -> Reply {
        self.send("GET", path, "").await;
        tokio::time::timeout(PATIENCE, self.receive()).await.unwrap().unwrap()
    }

    async fn post(&mut self, path: &str, body: &str) -> Reply {
        self.send("POST", path, body).await;
        tokio::time::timeout(PATIENCE, self.receive()).await.unwrap().unwrap()
    }
}

fn start(config: LookupServerConfig) -> LookupServer {
    let server = LookupServer::start(config).unwrap();
    let entries = [("JFK", "{\"temp\":1}"), ("a/b c", "\"slash\""), ("7", "70")];
    let entries =
        entries.map(|(key, value)| (key.to_owned(), Bytes::from_static(value.as_bytes())));
    server.add_table("weather", entries);
    server
}

fn start_with(faults: Faults) -> LookupServer {
    start(LookupServerConfig { faults, ..LookupServerConfig::default() })
}

/// Waits for the counters, which another thread changes.
async fn until(server: &LookupServer, condition: impl Fn(Stats) -> bool) {
    let started = Instant::now();
    while !condition(server.stats()) {
        assert!(started.elapsed() < PATIENCE, "still {:?}", server.stats());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn value_is_served_by_key_over_one_connection() {
    let server = start(LookupServerConfig::default());
    let mut client = Client::connect(&server).await;

    let found = client.get("/weather/JFK").await;
    let slashes = client.get("/weather/a/b%20c").await;

    assert_eq!((found.status, found.body.as_str()), (200, "{\"temp\":1}"));
    assert!(found.head.contains("content-type: application/json\r\n"));
    assert_eq!(slashes.body, "\"slash\"");
    assert_eq!(server.stats().hits, 2);
}

#[tokio::test]
async fn unknown_key_and_unknown_table_are_not_found() {
    let server = start(LookupServerConfig::default());
    let mut client = Client::connect(&server).await;

    for path in ["/weather/LAX", "/planes/JFK", "/weather", "/"] {
        assert_eq!(client.get(path).await.status, 404, "{path}");
    }

    assert_eq!(client.post("/planes", "[\"JFK\"]").await.status, 404);
    assert_eq!((server.stats().hits, server.stats().misses), (0, 3));
}

#[tokio::test]
async fn batch_gives_a_value_or_null_for_each_key_in_order() {
    let server = start(LookupServerConfig::default());
    let mut client = Client::connect(&server).await;

    let reply = client.post("/weather", "[\"JFK\", \"LAX\", 7]").await;

    assert_eq!((reply.status, reply.body.as_str()), (200, "[{\"temp\":1},null,70]"));
    let stats = server.stats();
    assert_eq!((stats.requests, stats.hits, stats.misses), (1, 2, 1));
}

#[tokio::test]
async fn request_that_makes_no_sense_is_refused() {
    let server = start(LookupServerConfig::default());
    let mut client = Client::connect(&server).await;

    assert_eq!(client.post("/weather", "{\"keys\": 1}").await.status, 400);
    client.send("DELETE", "/weather/JFK", "").await;
    assert_eq!(client.receive().await.unwrap().status, 405);
}

#[tokio::test]
async fn table_added_while_the_server_runs_is_served() {
    let server = start(LookupServerConfig::default());
    let mut client = Client::connect(&server).await;
    assert_eq!(client.get("/planes/N1").await.status, 404);

    server.add_table("planes", [("N1".to_owned(), Bytes::from_static(b"1"))]);

    assert_eq!(client.get("/planes/N1").await.body, "1");
}

#[tokio::test]
async fn counters_are_served_as_json_and_do_not_count_themselves() {
    let server = start(LookupServerConfig::default());
    let mut client = Client::connect(&server).await;
    client.get("/weather/JFK").await;

    let reply = client.get("/-/stats").await;

    let stats: serde_json::Value = serde_json::from_str(&reply.body).unwrap();
    assert_eq!(stats["requests"], 1);
    assert_eq!(stats["in_flight"], 0);
    assert_eq!(stats["max_in_flight"], 1);
}

#[tokio::test]
async fn answer_takes_the_latency_and_the_change_of_it_holds_at_once() {
    let delay = Duration::from_millis(30);
    let latency = Latency::Constant(delay);
    let server = start(LookupServerConfig { latency, ..LookupServerConfig::default() });
    let mut client = Client::connect(&server).await;

    let started = Instant::now();
    client.get("/weather/JFK").await;
    // The server sleeps to the nearest millisecond.
    assert!(started.elapsed() + Duration::from_millis(1) > delay);

    server.set_latency(Latency::Constant(PATIENCE * 2)).unwrap();
    client.send("GET", "/weather/JFK", "").await;
    until(&server, |stats| stats.in_flight == 1).await;
    server.set_latency(Latency::None).unwrap();
    assert_eq!(Client::connect(&server).await.get("/weather/JFK").await.status, 200);
}

#[tokio::test]
async fn requests_wait_out_their_latency_side_by_side() {
    let latency = Latency::Constant(Duration::from_secs(3_600));
    let server = start(LookupServerConfig { latency, ..LookupServerConfig::default() });
    let mut clients = Vec::new();

    for _ in 0..20 {
        let mut client = Client::connect(&server).await;
        client.send("GET", "/weather/JFK", "").await;
        clients.push(client);
    }

    until(&server, |stats| stats.in_flight == 20 && stats.max_in_flight == 20).await;
    drop(clients);
    until(&server, |stats| stats.in_flight == 0).await;
}

#[tokio::test]
async fn injected_error_is_status_500_and_ends_when_faults_are_cleared() {
    let server = start_with(Faults { error_rate: 1.0, ..Faults::default() });
    let mut client = Client::connect(&server).await;

    assert_eq!(client.get("/weather/JFK").await.status, 500);
    server.set_faults(Faults::default()).unwrap();
    assert_eq!(client.get("/weather/JFK").await.status, 200);

    assert_eq!((server.stats().errors, server.stats().hits), (1, 1));
}

#[tokio::test]
async fn request_over_the_rate_limit_is_told_when_to_come_back() {
    let server = start_with(Faults { rate_limit: Some(0.001), ..Faults::default() });
    let mut client = Client::connect(&server).await;
    assert_eq!(client.get("/weather/JFK").await.status, 200);

    let reply = client.get("/weather/JFK").await;

    assert_eq!(reply.status, 429);
    assert!(reply.head.contains("retry-after: 1000\r\n"), "{}", reply.head);
    assert_eq!(server.stats().rejected, 1);
}

#[tokio::test]
async fn stalled_request_stays_in_flight_until_its_client_goes_away() {
    let server = start_with(Faults { stall_rate: 1.0, ..Faults::default() });
    let mut lookup = Client::connect(&server).await;
    let mut batch = Client::connect(&server).await;

    lookup.send("GET", "/weather/JFK", "").await;
    batch.send("POST", "/weather", "[\"JFK\"]").await;
    until(&server, |stats| stats.stalled == 2 && stats.in_flight == 2).await;

    drop((lookup, batch));
    until(&server, |stats| stats.in_flight == 0).await;
}

#[tokio::test]
async fn reset_connection_is_an_error_to_its_client_not_an_end() {
    let server = start_with(Faults { reset_rate: 1.0, ..Faults::default() });
    let mut client = Client::connect(&server).await;

    client.send("GET", "/weather/JFK", "").await;
    let error = client.receive().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!((server.stats().reset, server.stats().in_flight), (1, 0));
}

#[tokio::test]
async fn same_seed_fails_the_same_requests() {
    async fn statuses(seed: u64) -> Vec<u16> {
        let faults = Faults { error_rate: 0.5, ..Faults::default() };
        let server = start(LookupServerConfig { faults, seed, ..LookupServerConfig::default() });
        let mut client = Client::connect(&server).await;
        let mut statuses = Vec::new();
        for _ in 0..40 {
            statuses.push(client.get("/weather/JFK").await.status);
        }
        statuses
    }

    assert_eq!(statuses(1).await, statuses(1).await);
    assert_ne!(statuses(1).await, statuses(2).await);
}

#[tokio::test]
async fn stopped_server_closes_its_connections_and_its_port() {
    let server = start_with(Faults { stall_rate: 1.0, ..Faults::default() });
    let mut client = Client::connect(&server).await;
    client.send("GET", "/weather/JFK", "").await;
    until(&server, |stats| stats.stalled == 1).await;

    server.stop();
    server.stop();

    assert!(client.receive().await.is_err());
    let refused = TcpStream::connect(server.address()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert_eq!((server.stats().requests, server.stats().in_flight), (1, 0));
}

#[tokio::test]
async fn dropped_server_leaves_its_port_to_the_next() {
    let server = start(LookupServerConfig::default());
    let port = server.address().port();
    Client::connect(&server).await.get("/weather/JFK").await;
    drop(server);

    let next = start(LookupServerConfig { port, ..LookupServerConfig::default() });

    assert_eq!(next.address().port(), port);
    assert_eq!(Client::connect(&next).await.get("/weather/JFK").await.status, 200);
}

#[test]
fn port_that_is_taken_is_refused() {
    let server = start(LookupServerConfig::default());
    let port = server.address().port();

    let refused = LookupServer::start(LookupServerConfig { port, ..LookupServerConfig::default() });

    let error = refused.unwrap_err();
    assert_eq!(error.to_string(), format!("lookup server cannot listen on port {port}"));
    let LookupServerError::Io { source, .. } = error else { panic!("{error:?}") };
    assert_eq!(source.kind(), ErrorKind::AddrInUse);
}

#[test]
fn setting_out_of_range_is_refused_and_changes_nothing() {
    let server = start(LookupServerConfig::default());

    let latency = Latency::None.with_stragglers(2.0, 1.0);
    let faults = Faults { error_rate: 2.0, ..Faults::default() };

    assert!(matches!(server.set_latency(latency), Err(LookupServerError::Latency(_))));
    assert!(matches!(server.set_faults(faults), Err(LookupServerError::Rate { .. })));
}
