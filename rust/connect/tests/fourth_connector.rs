// SPDX-License-Identifier: Apache-2.0
//! What it takes to write a connector: `Memcached` below is a whole one, with its line in the table,
//! tried against a server that counts what it is asked for.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use arrow::array::AsArray;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use sparkawait_arrow::OnError;
use sparkawait_connect::connectors::{self, CONNECTORS, Connector, parse};
use sparkawait_connect::exchange::{Answer, Client, Exchange, ReplyShare};
use sparkawait_connect::failure::{Failure, plain_failure};
use sparkawait_connect::lookup::Misses;
use sparkawait_core::operator::{Begins, OutputMode};
use sparkawait_core::retry::AsyncRetryStrategy;
use sparkawait_runtime::tokio_runtime;
use sparkawait_task::cause::Cause;
use sparkawait_task::concurrency::Concurrency;
use sparkawait_task::error::TaskError;
use sparkawait_task::native::{NativeFunction, Start};
use sparkawait_task::secret::Sources;
use sparkawait_task::task::TaskConfig;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::task::yield_now;
use tokio::time::sleep;

#[path = "../../task/tests/support/mod.rs"]
mod support;

use support::{TestTask, input, nullable_column, schema, task_config, with_on_error};

const ROWS: usize = 41;

/// Its line in the table.
const MEMCACHED: Connector = ("memcached", |description, _| {
    let Described { port, key, rows, is_repeatable } = parse("memcached", description)?;
    Ok(Arc::new(Exchange {
        client: Arc::new(Memcached { port }),
        key,
        misses: Misses::default(),
        required: Vec::new(),
        rows,
        connections: 2,
        connect_timeout: Duration::from_secs(20),
        is_repeatable,
    }))
});

/// What describes a lookup.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Described {
    port: u16,
    key: String,
    rows: usize,
    is_repeatable: bool,
}

/// Looks keys up in Memcached, by its text protocol.
struct Memcached {
    port: u16,
}

impl Client for Memcached {
    type Connection = BufStream<tokio::net::TcpStream>;

    const NAME: &'static str = "memcached";

    async fn connect(&self) -> Result<Self::Connection, Failure> {
        let made = tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await;
        made.map(BufStream::new).map_err(|error| lost(&error, false))
    }

    fn is_open(&self, connection: &mut Self::Connection) -> bool {
        let read = connection.get_ref().try_read(&mut [0]);
        read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    async fn ask(
        &self,
        connection: &mut Self::Connection,
        keys: &[Vec<u8>],
        share: &mut ReplyShare,
    ) -> Result<Vec<Answer>, Failure> {
        let values = values(connection, keys, share).await.map_err(|error| lost(&error, true))?;
        let answer = |key: &Vec<u8>| match values.get(key) {
            Some(value) if value == "panic" => unreachable!("out of luck"),
            Some(value) => Answer::Found(vec![Some(value.clone())]),
            None if key.starts_with(b"bad") => Answer::Failed(plain_failure("a bad key").into()),
            None => Answer::Missed,
        };
        Ok(keys.iter().map(answer).collect())
    }
}

async fn values(
    connection: &mut BufStream<tokio::net::TcpStream>,
    keys: &[Vec<u8>],
    share: &mut ReplyShare,
) -> std::io::Result<BTreeMap<Vec<u8>, Bytes>> {
    connection.write_all(&[b"get ", keys.join(&b' ').as_slice(), b"\r\n"].concat()).await?;
    connection.flush().await?;
    let (mut values, mut read) = (BTreeMap::new(), 0);
    loop {
        let mut line = String::new();
        if connection.read_line(&mut line).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["END"] => return Ok(values),
            ["VALUE", key, _, length] => {
                let length = length.parse::<usize>().unwrap_or_default() + 2;
                read += length;
                share.grow_to(read).await;
                let mut value = vec![0; length];
                connection.read_exact(&mut value).await?;
                value.truncate(value.len() - 2);
                values.insert(key.as_bytes().to_vec(), value.into());
            }
            _ => return Err(ErrorKind::InvalidData.into()),
        }
    }
}

