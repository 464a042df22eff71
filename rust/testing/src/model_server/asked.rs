// SPDX-License-Identifier: Apache-2.0
//! What a request asks for, whichever dialect it is in.

use serde_json::Value;

use super::config::Model;
use super::schemas;

/// Tokens that stand around each message, and around all.
const AROUND_MESSAGE: u64 = 4;
const AROUND_ALL: u64 = 3;

/// Returns the hash of a prompt: FNV-1a, 64 bits.
pub fn hash_of(prompt: &str) -> u64 {
    prompt.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// A chat, as both dialects have it.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) model: String,
    /// The first text of the user.
    pub(super) prompt: String,
    /// What comes before it, which other prompts may have, too.
    pub(super) system: String,
    pub(super) input_tokens: u64,
    pub(super) system_tokens: u64,
    pub(super) max_tokens: Option<u64>,
    /// The JSON schema of the answer.
    pub(super) schema: Option<Value>,
    pub(super) tier: Option<String>,
}

impl Asked {
    /// Reads the body of a request; the error says what is wrong with it.
    pub(super) fn read(body: &Value, is_messages: bool, model: &dyn Model) -> Result<Self, String> {
        let named = body.get("model").and_then(Value::as_str).unwrap_or_default();
        if named.is_empty() {
            return Err("you must provide a model parameter".to_owned());
        }
        if body.get("stream").and_then(Value::as_bool) == Some(true) {
            return Err("this server does not stream".to_owned());
        }
        let messages = body.get("messages").and_then(Value::as_array);
        let messages = messages.filter(|it| !it.is_empty()).ok_or("'messages' is missing")?;
        let (mut prompt, mut system) = (None, String::new());
        if let Some(text) = body.get("system") {
            text_of(text, &mut system)?;
        }
        let mut tokens = AROUND_ALL;
        for message in messages {
            let role = message.get("role").and_then(Value::as_str).unwrap_or_default();
            let mut text = String::new();
            text_of(message.get("content").unwrap_or(&Value::Null), &mut text)?;
            match role {
                "system" | "developer" if !is_messages => system.push_str(&text),
                "user" | "assistant" => {
                    tokens += model.tokens(&text) + AROUND_MESSAGE;
                    if role == "user" && prompt.is_none() {
                        prompt = Some(text);
                    }
                }
                _ => return Err(format!("'{role}' is not one of the roles")),
            }
        }
        let system_tokens =
            if system.is_empty() { 0 } else { model.tokens(&system) + AROUND_MESSAGE };
        let limits = ["max_completion_tokens", "max_tokens"];
        let max_tokens = limits.iter().find_map(|it| body.get(it).and_then(Value::as_u64));
        if is_messages && max_tokens.is_none() {
            return Err("max_tokens: Field required".to_owned());
        }
        let schema = if is_messages {
            body.pointer("/output_config/format/schema")
        } else {
            body.pointer("/response_format/json_schema/schema")
        };
        let strict = body.pointer("/response_format/json_schema/strict");
        if is_messages || strict == Some(&Value::Bool(true)) {
            schema.map_or(Ok(()), |it| schemas::check(it, is_messages))?;
        }
        Ok(Self {
            model: named.to_owned(),
            prompt: prompt.ok_or("there is no message of the user")?,
            system,
            input_tokens: tokens + system_tokens,
            system_tokens,
            max_tokens,
            schema: schema.cloned(),
            tier: body.get("service_tier").and_then(Value::as_str).map(str::to_owned),
        })
    }
}

/// Appends a text, or the texts of parts.
fn text_of(content: &Value, into: &mut String) -> Result<(), String> {
    match content {
        Value::String(text) => into.push_str(text),
        Value::Array(parts) => {
            for part in parts {
                if let Some(text) = part.get("text").and_then(Value::as_str) {
                    into.push_str(text);
                }
            }
        }
        _ => return Err("'content' must be a string or an array of parts".to_owned()),
    }
    Ok(())
}

/// Reads the texts of a request for embeddings.
pub(super) fn texts_of(body: &Value) -> Result<Vec<&str>, String> {
    if body.get("model").and_then(Value::as_str).unwrap_or_default().is_empty() {
        return Err("you must provide a model parameter".to_owned());
    }
    let texts = match body.get("input") {
        Some(Value::String(text)) => Some(vec![text.as_str()]),
        Some(Value::Array(texts)) => texts.iter().map(Value::as_str).collect(),
        _ => None,
    };
    let is_asked = |it: &Vec<&str>| !it.is_empty() && it.iter().all(|text| !text.is_empty());
    texts.filter(is_asked).ok_or_else(|| "'input' must be texts that are not empty".to_owned())
}
