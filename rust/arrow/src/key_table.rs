// SPDX-License-Identifier: Apache-2.0
//! Where the rows are that have some keys: 16 bytes for each, in files that are known by a number.
//!
//! ```text
//!   sorted: all keys but few     fresh: those of the last files, sorted, none of them in `sorted`
//!   [key 12 | row 4] ..          [key 12 | row 4] ..
//!   spans:  rows 0.. are of file 7 from its row 0 on | rows 4711.. of file 3 | ..
//! ```
//!
//! Twelve bytes of a key tell it from others. Should they not once in 2^96, who reads the row that is found
//! sees that its key is another one, and the row counts as unknown. Rows of all files are
//! numbered together, and the number says whose they are.
//!
//! Keys are what [`content_keys`](crate::content_keys) makes of rows. Who reads the files has a table for a
//! process, and its threads take turns.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use arrow::array::{Array, BooleanArray, FixedSizeBinaryArray, Int64Array};

/// Bytes of a key that are kept.
const WIDTH: usize = 12;
/// Set in the row of a failure.
const FAILED: u32 = 1 << 31;
/// Fresh keys of so many sorted ones are sorted among them.
const PART: usize = 8;
/// So few fresh keys are left where they are.
const FEW: usize = 4096;

/// One row, by its number among those of all files.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: [u8; WIDTH],
    row: u32,
}

/// Neighbouring rows of a file.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// The number of the first of them, and of the first one behind them.
    start: u32,
    end: u32,
    file: u32,
    /// Which row of its file the first one is.
    first: u32,
}

/// Finds the file of a row, and which of its rows it is.
fn place(spans: &[Span], row: u32) -> (u32, u32) {
    let span = spans[position(spans, row)];
    (span.file, (row & !FAILED) - span.start + span.first)
}

fn position(spans: &[Span], row: u32) -> usize {
    spans.partition_point(|it| it.end <= row & !FAILED)
}

/// A file: of two rows with one key, each reader takes the same by its name and times.
#[derive(Debug, Default)]
struct File {
    name: String,
    /// The time of rows, from the row on that it begins with: those of a commit have one.
    times: Vec<(u32, i64)>,
}

impl File {
    fn at(&self, row: u32) -> i64 {
        let behind = self.times.partition_point(|(first, _)| *first <= row);
        behind.checked_sub(1).map_or(i64::MIN, |it| self.times[it].1)
    }
}

/// Finds rows by their keys.
#[derive(Debug, Default)]
pub struct KeyTable {
    sorted: Vec<Entry>,
    fresh: Vec<Entry>,
    /// What was added, and not looked at yet.
    added: Vec<Entry>,
    /// Of all rows, by their numbers.
    spans: Vec<Span>,
    files: BTreeMap<u32, File>,
    takes_newest: bool,
}

impl KeyTable {
    /// Returns a table without keys.
    ///
    /// Of the rows with one key it finds a result before a failure, and then the oldest one; or the newest
    /// one, where old rows expire.
    pub fn new(takes_newest: bool) -> Self {
        Self { takes_newest, ..Self::default() }
    }

    /// Adds rows of a file, which [`settle`](Self::settle) lets be found.
    ///
    /// # Arguments
    ///
    /// * `file`: its number, which no other file has; `name` decides between rows of one time
    /// * `first`: the number of the first row; rows come in their order
    /// * `times`: of each row
    /// * `results`: whether a row has a result, or a failure; null for one that is not to be found
    pub fn add(
        &mut self,
        (file, name): (u32, &str),
        first: u32,
        keys: &FixedSizeBinaryArray,
        times: &Int64Array,
        results: &BooleanArray,
    ) {
        let known = self.files.entry(file).or_default();
        if known.name != name {
            name.clone_into(&mut known.name);
        }
        let start = self.spans.last().map_or(0, |it| it.end);
        let count = keys.len().min(times.len()).min(results.len());
        // More do not fit, and would take 32 GB.
        let end = u32::try_from(count).map_or(FAILED, |it| start.saturating_add(it).min(FAILED));
        for (row, index) in (start..end).zip(0..) {
            let (at, of_file) = (times.value(index), row - start + first);
            if known.times.last().is_none_or(|(_, last)| *last != at) {
                known.times.push((of_file, at));
            }
            if results.is_valid(index)
                && keys.is_valid(index)
                && let Some(key) = keys.value(index).first_chunk()
            {
                let row = if results.value(index) { row } else { row | FAILED };
                self.added.push(Entry { key: *key, row });
            }
        }
        let goes_on = |it: &&mut Span| it.file == file && it.first + (it.end - it.start) == first;
        match self.spans.last_mut().filter(goes_on) {
            Some(span) => span.end = end,
            None if start < end => self.spans.push(Span { start, end, file, first }),
            None => {}
        }
    }

