// SPDX-License-Identifier: Apache-2.0
//! Where sockets and notices are.

use std::io;
use std::path::{Path, PathBuf};

use sparkawait_runtime::private_folder::{MOST_NAME, make_private, private_folder};

/// In the private folder of this user, in which others keep other things.
const NAME: &str = "steps";

/// The longest path of a socket, with the zero behind it.
const MOST_PATH: usize = 107;

/// What names of sockets end with.
pub(super) const SOCKET: &str = "sock";

/// The most characters of a temporary folder: the others are `/`, the private folder, `/steps/`, a
/// process, `-`, eight digits and `.sock`.
const MOST_TEMPORARY: usize = MOST_PATH - (1 + MOST_NAME + 7 + 25);

/// Returns the folder of all sockets and notices of this user, which nobody else can look into.
pub(super) fn folder() -> io::Result<PathBuf> {
    let mut temporary = std::env::temp_dir();
    if temporary.as_os_str().len() > MOST_TEMPORARY {
        Path::new("/tmp").clone_into(&mut temporary);
    }
    let folder = private_folder(&temporary).map_err(io::Error::other)?.join(NAME);
    make_private(&folder).map_err(io::Error::other)?;
    Ok(folder)
}
