// SPDX-License-Identifier: Apache-2.0
//! One of the parts into which a limit is split, held by one process at a time.
//!
//! What is left of a part is in the page, where the next one that holds it finds it: a task that
//! begins brings no burst of its own. The lock of a file shows who holds it; the kernel takes it
//! from a process that was killed.
//!
//! ```text
//!   limits-3f..             the page: a word for each part
//!   limits-3f..-8a..-0      locked: part 0 of limit 8a.. is held
//!   limits-3f..-8a..-1      free
//!   limits-3f..-8a..-door   locked by who looks for a part
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::num::NonZeroU64;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::{fmt, io, process};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::shared_page::PageError;

/// Who takes parts of a limit.
#[derive(Clone, Copy, Debug)]
pub struct Holder {
    /// Into how many parts the limit is split.
    pub parts: NonZeroU64,
    /// What is the same for processes that have some of the parts together: those of an executor.
    pub executor: u64,
    /// How many of them they have at most; the others are for other executors, on other hosts too.
    pub held: NonZeroU64,
}

/// A part that no other process of the host has, unless there are more of them than parts.
#[derive(Debug)]
pub struct HeldPart {
    number: u64,
    /// Given back when it is dropped; another operator of this process may have it.
    _lock: Option<File>,
}

impl HeldPart {
    /// Takes the part of `limit` that this process has, or the first that nobody holds.
    ///
    /// Who holds one writes so into the file that it locks. If its executor holds as many as it may,
    /// one of those is shared: together the parts are never more than the limit.
    ///
    /// # Errors
    ///
    /// [`PageError::Io`]: a file beside `page` cannot be made or locked.
    pub fn take(page: &Path, limit: NonZeroU64, holder: &Holder) -> Result<Self, PageError> {
        let io = |path: &Path, error| PageError::Io { path: path.to_owned(), error };
        // One process after the other, or two would take what is left for one.
        let door = lock_of(page, limit, "door");
        let _door = open(&door)
            .and_then(|file| {
                flock(&file, FlockOperation::LockExclusive).map(|()| file).map_err(Into::into)
            })
            .map_err(|error| io(&door, error))?;
        let process = process::id();
        let (mut free, mut held) = (None, Vec::new());
        for number in 0..holder.parts.get() {
            let path = lock_of(page, limit, number);
            if free.is_some() && !path.exists() {
                continue;
            }
            let file = open(&path).map_err(|error| io(&path, error))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => free = free.or(Some((number, path, file))),
                Err(Errno::WOULDBLOCK) => {
                    let owner = fs::read_to_string(&path).map_err(|error| io(&path, error))?;
                    if owner == owner_of(holder.executor, process) {
                        return Ok(Self { number, _lock: None });
                    }
                    if owner.starts_with(&owner_of(holder.executor, "")) {
                        held.push(number);
                    }
                }
                Err(error) => return Err(io(&path, error.into())),
            }
        }
        match free {
            Some((number, path, file)) if (held.len() as u64) < holder.held.get() => {
                let owner = owner_of(holder.executor, process);
                let written = file.set_len(0).and_then(|()| (&file).write_all(owner.as_bytes()));
                written.map_err(|error| io(&path, error))?;
                Ok(Self { number, _lock: Some(file) })
            }
            _ => {
                let shared = held.get(process as usize % held.len().max(1)).copied();
                Ok(Self { number: shared.unwrap_or_default(), _lock: None })
            }
        }
    }

    /// Returns which of them it is, from 0.
    pub fn number(&self) -> u64 {
        self.number
    }
}

fn lock_of(page: &Path, limit: NonZeroU64, name: impl fmt::Display) -> PathBuf {
    let mut path = page.as_os_str().to_owned();
    path.push(format!("-{limit:016x}-{name}"));
    PathBuf::from(path)
}

/// What the process of an executor writes into the file of its part.
fn owner_of(executor: u64, process: impl fmt::Display) -> String {
    format!("{executor:016x} {process}")
}

/// Opens a file, which is made if there is none.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}
