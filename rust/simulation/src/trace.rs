// SPDX-License-Identifier: Apache-2.0
//! What was seen of a task, and what rule of it was broken.

use std::fmt;

use sparkawait_core::operator::AttemptId;

/// Names a row at an operator: which row of the input it comes from, through which results.
pub type Id = u64;

/// Stands for a result that is null.
const NULL: u64 = 0x6E75_6C6C;

fn mixed(one: u64, other: u64) -> u64 {
    let mut z = one.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ other;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Returns the name of a row of the input.
pub fn head_id(row: i64) -> Id {
    mixed(7, row.cast_unsigned())
}

/// Returns the name of what a row came to: the results of all functions that were called for it.
pub fn child_id(parent: Id, values: &[Option<i64>]) -> Id {
    values
        .iter()
        .fold(mixed(parent, 11), |id, value| mixed(id, value.map_or(NULL, i64::cast_unsigned)))
}

/// Mixes numbers that choose what a call does.
pub fn choice(seed: u64, site: usize, id: Id, attempt: u32) -> u64 {
    mixed(mixed(mixed(seed, site as u64), id), attempt.into())
}

/// A row as a function or the consumer sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// Position in the input.
    pub row: i64,
    /// Its key.
    pub key: Option<i64>,
    /// Its channel.
    pub channel: Option<i64>,
    /// What it costs, where rows have costs.
    pub cost: u64,
    /// What each operator so far has made of it, a value for each of its functions.
    pub values: Vec<Vec<Option<i64>>>,
}

/// Whether a failure asks for another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// It is final.
    No,
    /// Where nobody is hurt by a second call: this one may have been carried out.
    IfRepeatable,
    /// This one was not carried out.
    Yes,
    /// It was of several rows, which are called for again in parts: with so many if one begins with
    /// this row, else with those before it.
    InPart(u32),
    /// The same for one that was left out of the call: nobody was called for it.
    LeftOut(u32),
}

/// What a call says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// So many results, which name `serial`.
    Results {
        /// Belongs to this reply.
        serial: i64,
        /// How many.
        count: u32,
        /// Whether they ask for another attempt.
        retry: bool,
    },
    /// It failed.
    Failure {
        /// Whether another attempt may be worth it.
        asks: Asks,
        /// When to make that attempt, in nanoseconds from then.
        after: Option<u64>,
        /// For how many nanoseconds its destination asks not to be called.
        pause: Option<u64>,
    },
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "named by what they are")]
pub enum What {
    Fed { rows: usize },
    InputEnded,
    PartEnded { part: usize },
    Lost { part: usize },
    Invoked { site: usize, attempt: AttemptId, row: i64, id: Id },
    Sought { site: usize, attempt: AttemptId, row: i64 },
    Known { site: usize, attempt: AttemptId, said: Said },
    Settled { site: usize, attempt: AttemptId, limit: usize, charged: u64, cost: u64 },
    Told { site: usize, attempt: AttemptId, remaining: u64, nanos: u64 },
    Requested { site: usize, first: AttemptId, calls: usize },
    Asked { site: usize, row: i64, id: Id },
    Cancelled { site: usize, attempt: AttemptId },
    Replied { site: usize, attempt: AttemptId, said: Said },
    Parked { nanos: u64 },
    Left { rows: Vec<i64> },
    Closed { site: usize },
    Ended { error: Option<String> },
}

/// Something that happened, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Nanoseconds on the clock.
    pub at: u64,
    /// What.
    pub what: What,
}

/// A rule that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Which one.
    pub rule: &'static str,
    /// Where it was seen.
    pub what: String,
}

/// What was checked, or the rule that it has broken.
pub(crate) type Checked<T = ()> = Result<T, Broken>;

impl Broken {
    /// Names the rule.
    pub fn new(rule: &'static str, what: impl Into<String>) -> Self {
        Self { rule, what: what.into() }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}
