// SPDX-License-Identifier: Apache-2.0
//! From a request to its answer.

use std::collections::{HashMap, HashSet};
use std::future::pending;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Limited};
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Map, Value, json};

use super::answer;
use super::asked::{Asked, hash_of, texts_of};
use super::config::{Model, ModelServerConfig};
use super::dialect::{Answer, Dialect, Ended, Said, ok};
use super::fault::{Fault, drawn};
use super::limits::Limits;
use super::stats::{Counters, Stats};
use crate::counters::increment;
use crate::latency::{LatencySampler, sleep};
use crate::listener::{Answers, ResetConnection};

/// The longest body of a request, in bytes.
const MAX_BODY_BYTES: usize = 16 << 20;
/// Texts of a request for embeddings.
const MAX_TEXTS: usize = 2_048;
/// Tokens of a prefix from which on it is kept.
const KEPT_PREFIX: u64 = 1_024;

/// What the handle and the server's thread share.
pub(super) struct Service {
    config: ModelServerConfig,
    model: Box<dyn Model>,
    counters: Counters,
    state: Mutex<State>,
}

struct State {
    latency: LatencySampler,
    limits: Limits,
    faults: Vec<(Fault, f64)>,
    rng: StdRng,
    /// Prompts that have met the fault that they ask for once.
    met: HashSet<u64>,
    /// Prefixes that are kept.
    prefixes: HashSet<u64>,
    answered: HashMap<u64, u64>,
    number: u64,
}

/// Why a request has no answer.
enum Failed {
    /// It is answered with this.
    Said(Box<Answer>),
    /// Its connection is reset.
    Reset,
}

impl Failed {
    fn said(answer: Answer) -> Self {
        Self::Said(Box::new(answer))
    }
}

impl Service {
    pub(super) fn new(
        config: ModelServerConfig,
        latency: LatencySampler,
        limits: Limits,
        model: Box<dyn Model>,
    ) -> Self {
        let state = State {
            latency,
            limits,
            faults: config.faults.clone(),
            // Another stream of random numbers than the latency's.
            rng: StdRng::seed_from_u64(!config.seed),
            met: HashSet::new(),
            prefixes: HashSet::new(),
            answered: HashMap::new(),
            number: 0,
        };
        Self { config, model, counters: Counters::default(), state: Mutex::new(state) }
    }

    pub(super) fn stats(&self) -> Stats {
        self.counters.read()
    }

    pub(super) fn answered(&self) -> HashMap<u64, u64> {
        self.state().answered.clone()
    }

