// SPDX-License-Identifier: Apache-2.0
//! Redis says what the server says, operation by operation: the script against a real one.
//!
//! `EXCHANGES=100000` makes more of them.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use sparkawait_lease::{
    Answer, Conversation, Exchange, Lease, OWNER_SCRIPT, OWNER_SUM, Order, SCRIPT, SCRIPT_SUM,
    Secret, Server, State, Terms,
};

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A Redis of this test, and a connection to it.
struct Redis {
    stream: BufReader<TcpStream>,
    _process: Process,
}

#[derive(Debug, PartialEq)]
enum Reply {
    Text(String),
    List(Vec<String>),
}

impl Redis {
    /// Starts one, or fails: `tools/install-servers` installs it.
    fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let started = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"])
            .arg(port.to_string())
            .stdout(Stdio::null())
            .spawn();
        let mut process = match started {
            Ok(process) => Process(process),
            Err(error) => panic!("tools/install-servers installs redis-server: {error}"),
        };
        loop {
            if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
                return Self { stream: BufReader::new(stream), _process: process };
            }
            assert_eq!(process.0.try_wait().unwrap(), None, "redis-server has ended");
            std::thread::yield_now();
        }
    }

    fn send(&mut self, words: &[&str]) {
        self.stream.get_mut().write_all(&frame_of(words)).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn reply(&mut self) -> Reply {
        let line = self.line();
        let (kind, rest) = line.split_at(1);
        match kind {
            "$" => {
                let mut text = vec![0; rest.parse::<usize>().unwrap() + 2];
                self.stream.read_exact(&mut text).unwrap();
                text.truncate(text.len() - 2);
                Reply::Text(String::from_utf8(text).unwrap())
            }
            "*" => {
                let texts = (0..rest.parse().unwrap()).map(|_| match self.reply() {
                    Reply::Text(text) => text,
                    Reply::List(list) => panic!("{list:?}"),
                });
                Reply::List(texts.collect())
            }
            _ => panic!("{line}"),
        }
    }
}

fn frame_of(words: &[impl AsRef<str>]) -> Vec<u8> {
    let mut frame = format!("*{}\r\n", words.len());
    for word in words.iter().map(AsRef::as_ref) {
        write!(frame, "${}\r\n{word}\r\n", word.len()).unwrap();
    }
    frame.into_bytes()
}

/// What a worker knows, as far as it matters for what it may say.
#[derive(Clone, Default)]
struct Known {
    number: u64,
    sum: u64,
    flying: u64,
    /// Which change of the limit.
    change: u64,
}

/// Says something that a worker may say; sometimes what it may not, and sometimes again.
fn said(random: &mut StdRng, worker: usize, known: &mut Known, is_budget: bool) -> Exchange {
    if random.random_ratio(29, 30) {
        known.number += 1;
    }
    let least = random.random_range(1..13);
    let too_many = u64::from(random.random_ratio(1, 40));
    let charged = random.random_range(0..=known.flying + too_many);
    known.flying -= charged.min(known.flying);
    let back = if random.random_ratio(1, 9) { random.random_range(0..=known.flying) } else { 0 };
    known.flying -= back;
    Exchange {
        worker: format!("w{worker}"),
        number: known.number,
        want: if random.random_ratio(1, 7) { 0 } else { least + random.random_range(0..67) },
        least,
        charged,
        cost: if random.random_ratio(1, 997) && is_budget {
            1 << 53
        } else {
            charged * random.random_range(0..5) / 2
        },
        since: known.sum.saturating_sub(random.random_range(0..900_000)),
        back,
        left: random.random_ratio(1, 17).then(|| random.random_range(0..61)),
        begins_empty: random.random(),
        knows: if random.random_ratio(1, 97) { 97 } else { known.change },
    }
}

fn terms_of(random: &mut StdRng, round: u64) -> Terms {
    match round % 3 {
        0 => Terms::Rate {
            permits: random.random_range(1..9_973),
            period: random.random_range(7_000..61_000_000),
            burst: random.random_range(1..997),
        },
        1 => Terms::Budget(random.random_range(1..9_973)),
        _ => Terms::Calls(random.random_range(1..97)),
    }
}

/// What a limit of this kind may become.
fn alike(random: &mut StdRng, terms: Terms) -> Terms {
    let round = match terms {
        Terms::Rate { .. } => 0,
        Terms::Budget(_) => 1,
        Terms::Calls(_) => 2,
    };
    terms_of(random, round)
}

fn kind_of(answer: &Answer) -> usize {
    match answer {
        Answer::Leases(leases) if leases.len() > 1 => 8,
        Answer::Leases(_) => 0,
        Answer::Again(_) => 1,
        Answer::OnSettle(_) => 2,
        Answer::Never(_) => 3,
        Answer::Noted => 4,
        Answer::OtherTerms(_) => 5,
        Answer::Set { .. } => 6,
        Answer::Lost => 7,
    }
}

const fn kind_of_state(state: &State) -> usize {
    match state {
        State::Known { .. } => 0,
        State::Unused => 1,
        State::OtherTerms(_) => 2,
    }
}

