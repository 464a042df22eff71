// SPDX-License-Identifier: Apache-2.0
//! Steps of a task that is in another process of the host, over a Unix socket.
//!
//! Two processes have one connection for all steps of the one in tasks of the other. A step has two
//! channels of it (`sparkawait_wire`), so that one whose consumer is slow holds no other:
//!
//! ```text
//!   step                                    task
//!    | Open a: what a part comes to -------> |   Reset(a, not here), or
//!    | <------------- Open r: the part's rows |
//!    | Data(r, rows) .. Data(r, patience) -> |   as credits are added
//!    | End(r) -----------------------------> |   the part has ended
//!    | <- Data(a, outputs, operators, counts) |   as credits are added
//!    | <----------------------------- End(a) |   or Reset(a, why the task failed)
//! ```
//!
//! Sockets are in a folder that is its owner's alone; both ends look who the other one is, and say
//! something random that only the state of the stream tells.

use std::io::{self, ErrorKind as IoKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

mod inbox;
mod link;
mod messages;
mod remote;
mod served;

pub use messages::Address;
pub use remote::{Answer, RemoteTask, StepError};

use crate::random::random;
use link::Link;
use served::serve;

/// The longest path of a socket, with the zero behind it.
const MOST_PATH: usize = 107;

/// Old sockets that are looked at.
const MOST_OLD: usize = 256;

/// Listens for steps of tasks of this process, on a thread of its own.
///
/// # Errors
///
/// The folder is not the user's alone, or the socket cannot be made.
pub fn listen() -> io::Result<Address> {
    let folder = folder()?;
    remove_old(&folder);
    let number = u32::from_le_bytes(random()?);
    let name = format!("{}-{number:08x}.sock", std::process::id());
    let path = folder.join(name);
    let listener = UnixListener::bind(&path)?;
    let token = random()?;
    std::thread::Builder::new().name("sparkawait-listener".to_owned()).spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { continue };
            // What cannot be served is lost to the other end, which knows what to do.
            let _ = Link::start(stream, token, Some(serve), None);
        }
    })?;
    Ok(Address { path: path.to_string_lossy().into_owned(), token })
}

/// Returns the folder of all sockets of this user, which nobody else can look into.
fn folder() -> io::Result<PathBuf> {
    let uid = rustix::process::getuid().as_raw();
    let name = format!("sparkawait-{uid}");
    let mut folder = std::env::temp_dir().join(&name);
    // `-`, a process, eight digits and `.sock` follow.
    if folder.as_os_str().len() + 26 > MOST_PATH {
        folder = Path::new("/tmp").join(name);
    }
    match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != IoKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = std::fs::symlink_metadata(&folder)?;
    if !found.is_dir() || found.uid() != uid || found.mode() & 0o077 != 0 {
        let message = format!("{} is not this user's alone", folder.display());
        return Err(io::Error::new(IoKind::PermissionDenied, message));
    }
    Ok(folder)
}

/// Removes sockets that nobody listens at any more.
fn remove_old(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten().take(MOST_OLD) {
        let is_refused = |error: io::Error| error.kind() == IoKind::ConnectionRefused;
        if UnixStream::connect(entry.path()).is_err_and(is_refused) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
