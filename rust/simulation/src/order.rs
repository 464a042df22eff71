// SPDX-License-Identifier: Apache-2.0
//! The order of the output.

use std::collections::BTreeMap;

use crate::columns::cells;
use crate::scenario::{Mode, Scenario};
use crate::trace::{Broken, Path};

/// Holds the order of what leaves against the modes of the chain.
#[derive(Clone, Debug)]
pub struct Order {
    is_ordered: bool,
    is_ordered_by_key: bool,
    /// The number of watermarks before each row, where that is known to bind.
    epochs: Option<Vec<usize>>,
    last: Option<i64>,
    last_of_key: BTreeMap<i64, i64>,
    last_epoch: usize,
}

impl Order {
    /// Holds nothing yet.
    pub fn new(scenario: &Scenario) -> Self {
        let mut modes = scenario.operators.iter().map(|it| it.mode);
        let rest_is_ordered = scenario.operators[1..].iter().all(|it| it.mode == Mode::Ordered);
        Self {
            is_ordered: modes.clone().all(|it| it == Mode::Ordered),
            is_ordered_by_key: modes.all(|it| it != Mode::Unordered),
            epochs: epochs(scenario).filter(|_| rest_is_ordered),
            last: None,
            last_of_key: BTreeMap::new(),
            last_epoch: 0,
        }
    }

    /// A row is in the output.
    pub fn left(&mut self, path: &Path) -> Result<(), Broken> {
        let is_behind = |last: Option<i64>| last.is_some_and(|it| it > path.row);
        if self.is_ordered && is_behind(self.last.replace(path.row)) {
            return Err(Broken::new("rows leave in order", format!("row {}", path.row)));
        }
        if let Some(key) = path.key
            && self.is_ordered_by_key
            && is_behind(self.last_of_key.insert(key, path.row))
        {
            let what = format!("row {} of key {key}", path.row);
            return Err(Broken::new("rows of a key leave in order", what));
        }
        if let Some(epochs) = &self.epochs {
            let epoch = epochs[usize::try_from(path.row).unwrap_or_default()];
            if epoch < self.last_epoch {
                let what = format!("row {} of {epoch} leaves in {}", path.row, self.last_epoch);
                return Err(Broken::new("no row crosses a watermark", what));
            }
            self.last_epoch = epoch;
        }
        Ok(())
    }
}

/// The number of watermarks before each row: one follows each run of rows that raised the highest
/// event time.
fn epochs(scenario: &Scenario) -> Option<Vec<usize>> {
    let (_, every) = scenario.operators[0].watermark?;
    let (mut epochs, mut epoch, mut highest) = (Vec::new(), 0, None);
    for rows in &scenario.batches {
        let mut left = *rows;
        while left > 0 {
            let run = if every == 0 { left } else { every.min(left) };
            let before = highest;
            for _ in 0..run {
                let row = i64::try_from(epochs.len()).unwrap_or_default();
                highest = highest.max(Some(cells(scenario, row).3));
                epochs.push(epoch);
            }
            epoch += usize::from(highest > before);
            left -= run;
        }
    }
    Some(epochs)
}
