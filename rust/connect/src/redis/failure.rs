// SPDX-License-Identifier: Apache-2.0
//! What an error means for the row that met it: which words it gets, and whether a retry helps.

use sparkawait_core::ErrorKind;
use sparkawait_core::policy::CallSign;
use sparkawait_task::cause::Cause;
use sparkawait_task::error::CallFailure;

use crate::failure::{Failure, plain_failure, refusal, service_failure};

use super::resp::Reply;

/// First words of errors that pass by themselves.
const TRANSIENT: [&str; 9] = [
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "NOREPLICAS",
    "OOM",
    "READONLY",
    "TRYAGAIN",
];

/// Beginnings of errors of proxies that do not reach the server: nobody knows what it has done.
const OF_PROXIES: [&str; 6] = [
    "upstream failure",
    "upstream protocol error",
    "no upstream host",
    "ERR Connection refused",
    "ERR Connection reset",
    "ERR Connection timed out",
];

/// First words of a server that was the primary, or has lost its primary.
const OF_NO_PRIMARY: [&[u8]; 2] = [b"READONLY ", b"MASTERDOWN "];

/// Those of redirections. They pass where another node is asked.
const REDIRECTIONS: [&str; 2] = ["ASK", "MOVED"];

/// Those of them that say that the server has too much to do, or is not ready yet.
const OVERLOADED: [&str; 4] = ["BUSY", "LOADING", "MASTERDOWN", "OOM"];

/// Whether to leave a server that answers with `words` for the one that its name leads to now.
#[cold]
pub(super) fn is_of_no_primary(words: &[u8]) -> bool {
    OF_NO_PRIMARY.iter().any(|it| words.starts_with(it))
}

/// First words of errors that are about who calls.
const OF_CALLER: [&str; 3] = ["NOAUTH", "NOPERM", "WRONGPASS"];

/// Whether a server that answers with `words` is there, and refuses the command or who sends it.
pub(super) fn is_of_command(words: &[u8]) -> bool {
    let of_caller = OF_CALLER.iter().map(|it| it.as_bytes());
    of_caller.chain([&b"ERR unknown command"[..]]).any(|it| words.starts_with(it))
}

/// What to do about errors that users can mend.
fn advice(code: &str) -> &'static str {
    match code {
        "MOVED" | "ASK" => "; the key belongs to another node of the cluster",
        "OOM" => "; the server has no memory left: give it more, or a policy that evicts keys",
        "MISCONF" => "; the server cannot save its data, its log says why",
        "NOAUTH" => "; give a password, in the URL or by `password`",
        "WRONGPASS" => "; check user and password",
        "NOPERM" => "; the user needs permission for the command and the key",
        "WRONGTYPE" => "; the key holds another kind of value than the command reads",
        "CROSSSLOT" => "; the keys of a row must share a hash tag, as in `{{tag}}` of a template",
        _ => "",
    }
}

/// Returns the failure that a reply is, if it is one. The server does not belong to a cluster,
/// unless `is_cluster`.
#[inline]
pub(super) fn of(reply: Reply<'_>, is_cluster: bool) -> Option<Failure> {
    match reply {
        Reply::Error(words) => Some(of_reply(words, is_cluster)),
        Reply::TooLong(most) => Some(of_length(most)),
        _ => None,
    }
}

/// Returns the failure of a call that the server answered with `words`.
pub(super) fn of_reply(words: &[u8], is_cluster: bool) -> Failure {
    let words = String::from_utf8_lossy(words);
    let first = words.split(' ').next().unwrap_or_default();
    // Only a code is safe to log: what follows it may quote arguments.
    let is_code = !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_uppercase());
    let code = if is_code { first } else { "ERR" };
    let is_full = words.contains("max number of clients");
    let is_redirection = is_cluster && REDIRECTIONS.contains(&code);
    let passes = TRANSIENT.contains(&code) || is_redirection || is_full;
    let is_of_proxy = OF_PROXIES.iter().any(|it| words.starts_with(it));
    let advice = if words.starts_with("ERR unknown command") {
        "; the server does not have the command, of a later version or of a module"
    } else {
        advice(code)
    };
    let failure = service_failure(
        format!("Redis answered `{words}`{advice}"),
        format!("Redis answered {code}{advice}"),
    );
    if !passes && !is_of_proxy {
        return refusal(OF_CALLER.contains(&code), failure).into();
    }
    let failure = Failure::passing(Cause::of(true, !is_of_proxy), failure);
    let is_overloaded = OVERLOADED.contains(&code) || is_full;
    Failure { sign: if is_overloaded { CallSign::Overloaded } else { failure.sign }, ..failure }
}

/// Returns the failure of a call whose reply has more than `most` bytes.
fn of_length(most: usize) -> Failure {
    let message = format!(
        "Redis answered more than the {most} bytes of `max_reply_bytes`; raise it, or ask for less"
    );
    plain_failure(message).into()
}

/// Returns the failure of calls that were not sent, because there is no connection for `reason`.
pub(super) fn of_no_connection(address: &str, reason: &str) -> Failure {
    Failure::passing(Cause::of(false, false), lost(address, reason))
}

/// Returns the failure of all calls of a connection that ended for `reason`; who knows which of them
/// the server has carried out.
pub(super) fn of_connection(address: &str, reason: &str) -> Failure {
    Failure::passing(Cause::of(true, false), lost(address, reason))
}

fn lost(address: &str, reason: &str) -> CallFailure {
    plain_failure(format!("the connection to Redis at `{address}` failed: {reason}"))
}

/// Returns the failure of all calls of a connection whose task panicked for `reason`.
pub(super) fn of_panic(address: &str, reason: &str) -> Failure {
    let message = format!("the connection to Redis at `{address}` panicked: {reason}");
    let summary = format!("the connection to Redis at `{address}` panicked; the log says why");
    let failure = CallFailure { kind: ErrorKind::Internal, ..service_failure(message, summary) };
    Failure { sign: CallSign::Neutral, ..Failure::passing(Cause::of(true, false), failure) }
}

/// Returns the failure of calls to a server that no retry will reach.
pub(super) fn of_refusal(address: &str, reason: &str) -> Failure {
    let failure = plain_failure(format!("Redis at `{address}` cannot be used: {reason}"));
    Failure::lasting(Cause::of(false, true), failure)
}

/// Makes the failure of a call whose reply is `what`.
pub(super) fn misfit(what: &str, columns: usize) -> CallFailure {
    plain_failure(format!(
        "Redis answered {what}, which does not fit a schema of {columns} columns"
    ))
}
