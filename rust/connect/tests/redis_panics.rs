// SPDX-License-Identifier: Apache-2.0
//! A panic of the task that serves a connection to Redis, which all tasks of the process share.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use arrow::array::{AsArray, RecordBatch};
use sparkawait_arrow::OnError;
use sparkawait_connect::connectors::{self, CONNECTORS};
use sparkawait_core::operator::OutputMode;
use sparkawait_runtime::tokio_runtime;
use sparkawait_task::function::{Replies, TaskFunction};
use sparkawait_task::native::Start;
use sparkawait_task::secret::Sources;
use sparkawait_task::task::TaskConfig;

#[path = "support/panics_once.rs"]
mod panics_once;
#[path = "../../task/tests/support/mod.rs"]
mod support;

use panics_once::PanicsOnce;
use support::{TestTask, input, schema, task_config, with_on_error, with_retries};

/// Rows of one job of a connection.
const JOB: usize = 1024;

/// Answers `GET` with 7 once it has got as many of them on a connection, and then each at once. It answers
/// the `PING` of a new connection.
///
/// Returns its port, and the connections that it gets.
fn server(awaited: usize) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connections = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&connections);
    thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            let lines = BufReader::new(connection.try_clone().unwrap()).lines();
            let mut commands = 0;
            for line in lines.map_while(Result::ok) {
                if line == "PING" && connection.write_all(b"+PONG\r\n").is_err() {
                    break;
                }
                if line != "GET" {
                    continue;
                }
                commands += 1;
                let owed = if commands == awaited { awaited } else { 1 };
                if commands >= awaited
                    && connection.write_all(&b"$1\r\n7\r\n".repeat(owed)).is_err()
                {
                    break;
                }
            }
        }
    });
    (port, connections)
}

/// A lookup over one connection whose first results are met by a panic.
fn lookup(port: u16, replies: Replies) -> TaskFunction {
    let description = format!(
        r#"{{"server": {{"url": ["redis://127.0.0.1:{port}"], "username": null, "password": null,
            "database": null, "tls": {{"ca": null, "certificate": null, "private_key": null}},
            "connections": 1, "cluster": false, "read_from": "primary", "connect_timeout": 10.0,
            "idle_timeout": 30.0, "max_reply_bytes": 1000}},
            "command": ["GET", "{{row}}"], "options": ["command", "key"], "shape": "row",
            "misses": {{}}, "reads": true, "is_split": false}}"#
    );
    let start = Start {
        replies: PanicsOnce::before(replies),
        runtime: tokio_runtime::handle().unwrap(),
        input: schema(&["row", "key"]),
        results: schema(&["result"]),
        channel_share: None,
    };
    let lookup = connectors::read(CONNECTORS, "redis", &description, Sources::new()).unwrap();
    lookup.start(start).unwrap()
}

fn run(config: TaskConfig, port: u16, rows: i64) -> Vec<RecordBatch> {
    TestTask::new(config, |replies| lookup(port, replies)).run(vec![input(0..rows)]).unwrap()
}

#[test]
fn rows_of_a_connection_that_panics_are_asked_for_again_over_a_new_one() {
    let (port, connections) = server(1);
    let config = with_retries(task_config(OutputMode::Ordered, JOB), 3);

    let output = run(config, port, 100);

    let results = output.iter().flat_map(|it| support::column(it, "result"));
    assert_eq!(results.collect::<Vec<_>>(), [7; 100]);
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

#[test]
fn rows_of_a_connection_that_panics_are_told_so() {
    let (port, connections) = server(2 * JOB);
    let mut config = with_on_error(task_config(OutputMode::Ordered, 2 * JOB), OnError::Capture);
    // All of them are called before the first is answered, though nobody knows their results.
    config.driver.max_bytes_per_batch = 1 << 30;

    let rows = i64::try_from(2 * JOB).unwrap();
    let output = run(config, port, rows);

    let mut messages = Vec::new();
    for batch in &output {
        let errors = batch.column_by_name("error").unwrap().as_struct();
        let (kinds, texts) = (errors.column(0).as_string::<i32>(), errors.column(1));
        assert!(kinds.iter().all(|kind| kind == Some("internal")));
        let texts = texts.as_string::<i32>().iter();
        messages.extend(texts.map(|text| text.unwrap().to_owned()));
    }
    // The job that was answered when it panicked, and the one behind it.
    assert_eq!(messages.len(), 2 * JOB);
    let panicked =
        "the connection to Redis panicked; the log says why, before the call was answered";
    assert!(messages[..JOB].iter().all(|it| it == panicked), "{}", messages[0]);
    let reason = format!("the connection to Redis at `127.0.0.1:{port}` panicked: ");
    assert!(messages[JOB..].iter().all(|it| it.starts_with(&reason) && it.contains("out of luck")));
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}
