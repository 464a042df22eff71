// SPDX-License-Identifier: Apache-2.0
//! What a connection to the server of a job says: as much of RESP as clients of Redis speak to it,
//! sans-IO.
//!
//! | command | what it does |
//! |---|---|
//! | `AUTH [user] secret`, `HELLO [2\|3] [AUTH user secret]` | says who it is; nothing else is answered before |
//! | `EVALSHA sha 3 key key key ..`, `EVAL script 3 ..` | an exchange, as `exchange.lua` makes it |
//! | the same with the other script | what the owner of the job asks, as `owner.lua` answers |
//! | `SCRIPT LOAD script` | says its sum; there are these scripts only |
//! | `PUBLISH channel message` | a message for the process of the server, its one reader; on the channel `ends` the last one of a task |
//! | `PING`, `SELECT 0`, `QUIT` | as in Redis |

use std::str::from_utf8;

use subtle::ConstantTimeEq as _;

use crate::exchange::{Exchange, Order};
use crate::server::Server;
use crate::{OWNER_SCRIPT, OWNER_SUM, SCRIPT, SCRIPT_SUM};

/// The most bytes that are read of somebody who has not said the secret, and of one command.
pub const MOST_BYTES: usize = 64 << 10;

/// The most words of a command; an exchange has 22.
const MOST_WORDS: usize = 64;

/// What workers say so that others cannot use up the limits of a job.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Takes a text over.
    pub fn new(text: impl Into<Vec<u8>>) -> Self {
        Self(text.into())
    }

    fn is(&self, said: &str) -> bool {
        self.0.ct_eq(said.as_bytes()).into()
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// One connection, as the server knows it.
#[derive(Debug, Default)]
pub struct Conversation {
    /// The beginning of a command.
    unread: Vec<u8>,
    /// What has come before the secret.
    heard: usize,
    is_known: bool,
    is_over: bool,
}

/// A command, and how many bytes it has.
type Command<'a> = (Vec<&'a str>, usize);

/// The bytes are not a command.
struct Garbage;

impl Conversation {
    /// Returns whether it has said the secret.
    pub const fn is_known(&self) -> bool {
        self.is_known
    }

    /// Returns whether the connection ends when the replies are written.
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Reads what has come at `now`, in microseconds, and writes the replies to it.
    pub fn take(
        &mut self,
        bytes: &[u8],
        server: &mut Server,
        secret: &Secret,
        now: u64,
        replies: &mut Vec<u8>,
    ) {
        self.unread.extend_from_slice(bytes);
        self.heard = self.heard.saturating_add(bytes.len());
        let (unread, mut used) = (std::mem::take(&mut self.unread), 0);
        while !self.is_over {
            if !self.is_known && self.heard > MOST_BYTES {
                self.refuse("ERR too much before the secret", replies);
                break;
            }
            match parse(&unread[used..]) {
                Ok(Some((words, length))) => {
                    self.answer(&words, server, secret, now, replies);
                    used += length;
                }
                Ok(None) if unread.len() - used > MOST_BYTES => {
                    self.refuse("ERR the command is too long", replies);
                }
                Ok(None) => break,
                Err(Garbage) => self.refuse("ERR Protocol error", replies),
            }
        }
        self.unread = unread;
        self.unread.drain(..used);
    }

    /// Says why, and nothing more.
    fn refuse(&mut self, reason: &str, replies: &mut Vec<u8>) {
        error(reason, replies);
        self.is_over = true;
    }

    fn answer(
        &mut self,
        words: &[&str],
        server: &mut Server,
        secret: &Secret,
        now: u64,
        replies: &mut Vec<u8>,
    ) {
        let Some((name, rest)) = words.split_first() else { return };
        let name = name.to_ascii_uppercase();
        match (name.as_str(), rest) {
            ("AUTH", [said] | [_, said]) => {
                self.learn(secret, said);
                self.say(replies, |it| line("OK", it));
            }
            ("HELLO", rest) => self.hello(secret, rest, replies),
            ("QUIT", _) => {
                line("OK", replies);
                self.is_over = true;
            }
            _ if !self.is_known => error("NOAUTH Authentication required.", replies),
            ("PING", []) => line("PONG", replies),
            ("SELECT", ["0"]) => line("OK", replies),
            ("PUBLISH", [channel, message]) => {
                server.publish(message, *channel == "ends");
                replies.extend_from_slice(b":1\r\n");
            }
            ("SCRIPT", [load, script]) if load.eq_ignore_ascii_case("LOAD") => match *script {
                SCRIPT => text(SCRIPT_SUM, replies),
                OWNER_SCRIPT => text(OWNER_SUM, replies),
                _ => error("ERR this server has other scripts", replies),
            },
            ("EVALSHA" | "EVAL", [script, rest @ ..]) => {
                let is_sum = name == "EVALSHA";
                let is = |text: &str, sum: &str| {
                    if is_sum { script.eq_ignore_ascii_case(sum) } else { *script == text }
                };
                let carry_out = if is(SCRIPT, SCRIPT_SUM) {
                    exchange
                } else if is(OWNER_SCRIPT, OWNER_SUM) {
                    order
                } else {
                    return error("NOSCRIPT No matching script.", replies);
                };
                let ["3", limit, _, _, arguments @ ..] = rest else {
                    return error("ERR these scripts have three keys", replies);
                };
                let words = carry_out(server, limit, arguments, now);
                match words {
                    Some(words) => list(&words, replies),
                    None => error("ERR these are not the arguments of the script", replies),
                }
            }
            _ => error("ERR unknown command", replies),
        }
    }

