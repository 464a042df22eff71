// SPDX-License-Identifier: Apache-2.0
//! The bytes of results that an operator holds for certain.

use std::collections::{BTreeMap, BTreeSet};

use crate::rules::RULES;
use crate::scenario::{BytesPlan, CallPlan, OperatorPlan};
use crate::trace::{Broken, Checked};

/// Results of the last operator that have come and have not left.
#[derive(Clone, Debug)]
pub(super) struct Held {
    seed: u64,
    plan: BytesPlan,
    /// In the mail: nobody knows whether they were taken.
    pub(super) coming: Vec<(i64, u32)>,
    known: BTreeMap<i64, u64>,
    bytes: u64,
    left: BTreeSet<i64>,
}

impl Held {
    /// `None` where results have no bytes, or nobody knows which are held.
    pub(super) fn new(seed: u64, plan: &OperatorPlan, calls: &CallPlan) -> Option<Self> {
        let bytes = plan.bytes.filter(|_| calls.is_answered() && !plan.is_fan_out)?;
        let (known, left) = (BTreeMap::new(), BTreeSet::new());
        Some(Self { seed, plan: bytes, coming: Vec::new(), known, bytes: 0, left })
    }

    /// The task has waited: it has taken what had come.
    pub(super) fn take(&mut self) {
        let coming = std::mem::take(&mut self.coming);
        let values =
            |(serial, count): (i64, u32)| (0..i64::from(count)).map(move |it| serial * 8 + it);
        for value in coming.into_iter().flat_map(values) {
            if !self.left.contains(&value) {
                let bytes = self.plan.of_result(self.seed, value) as u64;
                self.bytes += bytes - self.known.insert(value, bytes).unwrap_or_default();
            }
        }
    }

    /// A result is in the output.
    pub(super) fn leaves(&mut self, value: i64) {
        self.left.insert(value);
        self.bytes -= self.known.remove(&value).unwrap_or_default();
    }

    /// A call is made beside `others`: there is room for what it brings. What the consumer is given
    /// may have left already.
    pub(super) fn check(&self, others: usize, now: u64) -> Checked {
        let given = self.plan.max_per_batch.max(self.plan.size);
        let most = (self.plan.most() + given) as u64;
        if RULES.results_bound_calls && others > 0 && self.bytes >= most {
            let what = format!("{} bytes of {most}, {others} calls at {now}", self.bytes);
            return Err(Broken::new("no more calls than there is room for their results", what));
        }
        Ok(())
    }
}
