// SPDX-License-Identifier: Apache-2.0
//! How large results are, and what bounds their bytes.

use serde::{Deserialize, Serialize};

use super::numbers::{maybe, pick};
use crate::random::Random;
use crate::trace::choice;

/// Bytes of what the functions of an operator bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BytesPlan {
    /// Most bytes of the text of a result.
    pub size: usize,
    /// Bytes of an output batch.
    pub max_per_batch: usize,
    /// Bytes of rows that are completed and take no slots; `None`: they take some.
    pub capacity: Option<usize>,
    /// What a result is expected to have, as long as none is known.
    pub expected: Option<usize>,
}

impl BytesPlan {
    pub(super) fn draw(random: &mut Random) -> Self {
        Self {
            size: pick(random, &[1, 13, 331, 5_003]),
            max_per_batch: pick(random, &[1, 211, 1_013, 20_011]),
            capacity: maybe(random, 40, |random| pick(random, &[1, 997, 20_011])),
            expected: maybe(random, 30, |random| pick(random, &[0, 7, 1_009])),
        }
    }

    /// What the results that are held may have, those to come included.
    pub fn most(&self) -> usize {
        self.capacity.unwrap_or(4 * self.max_per_batch)
    }

    /// The bytes of the text of a result.
    pub fn of_result(&self, seed: u64, value: i64) -> usize {
        let drawn = choice(seed, usize::MAX - 1, value.cast_unsigned(), 0);
        usize::try_from(drawn % (self.size as u64 + 1)).unwrap_or_default()
    }
}