/// A Redis, and a server by the bytes of a connection.
struct Both {
    redis: Redis,
    server: Server,
    conversation: Conversation,
    secret: Secret,
}

impl Both {
    fn start() -> Self {
        let mut redis = Redis::start();
        for (script, sum) in [(SCRIPT, SCRIPT_SUM), (OWNER_SCRIPT, OWNER_SUM)] {
            redis.send(&["SCRIPT", "LOAD", script]);
            assert_eq!(redis.reply(), Reply::Text(sum.to_owned()));
        }
        let (mut server, mut conversation) = (Server::default(), Conversation::default());
        let secret = Secret::new("s3cr3t");
        let said = frame_of(&["AUTH", "s3cr3t"]);
        conversation.take(&said, &mut server, &secret, 0, &mut Vec::new());
        Self { redis, server, conversation, secret }
    }

    /// Has both forget all limits.
    fn forget(&mut self) {
        // It answers "OK", and no text.
        self.redis.send(&["FLUSHALL"]);
        assert_eq!(self.redis.line(), "+OK");
        self.server = Server::default();
    }

    /// Asks both, and returns what they answer alike.
    fn ask(&mut self, limit: &str, sum: &str, arguments: &[String]) -> Vec<String> {
        let keys = [":lately", ":wanting"].map(|it| format!("{limit}{it}"));
        let mut words = vec!["EVALSHA", sum, "3", limit, &keys[0], &keys[1]];
        words.extend(arguments.iter().map(String::as_str));
        self.redis.send(&words);
        let Reply::List(replied) = self.redis.reply() else { panic!("no list: {words:?}") };
        let mut bytes = Vec::new();
        let said = frame_of(&words);
        self.conversation.take(&said, &mut self.server, &self.secret, 0, &mut bytes);
        assert_eq!(bytes, frame_of(&replied), "{words:?}");
        replied
    }
}

/// Until somebody says something again.
fn rest(random: &mut StdRng) -> u64 {
    match random.random_range(0..97) {
        0 => 31_000_000,
        1 => 1_700_000,
        2 => 0,
        _ => random.random_range(0..120_000),
    }
}

#[test]
fn redis_answers_as_the_server_does() {
    let exchanges = std::env::var("EXCHANGES").map_or(4_999, |it| it.parse().unwrap());
    let mut both = Both::start();
    let seed = std::env::var("SEED").map_or(0x5eed, |it| it.parse().unwrap());
    let random = &mut StdRng::seed_from_u64(seed);
    let (mut server, mut now) = (Server::default(), 1_790_000_000_000_003);
    let mut answers = [0_u64; 9];
    let mut states = [0_u64; 3];
    let mut made = 0;
    for round in 0_u64.. {
        if made >= exchanges {
            break;
        }
        // A limit, from its first exchange on.
        let limit = format!("{{{round}}}");
        let terms = terms_of(random, round);
        let mut workers = vec![Known::default(); random.random_range(1..7)];
        for step in 0..random.random_range(1..997) {
            now += rest(random);
            let at = now - if random.random_ratio(1, 41) { 7_919 } else { 0 };
            let number = random.random_range(0..workers.len());
            let is_budget = matches!(terms, Terms::Budget(_));
            if random.random_ratio(1, 499) {
                both.forget();
                server = Server::default();
            }
            let mut exchange = said(random, number, &mut workers[number], is_budget);
            if random.random_ratio(1, 61) {
                // It was sent over a connection that is gone.
                exchange.number = exchange.number.saturating_sub(2);
            }
            let other = random.random_ratio(1, 67);
            let asked = if other { Terms::Calls(1_000_003) } else { terms };
            // Also of one that nobody has asked for.
            if step == 0 || random.random_ratio(1, 23) {
                let anew = random.random_ratio(2, 3).then(|| alike(random, asked));
                let order = Order { said: asked, anew, begins_empty: random.random() };
                let replied = both.ask(&limit, OWNER_SUM, &order.arguments(Some(at)));

                let state = server.order(&limit, &order, at);

                assert_eq!(replied, state.words(), "seed {seed}, {made}: {order:?}");
                assert_eq!(State::of_words(&replied), Some(state.clone()));
                states[kind_of_state(&state)] += 1;
            }
            let replied = both.ask(&limit, SCRIPT_SUM, &exchange.arguments(asked, Some(at)));

            let answer = server.exchange(&limit, asked, &exchange, at);

            assert_eq!(replied, answer.words(), "seed {seed}, {made}: {exchange:?} {asked:?}");
            assert_eq!(Answer::of_words(&replied), Some(answer.clone()));
            match &answer {
                Answer::Leases(leases) => {
                    for &Lease { amount, sum, .. } in leases {
                        workers[number].flying += amount;
                        workers[number].sum = sum;
                    }
                }
                Answer::Set { version, .. } => workers[number].change = *version,
                Answer::Lost => workers[number] = Known::default(),
                _ => {}
            }
            answers[kind_of(&answer)] += 1;
            made += 1;
        }
    }
    assert!(answers.iter().all(|it| *it > 0), "each answer is compared: {answers:?}");
    assert!(states.iter().all(|it| *it > 0), "each state is compared: {states:?}");
}