    pub(super) fn set_faults(&self, faults: Vec<(Fault, f64)>) {
        self.state().faults = faults;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the lock is held, so poison carries no news.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the answer to what is wrong with a request.
    fn invalid(&self, dialect: Dialect, status: u16, message: &str) -> Failed {
        increment(&self.counters.invalid);
        Failed::said(dialect.error(status, message))
    }

    /// Decides which fault a request meets; one with a status ends it here.
    fn fault(&self, dialect: Dialect, prompt: &str) -> Result<Option<Fault>, Failed> {
        let fault = {
            let mut state = self.state();
            let draw = state.rng.random();
            match Fault::in_prompt(prompt) {
                Some((_, true)) if !state.met.insert(hash_of(prompt)) => None,
                Some((fault, _)) => Some(fault),
                None => drawn(&state.faults, draw),
            }
        };
        if fault.is_some() {
            increment(&self.counters.faults);
        }
        match fault {
            Some(Fault::Status(status)) => {
                Err(Failed::said(dialect.error(status, "this fault was asked for")))
            }
            fault => Ok(fault),
        }
    }

    /// Lets a request of so many tokens through, and says how long it takes to answer.
    fn admit(&self, dialect: Dialect, tokens: u64, output: u64) -> Result<Duration, Failed> {
        let (now, in_flight) = (Instant::now(), self.counters.in_flight.load(Relaxed));
        let mut state = self.state();
        if let Err(over) = state.limits.take(tokens, in_flight, now) {
            increment(match over {
                super::limits::Over::Requests(_) => &self.counters.refused_requests,
                super::limits::Over::Tokens(_) => &self.counters.refused_tokens,
                super::limits::Over::Concurrency { .. } => &self.counters.refused_concurrency,
            });
            let told = state.limits.told(now);
            return Err(Failed::said(dialect.over(over, &told)));
        }
        let tokens = u32::try_from(output).unwrap_or(u32::MAX);
        Ok(state.latency.sample() + self.config.per_token * tokens)
    }

    /// Waits, and does what a fault says of connections.
    async fn wait(&self, delay: Duration, fault: Option<Fault>) -> Result<(), Failed> {
        sleep(delay).await;
        match fault {
            Some(Fault::Stall) => pending().await,
            Some(Fault::Reset) => Err(Failed::Reset),
            _ => Ok(()),
        }
    }

    async fn chat(&self, dialect: Dialect, body: &[u8]) -> Result<Answer, Failed> {
        let invalid = |message: &str| self.invalid(dialect, 400, message);
        let request = serde_json::from_slice::<Value>(body)
            .map_err(|_| invalid("we could not parse the JSON body of your request"))?;
        let is_messages = dialect == Dialect::Anthropic;
        let asked = Asked::read(&request, is_messages, &*self.model).map_err(|it| invalid(&it))?;
        let fault = self.fault(dialect, &asked.prompt)?;
        let mut said = self.say(&asked, fault, &String::from_utf8_lossy(body));
        let tokens = asked.input_tokens + said.output_tokens;
        let delay = self.admit(dialect, tokens, said.output_tokens)?;
        self.note_prefix(&asked, &mut said);
        // Paid for from here on, whether it arrives or not.
        increment(&self.counters.answered);
        self.counters.input_tokens.fetch_add(asked.input_tokens, Relaxed);
        self.counters.cached_tokens.fetch_add(said.cached_tokens, Relaxed);
        self.counters.output_tokens.fetch_add(said.output_tokens, Relaxed);
        {
            let mut state = self.state();
            *state.answered.entry(said.hash).or_default() += 1;
            state.number += 1;
            said.number = state.number;
        }
        self.wait(delay, fault).await?;
        Ok(ok(&dialect.answer(&asked, &said)))
    }

    /// Makes an answer, as a fault says.
    fn say(&self, asked: &Asked, fault: Option<Fault>, request: &str) -> Said {
        let hash = hash_of(&asked.prompt);
        let length = {
            let (least, most) =
                (self.config.output_tokens.start(), self.config.output_tokens.end());
            least + hash % (most.saturating_sub(*least) + 1)
        };
        let mut ended = Ended::Whole;
        let mut text = match fault {
            Some(Fault::Refusal) => {
                ended = Ended::Refused;
                format!("I cannot help with {hash:016x}.")
            }
            Some(Fault::Filtered) => {
                ended = Ended::Filtered;
                String::new()
            }
            Some(Fault::Silent) => {
                ended = Ended::Cut;
                String::new()
            }
            Some(Fault::Invalid) => json!({"wrong": format!("{hash:016x}")}).to_string(),
            _ => self.model.answer(request).unwrap_or_else(|| match &asked.schema {
                Some(schema) => answer::value(schema, hash).to_string(),
                None => answer::text(hash, length),
            }),
        };
        let mut tokens = self.model.tokens(&text);
        let most = match fault {
            Some(Fault::Cut) => Some(tokens / 2),
            _ => asked.max_tokens.map(|it| it.saturating_sub(self.config.reasoning_tokens)),
        };
        if let Some(most) = most.filter(|most| *most < tokens) {
            ended = Ended::Cut;
            let kept = text.chars().count() as u64 * most / tokens;
            text = text.chars().take(usize::try_from(kept).unwrap_or(0)).collect();
            tokens = most;
        }
        let reasoning = match (fault, asked.max_tokens) {
            (Some(Fault::Silent), Some(most)) => most,
            (Some(Fault::Silent), None) => length,
            (_, Some(most)) => self.config.reasoning_tokens.min(most),
            (_, None) => self.config.reasoning_tokens,
        };
        Said {
            text,
            ended,
            output_tokens: tokens + reasoning,
            reasoning_tokens: reasoning,
            cached_tokens: 0,
            written_tokens: 0,
            hash,
            number: 0,
        }
    }

    /// Says which tokens of a long prefix were known, or are from now on.
    fn note_prefix(&self, asked: &Asked, said: &mut Said) {
        if asked.system_tokens >= KEPT_PREFIX {
            let is_new = self.state().prefixes.insert(hash_of(&asked.system));
            let tokens = if is_new { &mut said.written_tokens } else { &mut said.cached_tokens };
            *tokens = asked.system_tokens;
        }
    }

    async fn embed(&self, body: &[u8]) -> Result<Answer, Failed> {
        let dialect = Dialect::OpenAi;
        let invalid = |message: &str| self.invalid(dialect, 400, message);
        let request = serde_json::from_slice::<Value>(body)
            .map_err(|_| invalid("we could not parse the JSON body of your request"))?;
        let texts = texts_of(&request).map_err(|it| invalid(&it))?;
        let tokens: Vec<u64> = texts.iter().map(|it| self.model.tokens(it)).collect();
        let (sum, most) = (tokens.iter().sum::<u64>(), self.config.max_request_tokens);
        if sum > most || texts.len() > MAX_TEXTS {
            return Err(invalid(&format!("requested {sum} tokens, max {most} tokens per request")));
        }
        let most = self.config.max_text_tokens;
        if let Some(at) = tokens.iter().position(|it| *it > most) {
            return Err(invalid(&format!(
                "This model's maximum context length is {most} tokens, however input[{at}] has {}",
                tokens[at]
            )));
        }
        let fault = self.fault(dialect, texts[0])?;
        let delay = self.admit(dialect, sum, 0)?;
        increment(&self.counters.answered);
        self.counters.input_tokens.fetch_add(sum, Relaxed);
        self.counters.texts.fetch_add(texts.len() as u64, Relaxed);
        {
            let mut state = self.state();
            for text in &texts {
                *state.answered.entry(hash_of(text)).or_default() += 1;
            }
        }
        self.wait(delay, fault).await?;
        let asked = request.get("dimensions").and_then(Value::as_u64);
        let dimensions = asked.and_then(|it| usize::try_from(it).ok());
        let dimensions = dimensions.unwrap_or(self.config.dimensions).clamp(1, 65_536);
        let is_packed = request.get("encoding_format").and_then(Value::as_str) == Some("base64");
        let data = texts.iter().enumerate().map(|(index, text)| {
            let vector = vector(hash_of(text), dimensions);
            let embedding = if is_packed {
                let bytes: Vec<u8> = vector.iter().flat_map(|it| it.to_le_bytes()).collect();
                json!(STANDARD.encode(bytes))
            } else {
                json!(vector)
            };
            let index = if fault == Some(Fault::Invalid) { 0 } else { index };
            json!({"object": "embedding", "index": index, "embedding": embedding})
        });
        Ok(ok(&json!({
            "object": "list",
            "data": data.collect::<Vec<_>>(),
            "model": request.get("model"),
            "usage": {"prompt_tokens": sum, "total_tokens": sum},
        })))
    }

    fn may_call(&self, headers: &HeaderMap) -> bool {
        let Some(key) = &self.config.api_key else { return true };
        let given = |name: &str| headers.get(name).and_then(|it| it.to_str().ok());
        let bearer = given("authorization").and_then(|it| it.strip_prefix("Bearer "));
        [bearer, given("x-api-key"), given("api-key")].into_iter().flatten().any(|it| it == key)
    }

    async fn answer_to(&self, request: Request<Incoming>) -> (Dialect, Result<Answer, Failed>) {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path();
        let is_messages = path.ends_with("/messages");
        let dialect = if is_messages { Dialect::Anthropic } else { Dialect::OpenAi };
        // The whole request is read before it may stall: hyper notices that the
        // client went away only while it has nothing left to read.
        let Ok(body) = Limited::new(body, MAX_BODY_BYTES).collect().await else {
            return (dialect, Err(self.invalid(dialect, 413, "the body is too large")));
        };
        let body = body.to_bytes();
        if !self.may_call(&parts.headers) {
            return (dialect, Err(self.invalid(dialect, 401, "Incorrect API key provided")));
        }
        let answer = if is_messages || path.ends_with("/chat/completions") {
            self.chat(dialect, &body).await
        } else if path.ends_with("/embeddings") {
            self.embed(&body).await
        } else {
            Err(self.invalid(dialect, 404, "there is nothing at this path"))
        };
        (dialect, answer)
    }
}

/// Returns a vector whose first four elements are the hash, in units of 1/65536.
fn vector(hash: u64, dimensions: usize) -> Vec<f32> {
    let part = |at: usize| {
        let shift = 48 - 16 * (at % 4);
        let bits = u16::try_from((hash >> shift) & 0xffff).unwrap_or(0);
        f32::from(bits) / 65_536.0
    };
    (0..dimensions).map(part).collect()
}

impl Answers for Service {
    const NAME: &'static str = "model-server";

    /// Answers one request, late or badly if its fate is so.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future counts the request as no longer in flight.
    async fn answer(&self, request: Request<Incoming>) -> Result<Answer, ResetConnection> {
        if request.uri().path() == "/-/stats" {
            let counts = self.stats();
            let fields = counts.fields().map(|(name, count)| (name.to_owned(), Value::from(count)));
            return Ok(ok(&Value::Object(fields.collect::<Map<_, _>>())));
        }
        let _in_flight = self.counters.enter();
        let (dialect, answer) = self.answer_to(request).await;
        let mut answer = match answer {
            Ok(answer) => answer,
            Err(Failed::Said(answer)) => *answer,
            Err(Failed::Reset) => return Err(ResetConnection),
        };
        let (told, number) = {
            let mut state = self.state();
            (state.limits.told(Instant::now()), state.number)
        };
        dialect.tell(&mut answer, &told, number);
        Ok(answer)
    }
}
