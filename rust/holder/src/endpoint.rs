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
//! something random that only the state of the stream tells, and a notice beside the socket.

use std::io::{self, ErrorKind as IoKind};
use std::os::unix::net::UnixListener;
use std::path::Path;

mod folder;
mod inbox;
mod link;
mod messages;
mod notice;
mod remote;
mod served;
mod socket;

pub use messages::Address;
pub use notice::Notice;
pub use remote::{Answer, Bundle, RemoteTask, StepError};

use crate::random::random;
use folder::{SOCKET, folder};
use link::Link;
use served::serve;
use socket::{accept, connect};

/// Old sockets and notices that are looked at.
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
    let name = format!("{}-{number:08x}.{SOCKET}", std::process::id());
    let path = folder.join(name);
    let listener = UnixListener::bind(&path)?;
    let token = random()?;
    std::thread::Builder::new().name("sparkawait-listener".to_owned()).spawn(move || {
        // What cannot be served is lost to the other end, which knows what to do.
        let start = |stream| drop(Link::start(stream, token, Some(serve), None));
        accept(listener.incoming(), start, std::thread::sleep);
    })?;
    Ok(Address { path: path.to_string_lossy().into_owned(), token })
}

#[expect(clippy::needless_pass_by_value, reason = "for `is_err_and`")]
fn is_refused(error: io::Error) -> bool {
    error.kind() == IoKind::ConnectionRefused
}

/// Removes sockets that nobody listens at any more, and notices that lead to such.
fn remove_old(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten().take(MOST_OLD) {
        let path = entry.path();
        let ends_with = |ending: &str| path.extension().is_some_and(|it| it == ending);
        // A file that is something else refuses connections, too.
        if ends_with(notice::EXTENSION) {
            notice::remove_old(&path);
        } else if ends_with(SOCKET) && connect(&path).is_err_and(is_refused) {
            #[expect(clippy::let_underscore_must_use, reason = "somebody else may have removed it")]
            let _ = std::fs::remove_file(&path);
        }
    }
}