fn lost(error: &std::io::Error, may_have_left: bool) -> Failure {
    let call = plain_failure(format!("the connection to Memcached failed: {error}"));
    Failure::passing(Cause::of(may_have_left, false), call)
}

/// What a server was asked for: the keys of each request.
type Asked = Arc<Mutex<Vec<Vec<String>>>>;

/// Serves each connection on a thread, until the process ends. A value is seven times its key; keys that
/// three divides have none. `closes` says whether a request, by its number on its connection, is its end.
fn server(closes: fn(usize) -> bool) -> (u16, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, asked) = (listener.local_addr().unwrap().port(), Asked::default());
    let told = Arc::clone(&asked);
    thread::spawn(move || {
        for connection in listener.incoming().map_while(Result::ok) {
            let told = Arc::clone(&told);
            thread::spawn(move || serve(connection, &told, closes));
        }
    });
    (port, asked)
}

fn serve(connection: TcpStream, asked: &Asked, closes: fn(usize) -> bool) -> std::io::Result<()> {
    let mut writer = connection.try_clone()?;
    for (number, line) in BufReader::new(connection).lines().enumerate() {
        let line = line?;
        let keys: Vec<String> = line.split(' ').skip(1).map(str::to_owned).collect();
        asked.lock().unwrap().push(keys.clone());
        if closes(number) {
            return Ok(());
        }
        for key in keys {
            let number = key.parse::<i64>().unwrap_or(3);
            let value = if number == 13 { "panic".to_owned() } else { (7 * number).to_string() };
            if number % 3 != 0 {
                write!(writer, "VALUE {key} 0 {}\r\n{value}\r\n", value.len())?;
            }
        }
        writer.write_all(b"END\r\n")?;
    }
    Ok(())
}

fn memcached(port: u16, key: &str, rows: usize) -> Value {
    json!({"port": port, "key": key, "rows": rows, "is_repeatable": true})
}

/// Runs a task without retries; returns the result of each row, and why rows failed.
fn run(described: &Value) -> Result<(Vec<Option<i64>>, Vec<String>), TaskError> {
    let (table, sources) = ([CONNECTORS, &[MEMCACHED]].concat(), Sources::new());
    let function = connectors::read(&table, "memcached", &described.to_string(), sources).unwrap();
    run_function(&*function)
}

fn run_function(
    function: &dyn NativeFunction,
) -> Result<(Vec<Option<i64>>, Vec<String>), TaskError> {
    function.check(&schema(&["row", "key"]), &schema(&["result"])).unwrap();
    let config = with_on_error(task_config(OutputMode::Ordered, 31), OnError::Capture);
    run_task(function, config, 0..41)
}

fn run_task(
    function: &dyn NativeFunction,
    config: TaskConfig,
    rows: Range<i64>,
) -> Result<(Vec<Option<i64>>, Vec<String>), TaskError> {
    let mut task = TestTask::new(config, |replies| {
        let (runtime, channel_share) = (tokio_runtime::handle().unwrap(), None);
        let (input, results) = (schema(&["row", "key"]), schema(&["result"]));
        function.start(Start { replies, runtime, input, results, channel_share }).unwrap()
    });
    let output = task.run(vec![input(rows)])?;
    let results = output.iter().flat_map(|it| nullable_column(it, "result")).collect();
    let errors = output.iter().flat_map(|it| {
        let messages = it.column(it.num_columns() - 1).as_struct().column_by_name("message");
        let messages = messages.unwrap().as_string::<i32>().iter().flatten();
        messages.map(str::to_owned).collect::<Vec<_>>()
    });
    Ok((results, errors.collect()))
}

/// What row `row` finds, unless it fails.
fn found(row: i64) -> Option<i64> {
    (row % 3 != 0).then_some(7 * row)
}

