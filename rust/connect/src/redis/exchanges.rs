// SPDX-License-Identifier: Apache-2.0
//! Exchanges with the limits of a job, over one connection to a Redis, to each node of a cluster that has
//! some of them, or to the server of the job.

use std::collections::HashMap;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use sparkawait_lease::{Answer, OWNER_SCRIPT, OWNER_SUM, Order, SCRIPT, SCRIPT_SUM, State};
use sparkawait_task::error::StartError;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::dial::Duplex;

use super::connect::Target;
use super::login::Packed;
use super::resp::Reply;
use super::scanner::Scanner;
use super::server::Server;
use super::topology::{Redirection, host_and_port};

/// How long answers may take: then they are asked for again over another connection.
const PATIENCE: Duration = Duration::from_secs(3);

const LONGEST_REPLY: usize = 64 << 10;

/// What is said to one limit.
pub(crate) struct Said {
    /// The name of the limit.
    pub(crate) limit: String,
    /// What the script is told.
    pub(crate) arguments: [String; 16],
}

/// In a cluster a limit may move while somebody asks for it.
const HOPS: usize = 4;

/// Makes exchanges, over one connection after the other.
pub(crate) struct Exchanges {
    first: Node,
    /// Others of its cluster, by address.
    nodes: HashMap<String, Node>,
    /// Which of them has a limit; without one, the first.
    homes: HashMap<String, String>,
}

/// A server that answers exchanges.
struct Node {
    target: Target,
    stream: Option<Box<dyn Duplex>>,
}

/// What a script answers.
type Words = Vec<String>;

/// The same, or why there is none of one limit.
type Told = Result<Words, String>;

/// What a server answers.
enum Heard {
    Words(Words),
    /// It does not carry this one out.
    Refused(String),
    /// It does not know the script.
    NoScript,
    /// Another node of its cluster has the limit.
    Moved(String),
}

impl Exchanges {
    /// Reads where the server is; nothing is asked yet.
    pub(crate) fn new(url: &str) -> Result<Self, StartError> {
        let server = serde_json::json!({
            "url": [url],
            "connections": 1,
            "cluster": false,
            "read_from": "primary",
            "connect_timeout": PATIENCE.as_secs_f64(),
            "idle_timeout": PATIENCE.as_secs_f64(),
            "max_reply_bytes": LONGEST_REPLY,
            "tls": { "ca": null, "certificate": null, "private_key": null },
        });
        let server: Server = serde_json::from_value(server)
            .map_err(|error| StartError::option(format!("`server`: {error}")))?;
        let first = Node { target: Target::new(&server)?, stream: None };
        Ok(Self { first, nodes: HashMap::new(), homes: HashMap::new() })
    }

    /// Where the server is; without user and password.
    pub(crate) fn address(&self) -> &str {
        self.first.target.address()
    }

    /// Makes exchanges with some limits, in one round trip to each server that has some of them. Of one
    /// that is refused while others are answered it says why.
    ///
    /// # Errors
    ///
    /// Why none of them was answered. To be made again: each has a number, and counts once.
    pub(crate) async fn make(
        &mut self,
        said: &[Said],
    ) -> Result<Vec<Result<Answer, String>>, String> {
        let asked: Vec<(&str, Packed)> = said
            .iter()
            .map(|it| (it.limit.as_str(), packed(SCRIPT_SUM, &it.limit, &it.arguments)))
            .collect();
        let answers = self.ask(SCRIPT, &asked).await?;
        let answer = |it: Words| Answer::of_words(&it).ok_or_else(|| strange(&it));
        Ok(answers.into_iter().map(|it| it.and_then(answer)).collect())
    }

    /// Asks what a limit is, and changes it if that is ordered.
    ///
    /// # Errors
    ///
    /// Why that was not answered.
    pub(crate) async fn order(&mut self, limit: &str, order: &Order) -> Result<State, String> {
        let asked = [(limit, packed(OWNER_SUM, limit, &order.arguments(None)))];
        let answers = self.ask(OWNER_SCRIPT, &asked).await?;
        let words = answers.into_iter().next().unwrap_or_else(|| Ok(Words::new()))?;
        State::of_words(&words).ok_or_else(|| strange(&words))
    }

