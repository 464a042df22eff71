// SPDX-License-Identifier: Apache-2.0
//! The folder in which processes of a user find one another.

use std::io::{self, ErrorKind as IoKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The longest path of a socket, with the zero behind it.
const MOST_PATH: usize = 107;

/// Returns the folder of all sockets and notices of this user, which nobody else can look into.
pub(super) fn folder() -> io::Result<PathBuf> {
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
