// SPDX-License-Identifier: Apache-2.0
//! How many instructions does a row cost around a native lookup, and in a whole task?
//!
//! Counted by Callgrind over 10 000 rows each, on one thread and without what
//! prepares them: functions answer at once, inside the call. `make bench-check`
//! compares with `benches/baseline/instructions.json`.
//!
//! | bench | question |
//! |---|---|
//! | `template` | what does a key or a part of an address cost? |
//! | `json`, `text` | what do result columns out of what a service wrote cost? |
//! | `cache` | what does a hit cost? |
//! | `http` | what does a row cost in requests of one and of many, with the server's part of it? |
//! | `task` | what does a row cost from the input batch to the output batch? |

#![expect(missing_docs, unused_qualifications, reason = "the macros write so")]
#![expect(clippy::panic, clippy::unwrap_used, reason = "a bench fails by panicking")]

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use gungraun::{library_benchmark, library_benchmark_group, main};
use sparkawait_arrow::{ERROR_COLUMN, InputBatch, InputRows, OnError, OutputColumns};
use sparkawait_benches::RECORDS;
use sparkawait_benches::batches::{input, results};
use sparkawait_connect::connectors::{self, CONNECTORS};
use sparkawait_connect::json::JsonRows;
use sparkawait_connect::template::{Escape, Template};
use sparkawait_connect::text::{ParsedColumn, TextColumn};
use sparkawait_core::ProcessingTime;
use sparkawait_core::operator::{AttemptId, Begins, Config, OutputMode};
use sparkawait_core::queue::EntryId;
use sparkawait_runtime::clock::Clock;
use sparkawait_runtime::{
    AsyncFunction, BufferTimeout, ChainedOperator, Driver, DriverConfig, Feeder, Mailbox,
    OperatorChain, Turn,
};
use sparkawait_task::error::TaskError;
use sparkawait_task::function::{
    Call, Calls, Replies, ReplyGroup, ReplySink, ResultGroup, TaskFunction,
};
use sparkawait_task::layer::cache::{CacheConfig, CacheMetrics, CacheSettings};
use sparkawait_task::layer::{Inner, Layer};
use sparkawait_task::native::Start;
use sparkawait_task::row_config::RowConfig;
use sparkawait_task::row_prices::PriceSettings;
use sparkawait_task::secret::Sources;
use sparkawait_task::supervision::spawn_aside;
use sparkawait_task::task_codec::TaskCodec;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

/// Calls, documents or texts that come at a time.
const BURST: usize = 500;
/// Rows in flight in a task.
const CAPACITY: usize = 1_000;

/// A template, rows to write, and room for the longest.
fn template(text: &str) -> (Template, RecordBatch, Vec<u8>) {
    (Template::parse(text, "key").unwrap(), input(RECORDS), Vec::with_capacity(256))
}

fn write(
    (template, batch, mut out): (Template, RecordBatch, Vec<u8>),
    escape: Escape,
) -> (Template, RecordBatch, Vec<u8>) {
    let bound = template.bind(batch.schema_ref()).unwrap();
    let rows = bound.rows(&batch).unwrap();
    for row in 0..RECORDS {
        out.clear();
        assert!(rows.write(row, escape, &mut out));
        black_box(&out);
    }
    drop(rows);
    (template, batch, out)
}

#[library_benchmark(setup = template)]
#[bench::integer("customer:{id}")]
#[bench::integer_and_text("customer:{id}:{name}")]
fn template_key(it: (Template, RecordBatch, Vec<u8>)) -> (Template, RecordBatch, Vec<u8>) {
    write(it, Escape::None)
}

#[library_benchmark(setup = template)]
#[bench::integer_and_text("/customers/{id}/{name}")]
fn template_address(it: (Template, RecordBatch, Vec<u8>)) -> (Template, RecordBatch, Vec<u8>) {
    write(it, Escape::Percent)
}

