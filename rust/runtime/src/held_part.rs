// SPDX-License-Identifier: Apache-2.0
//! One of the parts into which a limit is split, held by one process at a time.
//!
//! What is left of a part is in the page, where the next one that holds it finds it: a task that
//! begins brings no burst of its own. The lock of a file shows who holds it; the kernel takes it
//! from a process that was killed. A process that it has forked inherits the lock, and keeps it, but
//! not the part: the file names the process that has that, and it is free when that one is gone.
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
use rustix::process::{Pid, test_kill_process};

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
        let this = Owner::this(holder.executor);
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
                    let owner = Owner::read(&owner);
                    if owner.as_ref() == Some(&this) {
                        return Ok(Self { number, _lock: None });
                    }
                    if owner.as_ref().is_some_and(|it| it.is_gone(&this)) {
                        // A lock belongs to a file: a new one has none.
                        let file = locked_anew(&path).map_err(|error| io(&path, error))?;
                        free = free.or(Some((number, path, file)));
                    } else if owner.is_some_and(|it| it.executor == holder.executor) {
                        held.push(number);
                    }
                }
                Err(error) => return Err(io(&path, error.into())),
            }
        }
        match free {
            Some((number, path, file)) if (held.len() as u64) < holder.held.get() => {
                let owner = this.to_string();
                let written = file.set_len(0).and_then(|()| (&file).write_all(owner.as_bytes()));
                written.map_err(|error| io(&path, error))?;
                Ok(Self { number, _lock: Some(file) })
            }
            _ => {
                let shared = held.get(process::id() as usize % held.len().max(1)).copied();
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

/// Who has a part, as its file says.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    executor: u64,
    process: u32,
    /// Where that number names a process: containers that share a folder count their own.
    namespace: String,
}

impl Owner {
    /// This process.
    fn this(executor: u64) -> Self {
        let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let namespace = namespace.to_string_lossy().into_owned();
        Self { executor, process: process::id(), namespace }
    }

    fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let executor = u64::from_str_radix(words.next()?, 16).ok()?;
        let (process, namespace) = (words.next()?.parse().ok()?, words.next()?.to_owned());
        Some(Self { executor, process, namespace })
    }

    /// Returns whether the process is known to have ended.
    fn is_gone(&self, this: &Self) -> bool {
        let id = i32::try_from(self.process).ok().and_then(Pid::from_raw);
        self.namespace == this.namespace
            && id.is_some_and(|id| test_kill_process(id) == Err(Errno::SRCH))
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { executor, process, namespace } = self;
        write!(f, "{executor:016x} {process} {namespace}")
    }
}

/// Replaces a file whose lock is nobody's by a new one, and locks that.
fn locked_anew(path: &Path) -> io::Result<File> {
    fs::remove_file(path)?;
    let file = open(path)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Opens a file, which is made if there is none.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}
