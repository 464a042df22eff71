// SPDX-License-Identifier: Apache-2.0
//! Exchanges with the limits of a job, over one connection to a Redis or to the server of the job.

use std::time::Duration;

use bytes::{Buf, BytesMut};
use sparkawait_lease::{Answer, SCRIPT, SCRIPT_SUM};
use sparkawait_task::error::StartError;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::dial::Duplex;

use super::connect::Target;
use super::login::Packed;
use super::resp::Reply;
use super::scanner::Scanner;
use super::server::Server;

/// How long answers may take: then they are asked for again over another connection.
const PATIENCE: Duration = Duration::from_secs(3);

const LONGEST_REPLY: usize = 64 << 10;

/// What is said to one limit.
pub(crate) struct Said {
    /// The name of the limit.
    pub(crate) limit: String,
    /// What the script is told.
    pub(crate) arguments: [String; 15],
}

/// Makes exchanges, over one connection after the other.
pub(crate) struct Exchanges {
    target: Target,
    stream: Option<Box<dyn Duplex>>,
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
        Ok(Self { target: Target::new(&server)?, stream: None })
    }

    /// Where the server is; without user and password.
    pub(crate) fn address(&self) -> &str {
        self.target.address()
    }

    /// Makes exchanges with some limits, in one round trip.
    ///
    /// # Errors
    ///
    /// Why not all of them were answered. To be made again: each has a number, and counts once.
    pub(crate) async fn make(&mut self, said: &[Said]) -> Result<Vec<Answer>, String> {
        // A server closes connections that were silent for long.
        let was_open = self.stream.is_some();
        match self.make_once(said).await {
            Err(_) if was_open => self.make_once(said).await,
            made => made,
        }
    }

    async fn make_once(&mut self, said: &[Said]) -> Result<Vec<Answer>, String> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.target.connect().await.map_err(|it| it.call.summary.clone())?,
        };
        let made = timeout(PATIENCE, exchange(&mut stream, said)).await;
        let made = made.unwrap_or_else(|_| Err(format!("no answer within {PATIENCE:?}")))?;
        self.stream = Some(stream);
        Ok(made)
    }
}

async fn exchange(stream: &mut Box<dyn Duplex>, said: &[Said]) -> Result<Vec<Answer>, String> {
    let packed: Vec<Packed> = said.iter().map(packed).collect();
    let mut answers = ask(stream, &packed).await?;
    if answers.iter().any(Option::is_none) {
        // A Redis that was started again does not know the script.
        ask(stream, &[Packed::of(&["SCRIPT", "LOAD", SCRIPT])]).await?;
        answers = ask(stream, &packed).await?;
    }
    let answers: Option<Vec<_>> = answers.into_iter().collect();
    answers.ok_or_else(|| "it does not keep the script of the limits".to_owned())
}

fn packed(said: &Said) -> Packed {
    // What belongs together lies on one node of a cluster.
    let limit = format!("sparkawait:{{{}}}", said.limit.replace(['{', '}'], "_"));
    let others = [":lately", ":wanting"].map(|it| format!("{limit}{it}"));
    let mut words = vec!["EVALSHA", SCRIPT_SUM, "3", &limit, &others[0], &others[1]];
    words.extend(said.arguments.iter().map(String::as_str));
    Packed::of(&words)
}

/// Sends commands and reads their replies; `None` where the script is not known.
async fn ask(
    stream: &mut Box<dyn Duplex>,
    packed: &[Packed],
) -> Result<Vec<Option<Answer>>, String> {
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

fn read(reply: Reply<'_>) -> Result<Option<Answer>, String> {
    let text = |words: &[u8]| String::from_utf8_lossy(words).into_owned();
    match reply {
        Reply::Error(words) if words.starts_with(b"NOSCRIPT") => Ok(None),
        Reply::Error(words) => Err(text(words)),
        // The sum of the script.
        Reply::Text(_) => Ok(Some(Answer::Noted)),
        Reply::Array(array) => {
            let words = array.elements().map(|it| match it {
                Reply::Text(words) => text(words),
                _ => String::new(),
            });
            let words: Vec<String> = words.collect();
            let answer = Answer::of_words(&words);
            answer.map(Some).ok_or_else(|| format!("it answers in other words: {words:?}"))
        }
        Reply::Nil | Reply::TooLong(_) => Err("it answers with nothing".to_owned()),
    }
}