/// A reader of JSON documents, and documents that have the rows of `results`.
fn documents(paths: &[(&str, &str)]) -> (JsonRows, Vec<String>) {
    let paths: Vec<_> = paths.iter().map(|&(it, path)| (it.to_owned(), path.to_owned())).collect();
    let reader = JsonRows::new(results(0).schema(), None, &paths).unwrap();
    let document = |row| {
        format!(r#"{{"weather": "value {row}", "wind": {row}.5, "at": {{"gate": "B{row}"}}}}"#)
    };
    (reader, (0..RECORDS).map(document).collect())
}

#[library_benchmark(setup = documents)]
#[bench::members(&[])]
#[bench::paths(&[("weather", "$.at.gate")])]
fn json_decode((reader, documents): (JsonRows, Vec<String>)) -> (JsonRows, Vec<String>) {
    for burst in documents.chunks(BURST) {
        let burst: Vec<&[u8]> = burst.iter().map(String::as_bytes).collect();
        black_box(reader.decode(&burst).unwrap());
    }
    (reader, documents)
}

/// A column to parse texts into, and numbers as texts.
fn texts(data_type: DataType) -> (FieldRef, Vec<String>) {
    let field = Arc::new(Field::new("value", data_type, true));
    (field, (0..RECORDS).map(|row| (row * 7).to_string()).collect())
}

#[library_benchmark(setup = texts)]
#[bench::integer(DataType::Int64)]
#[bench::string(DataType::Utf8)]
fn text_column((field, texts): (FieldRef, Vec<String>)) -> (FieldRef, Vec<String>) {
    for burst in texts.chunks(BURST) {
        let mut column = TextColumn::new(&field, BURST);
        for text in burst {
            column.push(text.as_bytes());
        }
        let parsed: ParsedColumn = black_box(column.finish().unwrap());
        assert!(parsed.bad.is_empty());
    }
    (field, texts)
}

/// A function that answers at once, with the same results for every burst.
struct AtOnce {
    replies: Replies,
    rows: RecordBatch,
}

impl AtOnce {
    fn start(replies: Replies) -> TaskFunction {
        Box::new(Self { replies, rows: results(RECORDS) })
    }
}

impl AsyncFunction<Calls> for AtOnce {
    fn invoke(&mut self, calls: Calls) {
        let attempts: Vec<AttemptId> = calls.calls.iter().map(|call| call.attempt).collect();
        let rows = self.rows.slice(0, attempts.len());
        let results = ResultGroup::one_each(attempts, rows);
        self.replies.send(results.into());
    }

    fn ask_timeout(&mut self, _: Calls) {}

    fn cancel(&mut self, _: Vec<AttemptId>) {}

    fn close(&mut self) {}
}

/// Calls for the first `rows` rows of `batch`, in bursts.
fn bursts(batch: &Arc<InputBatch>, rows: usize) -> Vec<Calls> {
    let call = |row: usize| {
        let row = u32::try_from(row).unwrap();
        let entry = EntryId::from_u64(u64::from(row));
        Call { attempt: AttemptId { entry, attempt: 1 }, batch: 0, row }
    };
    let burst = |start: usize| Calls {
        batches: vec![Arc::clone(batch)],
        calls: (start..rows.min(start + BURST)).map(call).collect(),
    };
    (0..rows).step_by(BURST).map(burst).collect()
}

/// A function over HTTP whose server is on the same thread, and calls for it.
struct Http {
    runtime: Runtime,
    function: TaskFunction,
    calls: Vec<Calls>,
    answered: Arc<Answered>,
}

/// Counts answers, and tells of each burst that all of its calls have one.
#[derive(Debug, Default)]
struct Answered {
    calls: AtomicUsize,
    burst: Notify,
}

/// Where answers are counted.
#[derive(Debug)]
struct Counting(Arc<Answered>);

impl ReplySink for Counting {
    fn send(&self, group: ReplyGroup) -> bool {
        assert!(group.failures.is_empty());
        let calls = group.results.map_or(0, |it| it.attempts.len());
        if (self.0.calls.fetch_add(calls, Ordering::Relaxed) + calls).is_multiple_of(BURST) {
            self.0.burst.notify_one();
        }
        true
    }

    fn started(&self, _attempts: Vec<AttemptId>) -> bool {
        true
    }

    fn fail(&self, error: TaskError) -> bool {
        panic!("{error}")
    }
}

/// Answers each request, which is over where `end` is, with the document.
async fn serve(mut connection: TcpStream, end: &'static str, document: Arc<str>) {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ";
    let reply = format!("{head}{}\r\n\r\n{document}", document.len());
    let mut request = Vec::with_capacity(4096);
    while connection.read_buf(&mut request).await.is_ok_and(|bytes| bytes > 0) {
        if request.ends_with(end.as_bytes()) {
            connection.write_all(reply.as_bytes()).await.unwrap();
            request.clear();
        }
    }
}

/// Starts a function and its server, with the connections that it needs.
fn http(rows: usize) -> Http {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let port = listener.local_addr().unwrap().port();
    let row = r#"{"weather": "fair", "wind": 7.5}"#;
    let (method, path, batch, end, document) = if rows == 1 {
        ("GET", "{id}/{name}", "null".to_owned(), "\r\n\r\n", row.to_owned())
    } else {
        let batch = format!(
            r#"{{"max_rows": {rows}, "max_bytes": null, "linger": 60.0, "split_on_error": false,
            "item": [{{"id": "{{id}}", "name": "{{name}}"}}], "around": {{"rows": "{{}}"}},
            "id": null, "error": null, "status": null}}"#
        );
        ("POST", "rows", batch, "]}", format!("[{}]", vec![row; rows].join(",")))
    };
    let description = format!(
        r#"{{"method": "{method}", "url": "http://127.0.0.1:{port}/{path}", "returns": "json",
        "batch": {batch}, "success": [[200, 299]], "connections": 50, "max_response_bytes": 1000000,
        "redirects": 0, "client": {{"connect_timeout": 60.0, "read_timeout": null, "version": "1.1",
        "streams_per_connection": 100, "compressed": true, "proxy": "none",
        "tls": {{"ca": null, "certificate": null, "private_key": null}}}}}}"#
    );
    let document: Arc<str> = document.into();
    let handle = runtime.handle().clone();
    spawn_aside(runtime.handle(), "bench server", async move {
        while let Ok((connection, _)) = listener.accept().await {
            let serving = serve(connection, end, Arc::clone(&document));
            spawn_aside(&handle, "bench connection", serving);
        }
    });
    let function = connectors::read(CONNECTORS, "http", &description, Sources::new()).unwrap();
    let mut input_rows = InputRows::new(input(0).schema());
    let handle = input_rows.accept(input(RECORDS)).unwrap().batch();
    let (answered, results) = (Arc::new(Answered::default()), results(0).schema());
    let replies = Replies::to(Counting(Arc::clone(&answered)));
    let (input, channel_share) = (input(0).schema(), None);
    let (tokio, calls) = (runtime.handle().clone(), bursts(input_rows.batch(handle), RECORDS));
    let start = Start { replies, runtime: tokio, input, results, channel_share };
    let function = function.start(start).unwrap();
    let mut http = Http { runtime, function, calls, answered };
    let burst = bursts(input_rows.batch(handle), BURST);
    http.answer(burst);
    http
}