    async fn ask(&mut self, script: &str, said: &[(&str, Packed)]) -> Result<Vec<Told>, String> {
        let mut answers: Vec<Option<Told>> = vec![None; said.len()];
        for _ in 0..HOPS {
            let mut by_home: HashMap<Option<String>, Vec<usize>> = HashMap::new();
            for (at, (limit, _)) in said.iter().enumerate().filter(|it| answers[it.0].is_none()) {
                by_home.entry(self.homes.get(*limit).cloned()).or_default().push(at);
            }
            if by_home.is_empty() {
                break;
            }
            for (home, places) in by_home {
                let packed: Vec<&Packed> = places.iter().map(|at| &said[*at].1).collect();
                let node = home.as_ref().and_then(|it| self.nodes.get_mut(it));
                let heard = match node.unwrap_or(&mut self.first).ask(script, &packed).await {
                    Ok(heard) => heard,
                    Err(reason) => {
                        // What is elsewhere now, the first one says.
                        self.homes.clear();
                        self.nodes.clear();
                        return Err(reason);
                    }
                };
                for (at, heard) in places.into_iter().zip(heard) {
                    match heard {
                        Heard::Words(words) => answers[at] = Some(Ok(words)),
                        Heard::Refused(reason) => answers[at] = Some(Err(reason)),
                        Heard::NoScript => {
                            return Err("it does not keep the script of the limits".to_owned());
                        }
                        Heard::Moved(to) => self.move_to(said[at].0, home.as_deref(), &to)?,
                    }
                }
            }
        }
        let answers: Option<Vec<_>> = answers.into_iter().collect();
        answers.ok_or_else(|| "the limit moves between nodes of the cluster".to_owned())
    }

    /// Notes which node has a limit, as the node at `asked` says.
    fn move_to(&mut self, limit: &str, asked: Option<&str>, to: &str) -> Result<(), String> {
        let asked = asked.unwrap_or_else(|| self.first.target.address());
        let strange = || format!("it names no node of its cluster: {to}");
        let (host, port) = host_and_port(to, asked).ok_or_else(strange)?;
        let target = self.first.target.at(host, port);
        let address = target.address().to_owned();
        self.nodes.entry(address.clone()).or_insert(Node { target, stream: None });
        self.homes.insert(limit.to_owned(), address);
        Ok(())
    }
}

impl Node {
    async fn ask(&mut self, script: &str, said: &[&Packed]) -> Result<Vec<Heard>, String> {
        // A server closes connections that were silent for long.
        let was_open = self.stream.is_some();
        match self.ask_once(script, said).await {
            Err(_) if was_open => self.ask_once(script, said).await,
            heard => heard,
        }
    }

    async fn ask_once(&mut self, script: &str, said: &[&Packed]) -> Result<Vec<Heard>, String> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.target.connect().await.map_err(|it| it.call.summary.clone())?,
        };
        let heard = timeout(PATIENCE, ask_by(script, &mut stream, said)).await;
        let heard = heard.unwrap_or_else(|_| Err(format!("no answer within {PATIENCE:?}")))?;
        // Who refuses all of them may be a server that another one has replaced: it is looked up again.
        let refused = |it: &Heard| matches!(it, Heard::Refused(_));
        if heard.iter().all(refused)
            && let Some(Heard::Refused(reason)) = heard.first()
        {
            return Err(reason.clone());
        }
        self.stream = Some(stream);
        Ok(heard)
    }
}

/// Has a script answer, which a Redis that was started again does not know.
async fn ask_by(
    script: &str,
    stream: &mut Box<dyn Duplex>,
    said: &[&Packed],
) -> Result<Vec<Heard>, String> {
    let heard = ask(stream, said).await?;
    if !heard.iter().any(|it| matches!(it, Heard::NoScript)) {
        return Ok(heard);
    }
    let loaded = ask(stream, &[&Packed::of(&["SCRIPT", "LOAD", script])]).await?;
    if let Some(Heard::Refused(reason)) = loaded.into_iter().next() {
        return Err(reason);
    }
    ask(stream, said).await
}

