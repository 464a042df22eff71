// SPDX-License-Identifier: Apache-2.0
//! One of the parts into which a limit is split, held by one operator at a time.
//!
//! What is left of a part is in the page, where the next one that holds it finds
//! it: a task that begins brings no burst of its own. Who holds it is said by the
//! lock of a file, which the kernel takes from a process that was killed.
//!
//! ```text
//!   limits-3f..             the page: a word for each part
//!   limits-3f..-8a..-0      locked: part 0 of limit 8a.. is held
//!   limits-3f..-8a..-1      free
//! ```

use std::fs::{File, OpenOptions};
use std::num::NonZeroU64;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::{io, process};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::shared_page::PageError;

/// A part that no other operator of the host has, unless there are more of them than parts.
#[derive(Debug)]
pub struct HeldPart {
    number: u64,
    /// Given back when it is dropped.
    _lock: Option<File>,
}

impl HeldPart {
    /// Takes the first of `count` parts of `limit` that nobody holds.
    ///
    /// If all are held, one is shared: together they are never more than the limit.
    ///
    /// # Errors
    ///
    /// [`PageError::Io`]: a file beside `page` cannot be made or locked.
    pub fn take(page: &Path, limit: NonZeroU64, count: NonZeroU64) -> Result<Self, PageError> {
        for number in 0..count.get() {
            let path = lock_of(page, limit, number);
            if let Some(lock) = lock(&path).map_err(|error| PageError::Io { path, error })? {
                return Ok(Self { number, _lock: Some(lock) });
            }
        }
        Ok(Self { number: u64::from(process::id()) % count, _lock: None })
    }

    /// Returns which of them it is, from 0.
    pub fn number(&self) -> u64 {
        self.number
    }
}

fn lock_of(page: &Path, limit: NonZeroU64, number: u64) -> PathBuf {
    let mut path = page.as_os_str().to_owned();
    path.push(format!("-{limit:016x}-{number}"));
    PathBuf::from(path)
}

/// Locks the file at `path`, which it makes if there is none; `None` if somebody else has done so.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