impl Http {
    fn answer(&mut self, bursts: Vec<Calls>) {
        for calls in bursts {
            self.function.invoke(calls);
            self.runtime.block_on(self.answered.burst.notified());
        }
    }
}

#[library_benchmark(setup = http)]
#[bench::get(1)]
#[bench::post_of_100(100)]
fn http_rows(mut it: Http) -> Http {
    let calls = std::mem::take(&mut it.calls);
    it.answer(calls);
    assert_eq!(it.answered.calls.load(Ordering::Relaxed), RECORDS + BURST);
    it
}

/// What the rows of a task look like.
fn row_config(input: SchemaRef, mode: OutputMode) -> RowConfig {
    RowConfig {
        journal: None,
        input,
        hidden: Arc::new(Schema::empty()),
        carried: Arc::new(Schema::empty()),
        results: results(0).schema(),
        output: OutputColumns::Append,
        on_error: OnError::Fail,
        error_column: ERROR_COLUMN.to_owned(),
        info_column: None,
        keeps_causes: true,
        reads: Vec::new(),
        channel: None,
        key: (mode == OutputMode::KeyOrdered).then(|| vec!["id".to_owned()]),
        prices: PriceSettings::default(),
        watermark: None,
        function: "bench".to_owned(),
        partition: 0,
        is_branch: false,
        timeout: Duration::from_secs(60),
        attempt_timeout: Duration::ZERO,
        not_repeated: None,
        names_of_rows: Vec::new(),
    }
}

