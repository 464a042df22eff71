// SPDX-License-Identifier: Apache-2.0
//! Where the rows are that have some keys: 24 bytes for each, in files that are known by a number.
//!
//! ```text
//!   sorted: all keys but few        fresh: those of the last files, sorted, none of them in `sorted`
//!   [key 16 | file 4 | row 4] ..    [key 16 | file 4 | row 4] ..
//! ```
//!
//! Keys are what [`content_keys`](crate::content_keys) makes of rows. Who reads the files has a table for a
//! process, and its threads take turns.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use arrow::array::{Array, BooleanArray, FixedSizeBinaryArray, Int64Array};

/// Bytes of a key.
const WIDTH: usize = 16;
/// Set in the row of a failure.
const FAILED: u32 = 1 << 31;
/// Fresh keys of so many sorted ones are sorted among them.
const PART: usize = 8;
/// So few fresh keys are left where they are.
const FEW: usize = 4096;

/// One row of a file.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: [u8; WIDTH],
    file: u32,
    row: u32,
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
        for (row, index) in (first..FAILED).zip(0..keys.len().min(times.len()).min(results.len())) {
            let at = times.value(index);
            if known.times.last().is_none_or(|(_, last)| *last != at) {
                known.times.push((row, at));
            }
            if results.is_valid(index)
                && keys.is_valid(index)
                && let Ok(key) = keys.value(index).try_into()
            {
                let row = if results.value(index) { row } else { row | FAILED };
                self.added.push(Entry { key, file, row });
            }
        }
    }

    /// Lets what was added be found.
    pub fn settle(&mut self) {
        let mut added = std::mem::take(&mut self.added);
        if added.is_empty() {
            return;
        }
        let (files, newest) = (std::mem::take(&mut self.files), self.takes_newest);
        added.sort_unstable_by(|a, b| a.key.cmp(&b.key).then_with(|| order(&files, newest, a, b)));
        added.dedup_by_key(|it| it.key);
        added.retain(|it| {
            for found in [&mut self.sorted, &mut self.fresh] {
                if let Ok(at) = found.binary_search_by(|other| other.key.cmp(&it.key)) {
                    if order(&files, newest, it, &found[at]).is_lt() {
                        found[at] = *it;
                    }
                    return false;
                }
            }
            true
        });
        self.files = files;
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
        for entries in [&mut self.sorted, &mut self.fresh, &mut self.added] {
            entries.retain(|it| self.files.contains_key(&it.file));
        }
    }

    /// Returns where the row of each key is: the number of its file times 2^32, and the row in it. Null where no
    /// file has it.
    pub fn find(&self, keys: &FixedSizeBinaryArray) -> Int64Array {
        let found = (0..keys.len()).map(|index| {
            let key = keys.is_valid(index).then(|| keys.value(index))?;
            [&self.sorted, &self.fresh].into_iter().find_map(|entries| {
                let at = entries.binary_search_by(|it| it.key.as_slice().cmp(key)).ok()?;
                let Entry { file, row, .. } = entries[at];
                Some(i64::from(file) << 32 | i64::from(row & !FAILED))
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
fn order(files: &BTreeMap<u32, File>, newest: bool, a: &Entry, b: &Entry) -> Ordering {
    let of = |it: &Entry| {
        let file = files.get(&it.file);
        let (at, name) =
            file.map_or((i64::MIN, ""), |file| (file.at(it.row & !FAILED), &file.name));
        (it.row & FAILED, at, name)
    };
    let ((failed, at, name), (other_failed, other_at, other_name)) = (of(a), of(b));
    let by_time = if newest { other_at.cmp(&at) } else { at.cmp(&other_at) };
    let by_kind = failed.cmp(&other_failed).then(by_time);
    by_kind.then_with(|| name.cmp(other_name)).then_with(|| a.row.cmp(&b.row))
}

#[cfg(test)]
mod tests;
