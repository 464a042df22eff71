// SPDX-License-Identifier: Apache-2.0
//! Panics in live calls over HTTP and in PostgreSQL: the task fails with what they said, and no row
//! waits for ever.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use sparkawait_connect::connectors::{self, CONNECTORS};
use sparkawait_core::operator::OutputMode;
use sparkawait_runtime::tokio_runtime;
use sparkawait_task::error::TaskError;
use sparkawait_task::native::{NativeFunction, Start};
use sparkawait_task::secret::Sources;

#[path = "support/panics_once.rs"]
mod panics_once;
#[path = "../../task/tests/support/mod.rs"]
mod support;

use panics_once::PanicsOnce;
use support::{TestTask, input, schema, task_config};

const TLS: &str = r#"{"ca": null, "certificate": null, "private_key": null}"#;

/// Serves each connection on a thread, until the process ends; returns the port.
fn server(serve: impl Fn(TcpStream) -> std::io::Result<()> + Copy + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for connection in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || serve(connection));
        }
    });
    port
}

/// Answers each request with 7.
fn serve_http(mut connection: TcpStream) -> std::io::Result<()> {
    let lines = BufReader::new(connection.try_clone()?).lines();
    for line in lines.map_while(Result::ok) {
        if line.is_empty() {
            let body = r#"{"result": 7}"#;
            let length = body.len();
            write!(connection, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}")?;
        }
    }
    Ok(())
}

/// Takes any statement for one with a `bigint`, and answers it with 7, also a `bigint`.
fn serve_postgres(mut connection: TcpStream) -> std::io::Result<()> {
    const READY: &[u8] = b"Z\0\0\0\x05I";
    let length = read_length(&mut connection)?;
    skip(&mut connection, length)?;
    connection.write_all(b"R\0\0\0\x08\0\0\0\0")?;
    connection.write_all(READY)?;
    loop {
        let mut kind = [0];
        connection.read_exact(&mut kind)?;
        let length = read_length(&mut connection)?;
        skip(&mut connection, length)?;
        let answer: &[u8] = match kind[0] {
            b'P' => b"1\0\0\0\x04",
            b'D' => {
                b"t\0\0\0\x0a\0\x01\0\0\0\x14\
                  T\0\0\0\x1f\0\x01result\0\0\0\0\0\0\0\0\0\0\x14\0\x08\xff\xff\xff\xff\0\0"
            }
            b'B' => b"2\0\0\0\x04",
            b'E' => b"D\0\0\0\x12\0\x01\0\0\0\x08\0\0\0\0\0\0\0\x07C\0\0\0\x0dSELECT 1\0",
            b'C' => b"3\0\0\0\x04",
            b'S' => READY,
            // What a connection has of its settings.
            b'Q' => {
                b"T\0\0\0\x1a\0\x01s\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0\
                  D\0\0\0\x0c\0\x01\0\0\0\x02onC\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I"
            }
            _ => return Ok(()),
        };
        connection.write_all(answer)?;
    }
}

/// Reads a length, which counts itself, and returns what follows it.
fn read_length(connection: &mut TcpStream) -> std::io::Result<usize> {
    let mut length = [0; 4];
    connection.read_exact(&mut length)?;
    Ok(u32::from_be_bytes(length) as usize - length.len())
}

fn skip(connection: &mut TcpStream, length: usize) -> std::io::Result<()> {
    connection.read_exact(&mut vec![0; length])
}

fn http() -> Arc<dyn NativeFunction> {
    let port = server(serve_http);
    let description = format!(
        r#"{{"method": "GET", "url": "http://127.0.0.1:{port}/", "returns": "json",
            "success": [[200, 299]], "connections": 10, "max_response_bytes": 1000, "redirects": 0,
            "client": {{"connect_timeout": 20.0, "read_timeout": 20.0, "version": "auto",
            "streams_per_connection": 100, "compressed": true, "proxy": "none", "tls": {TLS}}}}}"#
    );
    connectors::read(CONNECTORS, "http", &description, Sources::new()).unwrap()
}

fn postgres() -> Arc<dyn NativeFunction> {
    let port = server(serve_postgres);
    let description = format!(
        r#"{{"server": {{"dsn": "postgresql://u:p@127.0.0.1:{port}/d?sslmode=disable",
            "tls": {TLS}, "connect_seconds": 20.0, "statement_seconds": null, "writes": false,
            "connections": 1, "prepare": true}}, "statement": "select $1", "args": ["row"],
            "batch": 1, "max_reply_bytes": 1000}}"#
    );
    connectors::read(CONNECTORS, "postgres", &description, Sources::new()).unwrap()
}

/// Runs a task of ten rows; with `panics`, the first results meet a panic.
fn run(function: &dyn NativeFunction, panics: bool) -> Result<usize, TaskError> {
    let mut task = TestTask::new(task_config(OutputMode::Ordered, 10), |replies| {
        let start = Start {
            replies: if panics { PanicsOnce::before(replies) } else { replies },
            runtime: tokio_runtime::handle().unwrap(),
            input: schema(&["row", "key"]),
            results: schema(&["result"]),
            channel_share: None,
        };
        function.start(start).unwrap()
    });
    let output = task.run(vec![input(0..10)])?;
    let sevens = output.iter().flat_map(|it| support::column(it, "result"));
    Ok(sevens.filter(|it| *it == 7).count())
}

#[test]
fn a_panic_in_a_call_over_http_fails_its_task() {
    let function = http();

    let error = run(&*function, true).unwrap_err().to_string();

    assert!(error.contains("`http` panicked: ") && error.contains("out of luck"), "{error}");
    assert_eq!(run(&*function, false).unwrap(), 10);
}

#[test]
fn a_panic_in_a_query_fails_its_task_and_its_connection_serves_the_next() {
    let function = postgres();

    let error = run(&*function, true).unwrap_err().to_string();

    assert!(error.contains("`postgres.lookup` panicked: "), "{error}");
    assert!(error.contains("out of luck"), "{error}");
    assert_eq!(run(&*function, false).unwrap(), 10);
}