/// Keys in the cache: hashes are random, and counts were too if keys could collide.
const KEYS: usize = 1;

/// A cache that has the key of every row, the calls for them, and where the hits go.
struct Cached {
    function: TaskFunction,
    calls: Vec<Calls>,
    metrics: Arc<CacheMetrics>,
    _mailbox: Mailbox<TaskCodec>,
}

fn cached(key: &str) -> Cached {
    let batch = input(KEYS);
    let schema = batch.schema();
    let batch = concat_batches(&schema, &vec![batch; RECORDS / KEYS]).unwrap();
    let mut rows = InputRows::new(SchemaRef::clone(&schema));
    let handle = rows.accept(batch).unwrap().batch();
    let metrics = Arc::new(CacheMetrics::default());
    let settings = CacheSettings {
        caches: None,
        id: "bench".to_owned(),
        config: CacheConfig { max_rows: Some(4 * RECORDS as u64), ..CacheConfig::default() },
        key: vec![key.to_owned()],
        metrics: Arc::clone(&metrics),
    };
    let mailbox = Mailbox::new();
    let replies = Replies::to(mailbox.reply_sender(0));
    let make = Box::new(|replies| Ok(AtOnce::start(replies)));
    let inner = Inner { make, begins: Begins::AtOnce };
    let mut function =
        settings.wrap(inner, replies, &row_config(schema, OutputMode::Ordered)).unwrap();
    for calls in bursts(rows.batch(handle), KEYS) {
        function.invoke(calls);
    }
    assert_eq!(metrics.loads(), KEYS as u64);
    Cached { function, calls: bursts(rows.batch(handle), RECORDS), metrics, _mailbox: mailbox }
}

#[library_benchmark(setup = cached)]
#[bench::integer_key("id")]
#[bench::text_key("name")]
fn cache_hit(mut it: Cached) -> Cached {
    for calls in std::mem::take(&mut it.calls) {
        it.function.invoke(calls);
    }
    assert_eq!(it.metrics.hits(), RECORDS as u64);
    it
}

/// A clock that stands still, so that neither turns nor output batches end early.
struct Still;

impl Clock for Still {
    fn now(&self) -> ProcessingTime {
        ProcessingTime::ZERO
    }
}

type Task = (Driver<TaskCodec, TaskFunction, Still>, Feeder<TaskCodec>);

/// A task whose input is `RECORDS` rows, which wait in its mailbox.
fn task(mode: OutputMode) -> Task {
    let batch = input(RECORDS);
    let mut operator = Config::new(mode, NonZeroUsize::new(CAPACITY).unwrap());
    operator.timeout = Some(Duration::from_secs(60));
    let rows = row_config(batch.schema(), mode);
    let mailbox = Mailbox::new();
    let function = AtOnce::start(Replies::to(mailbox.reply_sender(0)));
    let output = DriverConfig {
        max_rows_per_batch: 8_192,
        max_bytes_per_batch: 64 << 20,
        capacity_bytes: None,
        growth: None,
        buffer_timeout: BufferTimeout::Never,
        target_latency: None,
        warm_up: None,
        expected_result_bytes: None,
    };
    let codec = TaskCodec::new(rows, Begins::AtOnce).unwrap();
    let operator = ChainedOperator::new(operator, output, codec, function);
    let (driver, feeder) = Driver::new(mailbox, OperatorChain::new(operator), Still);
    assert!(feeder.put(batch));
    feeder.put_end();
    (driver, feeder)
}

#[library_benchmark(setup = task)]
#[bench::ordered(OutputMode::Ordered)]
#[bench::unordered(OutputMode::Unordered)]
#[bench::key_ordered(OutputMode::KeyOrdered)]
fn task_rows((mut driver, feeder): Task) -> Task {
    let mut rows = 0;
    loop {
        match driver.take_turn().unwrap() {
            Turn::Output(batch) => rows += black_box(batch).num_rows(),
            Turn::Paused => {}
            Turn::Finished => break,
        }
    }
    assert_eq!(rows, RECORDS);
    (driver, feeder)
}

library_benchmark_group!(
    name = benches,
    benchmarks =
        [template_key, template_address, json_decode, text_column, cache_hit, http_rows, task_rows]
);
main!(library_benchmark_groups = benches);