#[test]
fn rows_are_asked_for_together_and_each_has_its_own_answer() {
    let (port, asked) = server(|_| false);

    let (results, errors) = run(&memcached(port, "{row}00", 7)).unwrap();

    assert_eq!(results, (0..41).map(|row| found(100 * row)).collect::<Vec<_>>());
    assert_eq!(errors, [""; 0]);
    let mut keys = asked.lock().unwrap().concat();
    assert!(asked.lock().unwrap().iter().all(|it| it.len() <= 7));
    assert!(asked.lock().unwrap().len() < 29, "{:?}", asked.lock().unwrap().len());
    keys.sort_unstable_by_key(|it| it.parse::<i64>().unwrap());
    assert_eq!(keys, (0..ROWS).map(|row| format!("{row}00")).collect::<Vec<_>>());
}

#[test]
fn a_kept_connection_that_ends_costs_no_row_that_may_be_asked_for_twice() {
    let (port, _) = server(|request| request == 1);
    let mut described = memcached(port, "{row}00", 7);

    assert_eq!(run(&described).unwrap().1, [""; 0]);

    described["is_repeatable"] = false.into();
    let (results, errors) = run(&described).unwrap();
    assert_eq!(results.len(), ROWS);
    assert!(!errors.is_empty() && errors.iter().all(|it| it.contains("Memcached failed")));
}

#[test]
fn a_service_that_is_not_there_fails_rows_that_were_not_sent() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();

    let (results, errors) = run(&memcached(port, "{row}", ROWS)).unwrap();

    assert_eq!((results.len(), errors.len()), (ROWS, ROWS));
    assert!(errors.iter().all(|it| it.contains("refused")), "{errors:?}");
}

#[test]
fn a_connector_that_panics_fails_the_rows_of_its_request_and_no_others() {
    let (port, _) = server(|_| false);

    let (results, errors) = run(&memcached(port, "{row}", 1)).unwrap();

    let expected = (0..41).map(|row| found(row).filter(|_| row != 13));
    assert_eq!(results, expected.collect::<Vec<_>>());
    assert_eq!(errors, ["the connector `memcached` is broken; the log says why"]);
}

#[test]
fn one_key_may_fail_alone() {
    let (port, asked) = server(|_| false);

    let (_, errors) = run(&memcached(port, "bad{row}", 7)).unwrap();

    assert_eq!(errors, ["a bad key"; ROWS]);
    assert_eq!(asked.lock().unwrap().concat().len(), ROWS);
}

/// A service that ends a connection behind each answer.
struct Ending {
    sees: bool,
}

impl Client for Ending {
    /// Whether it has ended.
    type Connection = bool;

    const NAME: &'static str = "ending";

    async fn connect(&self) -> Result<bool, Failure> {
        Ok(false)
    }

    fn is_open(&self, has_ended: &mut bool) -> bool {
        !(self.sees && *has_ended)
    }

    async fn ask(
        &self,
        has_ended: &mut bool,
        keys: &[Vec<u8>],
        _share: &mut ReplyShare,
    ) -> Result<Vec<Answer>, Failure> {
        if std::mem::replace(has_ended, true) {
            return Err(lost(&ErrorKind::BrokenPipe.into(), true));
        }
        Ok(vec![Answer::Found(vec![Some("17".into())]); keys.len()])
    }
}

#[test]
fn a_connection_that_its_server_has_ended_loses_nothing_that_must_not_be_done_twice() {
    let lost = |sees| {
        let function = Exchange {
            client: Arc::new(Ending { sees }),
            key: "{row}".to_owned(),
            misses: Misses::default(),
            required: Vec::new(),
            rows: 1,
            connections: 3,
            connect_timeout: Duration::from_secs(20),
            is_repeatable: false,
        };
        let (results, errors) = run_function(&function).unwrap();
        assert_eq!(results.iter().flatten().count() + errors.len(), ROWS);
        errors.len()
    };
    assert_eq!(lost(true), 0);
    assert!(lost(false) > 0, "the service ends connections");
}