    /// Notes whether somebody knows the secret. Who does not know it has one try.
    fn learn(&mut self, secret: &Secret, said: &str) {
        self.is_known = secret.is(said);
        self.is_over = !self.is_known;
    }

    /// Answers somebody who knows the secret, or says that it does not.
    fn say(&self, replies: &mut Vec<u8>, reply: impl FnOnce(&mut Vec<u8>)) {
        if self.is_known {
            reply(replies);
        } else {
            error("WRONGPASS invalid username-password pair or user is disabled.", replies);
        }
    }

    fn hello(&mut self, secret: &Secret, rest: &[&str], replies: &mut Vec<u8>) {
        let (version, mut options) = match rest {
            [] => ("2", rest),
            [version, options @ ..] => (*version, options),
        };
        if !matches!(version, "2" | "3") {
            return error("NOPROTO unsupported protocol version", replies);
        }
        while let [option, value, more @ ..] = options {
            options = match (option.to_ascii_uppercase().as_str(), more) {
                ("AUTH", [said, more @ ..]) => {
                    self.learn(secret, said);
                    more
                }
                ("SETNAME", more) if !value.is_empty() => more,
                _ => return error("ERR Syntax error in HELLO", replies),
            };
        }
        if !self.is_known && !self.is_over {
            return error(
                "NOAUTH HELLO must be called with the client already authenticated",
                replies,
            );
        }
        self.say(replies, |it| {
            it.extend_from_slice(if version == "3" { b"%3\r\n" } else { b"*6\r\n" });
            text("server", it);
            text("sparkawait", it);
            text("version", it);
            text(env!("CARGO_PKG_VERSION"), it);
            text("proto", it);
            it.extend_from_slice(format!(":{version}\r\n").as_bytes());
        });
    }
}

/// Carries an exchange out.
fn exchange(server: &mut Server, limit: &str, said: &[&str], now: u64) -> Option<Vec<String>> {
    let (terms, said, at) = Exchange::read(said)?;
    Some(server.exchange(limit, terms, &said, at.unwrap_or(now)).words())
}

/// Carries out what the owner of the job asks for.
fn order(server: &mut Server, limit: &str, said: &[&str], now: u64) -> Option<Vec<String>> {
    let (order, at) = Order::read(said)?;
    Some(server.order(limit, &order, at.unwrap_or(now)).words())
}

fn line(words: &str, replies: &mut Vec<u8>) {
    replies.extend_from_slice(format!("+{words}\r\n").as_bytes());
}

fn error(words: &str, replies: &mut Vec<u8>) {
    replies.extend_from_slice(format!("-{words}\r\n").as_bytes());
}

fn list(words: &[String], replies: &mut Vec<u8>) {
    replies.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        text(word, replies);
    }
}

fn text(words: &str, replies: &mut Vec<u8>) {
    replies.extend_from_slice(format!("${}\r\n{words}\r\n", words.len()).as_bytes());
}

/// Reads the first command; `None` if its end is missing.
fn parse(bytes: &[u8]) -> Result<Option<Command<'_>>, Garbage> {
    let Some((count, mut used)) = number(bytes, b'*', MOST_WORDS)? else { return Ok(None) };
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let Some((length, start)) = number(&bytes[used..], b'$', MOST_BYTES)? else {
            return Ok(None);
        };
        let (start, end) = (used + start, used + start + length);
        let Some(ends) = bytes.get(end..end + 2) else { return Ok(None) };
        if ends != b"\r\n" {
            return Err(Garbage);
        }
        words.push(from_utf8(&bytes[start..end]).map_err(|_| Garbage)?);
        used = end + 2;
    }
    Ok(Some((words, used)))
}

/// Reads a line with a number of at most `most`, and how many bytes it has.
fn number(bytes: &[u8], kind: u8, most: usize) -> Result<Option<(usize, usize)>, Garbage> {
    let Some((first, rest)) = bytes.split_first() else { return Ok(None) };
    if *first != kind {
        return Err(Garbage);
    }
    let mut value = 0;
    for (index, byte) in rest.iter().enumerate() {
        match byte {
            b'0'..=b'9' => value = value * 10 + usize::from(byte - b'0'),
            b'\r' if index > 0 => match rest.get(index + 1) {
                Some(b'\n') => return Ok(Some((value, index + 3))),
                Some(_) => return Err(Garbage),
                None => return Ok(None),
            },
            _ => return Err(Garbage),
        }
        if value > most {
            return Err(Garbage);
        }
    }
    Ok(None)
}