    /// Lets what was added be found.
    pub fn settle(&mut self) {
        let mut added = std::mem::take(&mut self.added);
        if added.is_empty() {
            return;
        }
        let (files, spans) = (&self.files, &self.spans);
        let order = |a: &Entry, b: &Entry| order(files, spans, self.takes_newest, a, b);
        added.sort_unstable_by(|a, b| a.key.cmp(&b.key).then_with(|| order(a, b)));
        added.dedup_by_key(|it| it.key);
        added.retain(|it| {
            for found in [&mut self.sorted, &mut self.fresh] {
                if let Ok(at) = found.binary_search_by(|other| other.key.cmp(&it.key)) {
                    if order(it, &found[at]).is_lt() {
                        found[at] = *it;
                    }
                    return false;
                }
            }
            true
        });
        if self.sorted.is_empty() && self.fresh.is_empty() {
            added.shrink_to_fit();
            self.sorted = added;
            return;
        }
        self.fresh.append(&mut added);
        self.fresh.sort_unstable_by_key(|it| it.key);
        if self.fresh.len() > FEW + self.sorted.len() / PART {
            // A larger block is moved by the system, so that there are never two.
            self.sorted.reserve_exact(self.fresh.len());
            self.sorted.append(&mut self.fresh);
            self.sorted.sort_unstable_by_key(|it| it.key);
            self.fresh.shrink_to_fit();
        }
    }

    /// Leaves out the rows of files that are gone.
    pub fn forget(&mut self, files: &[u32]) {
        for file in files {
            self.files.remove(file);
        }
        // Those that stay get other numbers, so that these do not run out.
        let (before, mut end) = (std::mem::take(&mut self.spans), 0);
        let kept = before.iter().map(|it| {
            let start = self.files.contains_key(&it.file).then_some(end)?;
            end += it.end - it.start;
            self.spans.push(Span { start, end, ..*it });
            Some(start)
        });
        let kept: Vec<Option<u32>> = kept.collect();
        for entries in [&mut self.sorted, &mut self.fresh, &mut self.added] {
            entries.retain_mut(|it| {
                let at = position(&before, it.row);
                let Some(start) = kept[at] else { return false };
                it.row = it.row - before[at].start + start;
                true
            });
        }
    }

    /// Returns where the row of each key is: the number of its file times 2^32, and the row in it. Null where no
    /// file has it.
    pub fn find(&self, keys: &FixedSizeBinaryArray) -> Int64Array {
        let found = (0..keys.len()).map(|index| {
            let key = keys.is_valid(index).then(|| keys.value(index).first_chunk::<WIDTH>())??;
            [&self.sorted, &self.fresh].into_iter().find_map(|entries| {
                let at = entries.binary_search_by(|it| it.key.cmp(key)).ok()?;
                let (file, row) = place(&self.spans, entries[at].row);
                Some(i64::from(file) << 32 | i64::from(row))
            })
        });
        found.collect()
    }

    /// Returns how many keys there are.
    pub fn len(&self) -> usize {
        self.sorted.len() + self.fresh.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns what the keys take, in bytes.
    pub fn size(&self) -> usize {
        let times = self.files.values().map(|it| it.times.capacity()).sum::<usize>();
        (self.sorted.capacity() + self.fresh.capacity()) * size_of::<Entry>()
            + times * size_of::<(u32, i64)>()
    }
}

/// Compares two rows of one key; the lesser one is found.
fn order(
    files: &BTreeMap<u32, File>,
    spans: &[Span],
    newest: bool,
    a: &Entry,
    b: &Entry,
) -> Ordering {
    let of = |it: &Entry| {
        let (file, row) = place(spans, it.row);
        let known = files.get(&file);
        let (at, name) = known.map_or((i64::MIN, ""), |file| (file.at(row), &file.name));
        (it.row & FAILED, at, name, row)
    };
    let ((failed, at, name, row), (other_failed, other_at, other_name, other_row)) = (of(a), of(b));
    let by_time = if newest { other_at.cmp(&at) } else { at.cmp(&other_at) };
    let by_kind = failed.cmp(&other_failed).then(by_time);
    by_kind.then_with(|| name.cmp(other_name)).then_with(|| row.cmp(&other_row))
}

#[cfg(test)]
mod tests;