/// A service whose replies are as large as all of a task's may be together.
#[derive(Default)]
struct Large {
    read: AtomicUsize,
    most: AtomicUsize,
}

impl Client for Large {
    type Connection = ();

    const NAME: &'static str = "large";

    async fn connect(&self) -> Result<(), Failure> {
        Ok(())
    }

    async fn ask(
        &self,
        (): &mut (),
        keys: &[Vec<u8>],
        share: &mut ReplyShare,
    ) -> Result<Vec<Answer>, Failure> {
        share.grow_to(64 << 20).await;
        self.most.fetch_max(self.read.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        for _ in 0..7 {
            yield_now().await;
        }
        self.read.fetch_sub(1, Ordering::SeqCst);
        Ok(vec![Answer::Found(vec![Some("17".into())]); keys.len()])
    }
}

#[test]
fn replies_beyond_the_budget_of_a_task_wait_for_one_another() {
    let client = Arc::new(Large::default());
    let function = Exchange {
        client: Arc::clone(&client),
        key: "{row}".to_owned(),
        misses: Misses::default(),
        required: Vec::new(),
        rows: 1,
        connections: 11,
        connect_timeout: Duration::from_secs(20),
        is_repeatable: true,
    };

    let (results, errors) = run_function(&function).unwrap();

    assert_eq!((results, errors), (vec![Some(17); ROWS], Vec::new()));
    // The one that the budget is for, and the one that may go beyond it.
    assert!((1..=2).contains(&client.most.load(Ordering::SeqCst)));
}

/// A service whose logins take longer than an attempt, and which counts them.
#[derive(Default)]
struct SlowLogin {
    logins: AtomicUsize,
}

impl Client for SlowLogin {
    type Connection = ();

    const NAME: &'static str = "slow login";

    async fn connect(&self) -> Result<(), Failure> {
        self.logins.fetch_add(1, Ordering::SeqCst);
        sleep(Duration::from_millis(900)).await;
        Ok(())
    }

    async fn ask(
        &self,
        (): &mut (),
        keys: &[Vec<u8>],
        _share: &mut ReplyShare,
    ) -> Result<Vec<Answer>, Failure> {
        Ok(vec![Answer::Found(vec![Some("17".into())]); keys.len()])
    }
}

/// Asks a service whose logins are slow for 41 rows, 4 at a time; returns the rows that were answered, and
/// the logins.
fn answered(limit: impl FnOnce(&mut TaskConfig)) -> (usize, usize) {
    let client = Arc::new(SlowLogin::default());
    let function = Exchange {
        client: Arc::clone(&client),
        key: "{row}".to_owned(),
        misses: Misses::default(),
        required: Vec::new(),
        rows: 1,
        connections: 4,
        connect_timeout: Duration::from_secs(20),
        is_repeatable: true,
    };
    let mut config = with_on_error(task_config(OutputMode::Ordered, 4), OnError::Capture);
    limit(&mut config);

    let (results, _) = run_task(&function, config, 0..41).unwrap();

    assert_eq!(results.len(), ROWS);
    (results.iter().flatten().count(), client.logins.load(Ordering::SeqCst))
}

#[test]
fn a_login_that_takes_longer_than_an_attempt_is_made_once_a_connection() {
    for retries in [0, 12] {
        let (answered, logins) = answered(|config| {
            config.concurrency = Concurrency::of_task(4).beginning(Begins::WhenSaid);
            config.operator.attempt_timeout = Some(Duration::from_millis(300));
            config.operator.retry =
                Some(AsyncRetryStrategy::fixed_delay(retries, Duration::from_millis(50)));
        });
        assert_eq!((answered, logins), (ROWS, 4));
    }
}

#[test]
fn a_login_goes_on_when_the_rows_that_came_first_have_run_out_of_time() {
    let (answered, logins) = answered(|config| {
        config.operator.timeout = Some(Duration::from_millis(190));
    });
    assert!((1..ROWS).contains(&answered), "{answered}");
    assert_eq!(logins, 4);
}