fn packed(sum: &str, limit: &str, arguments: &[String]) -> Packed {
    // What belongs together lies on one node of a cluster.
    let limit = format!("sparkawait:{{{}}}", limit.replace(['{', '}'], "_"));
    let others = [":lately", ":wanting"].map(|it| format!("{limit}{it}"));
    let mut words = vec!["EVALSHA", sum, "3", &limit, &others[0], &others[1]];
    words.extend(arguments.iter().map(String::as_str));
    Packed::of(&words)
}

fn strange(words: &[String]) -> String {
    format!("it answers in other words: {words:?}")
}

/// Sends commands and reads their replies.
async fn ask(stream: &mut Box<dyn Duplex>, packed: &[&Packed]) -> Result<Vec<Heard>, String> {
    let bytes: Vec<u8> = packed.iter().flat_map(|it| it.bytes.iter().copied()).collect();
    stream.write_all(&bytes).await.map_err(|it| it.to_string())?;
    stream.flush().await.map_err(|it| it.to_string())?;
    let (mut unread, mut scanner) = (BytesMut::new(), Scanner::new(LONGEST_REPLY));
    let mut answers = Vec::with_capacity(packed.len());
    while answers.len() < packed.len() {
        let (reply, used) =
            scanner.next(&unread).map_err(|_| "it sends what is not a reply".to_owned())?;
        let answer = reply.map(read);
        unread.advance(used);
        match answer {
            Some(answer) => answers.push(answer?),
            None => match stream.read_buf(&mut unread).await {
                Ok(0) => return Err("the server closed the connection".to_owned()),
                Ok(_) => {}
                Err(error) => return Err(error.to_string()),
            },
        }
    }
    Ok(answers)
}

fn read(reply: Reply<'_>) -> Result<Heard, String> {
    let text = |words: &[u8]| String::from_utf8_lossy(words).into_owned();
    match reply {
        Reply::Error(words) if words.starts_with(b"NOSCRIPT") => Ok(Heard::NoScript),
        Reply::Error(words) => match Redirection::parse(words) {
            Some(Redirection { address, is_asking: false, .. }) => {
                Ok(Heard::Moved(address.to_owned()))
            }
            // The slot is on its way: it is asked for again soon.
            _ => Ok(Heard::Refused(text(words))),
        },
        // The sum of the script.
        Reply::Text(words) => Ok(Heard::Words(vec![text(words)])),
        Reply::Array(array) => {
            let words = array.elements().map(|it| match it {
                Reply::Text(words) => text(words),
                _ => String::new(),
            });
            Ok(Heard::Words(words.collect()))
        }
        Reply::Nil | Reply::TooLong(_) => Err("it answers with nothing".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use sparkawait_lease::{Exchange, Terms};
    use tokio::runtime::Handle;

    use super::*;
    use crate::limit_server::LimitServer;

    #[tokio::test]
    async fn a_limit_that_is_refused_fails_alone() {
        let server = LimitServer::start(&Handle::current(), "127.0.0.1", 0, "s3cr3t").unwrap();
        let url = format!("redis://:s3cr3t@127.0.0.1:{}", server.port().unwrap());
        let mut exchanges = Exchanges::new(&url).unwrap();
        let exchange = Exchange {
            worker: "w".to_owned(),
            number: 1,
            want: 3,
            least: 1,
            ..Exchange::default()
        };
        let of = |limit: &str, cost: &str| {
            let mut arguments = exchange.arguments(Terms::Calls(13), None);
            cost.clone_into(&mut arguments[10]);
            Said { limit: limit.to_owned(), arguments }
        };
        // What is said is not read.
        let (good, strange) = (of("good", "0"), of("strange", "99007199254740993"));

        let answers = exchanges.make(&[strange, good]).await.unwrap();

        assert!(answers[0].as_ref().is_err_and(|it| it.contains("not the arguments")));
        assert!(matches!(&answers[1], Ok(Answer::Leases(it)) if it[0].amount == 3), "{answers:?}");
        let alone = exchanges.make(&[of("strange", "-7")]).await;
        assert!(alone.is_err_and(|it| it.contains("not the arguments")));
    }
}
