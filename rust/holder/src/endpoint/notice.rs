// SPDX-License-Identifier: Apache-2.0
//! Where a task is that no state tells of yet.
//!
//! The state before a step cannot name the task that the step makes. A process of the host that
//! carries the step out again finds the task by the step's name:
//!
//! ```text
//!   <folder of the sockets>/<checksum of the step's name>.task
//!   "SAWN"  version: u16  step: bytes  task: 16 bytes  token: 16 bytes  path of a socket: bytes
//! ```

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use bytes::Buf;

use super::folder::folder;
use super::messages::Address;
use crate::reader::{array, put_bytes, text};
use crate::state::{TaskId, checksum};

const MAGIC: [u8; 4] = *b"SAWN";
const VERSION: u16 = 1;

/// What names of notices end with.
pub(super) const EXTENSION: &str = "task";

/// Tells all processes of the host where the task of a step is, as long as it lives.
#[derive(Debug)]
pub struct Notice {
    path: PathBuf,
    task: TaskId,
    process_id: u32,
}

impl Notice {
    /// Tells that a step has made a task. An earlier notice of the same step is replaced.
    ///
    /// # Errors
    ///
    /// The folder is not the user's alone, or the file cannot be written.
    pub fn post(step: &str, task: TaskId, address: &Address) -> io::Result<Self> {
        let path = path_of(&folder()?, step);
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        // At once, so that a reader has all or nothing of it.
        file.write_all(&encode(step, task, address))?;
        Ok(Self { path, task, process_id: std::process::id() })
    }

    /// Returns the task that a step has made, if it was told of and the file is whole.
    pub fn find(step: &str) -> Option<(TaskId, Address)> {
        let found = read(&path_of(&folder().ok()?, step))?;
        (found.step == step).then_some((found.task, found.address))
    }
}

impl Drop for Notice {
    fn drop(&mut self) {
        let is_ours = || read(&self.path).is_some_and(|it| it.task == self.task);
        if self.process_id == std::process::id() && is_ours() {
            #[expect(
                clippy::let_underscore_must_use,
                reason = "who finds it all the same finds nobody where it leads"
            )]
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes a notice whose process has ended.
pub(super) fn remove_old(path: &Path) {
    if read(path).is_none_or(|it| !Path::new(&it.address.path).exists()) {
        #[expect(clippy::let_underscore_must_use, reason = "somebody else may have removed it")]
        let _ = fs::remove_file(path);
    }
}

fn path_of(folder: &Path, step: &str) -> PathBuf {
    folder.join(format!("{:016x}.{EXTENSION}", checksum(step.as_bytes())))
}

struct Found {
    step: String,
    task: TaskId,
    address: Address,
}

fn read(path: &Path) -> Option<Found> {
    decode(&fs::read(path).ok()?)
}

fn encode(step: &str, task: TaskId, address: &Address) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(MAGIC);
    out.extend(VERSION.to_le_bytes());
    put_bytes(&mut out, step.as_bytes());
    out.extend(task.0);
    out.extend(address.token);
    put_bytes(&mut out, address.path.as_bytes());
    out
}

fn decode(bytes: &[u8]) -> Option<Found> {
    let mut rest = bytes;
    let is_known = array(&mut rest) == Some(MAGIC) && rest.try_get_u16_le() == Ok(VERSION);
    let step = text(&mut rest)?;
    let (task, token) = (TaskId(array(&mut rest)?), array(&mut rest)?);
    let path = text(&mut rest)?;
    let found = Found { step, task, address: Address { path, token } };
    (is_known && rest.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place that is there, so that no other test removes what leads to it.
    fn address() -> Address {
        Address { path: "/".to_owned(), token: [4; 16] }
    }

    #[test]
    fn notice_is_found_by_its_step_until_its_task_is_gone() {
        let [step, other] =
            ["step", "other"].map(|it| format!("{it} of process {}", std::process::id()));
        let first = Notice::post(&step, TaskId([1; 16]), &address()).unwrap();
        let second = Notice::post(&step, TaskId([2; 16]), &address()).unwrap();

        drop(first);

        let (task, found) = Notice::find(&step).unwrap();
        assert_eq!((task, found.path, found.token), (TaskId([2; 16]), address().path, [4; 16]));
        assert!(Notice::find(&other).is_none());
        drop(second);
        assert!(Notice::find(&step).is_none());
    }

    #[test]
    fn notice_of_a_process_that_has_ended_is_removed() {
        let step = format!("old step of process {}", std::process::id());
        let gone = Address { path: "/gone.sock".to_owned(), ..address() };
        let notice = Notice::post(&step, TaskId([1; 16]), &gone).unwrap();

        remove_old(&notice.path);

        assert!(!notice.path.exists());
    }

    #[test]
    fn notice_is_read_whole_or_not_at_all() {
        let bytes = encode("step", TaskId([3; 16]), &address());
        assert_eq!(decode(&bytes).unwrap().step, "step");
        assert!((0..bytes.len()).all(|end| decode(&bytes[..end]).is_none()));
        assert!(decode(&[bytes.as_slice(), &[0]].concat()).is_none());
        for position in 0..6 {
            let mut other = bytes.clone();
            other[position] ^= 1;
            assert!(decode(&other).is_none(), "byte {position}");
        }
    }
}
