// SPDX-License-Identifier: Apache-2.0
//! The folder in which the processes of a user find one another, and nobody else looks.
//!
//! ```text
//!   <temporary folder>/sparkawait-<user>/    or ..-1, ..-2 where another user has taken the name
//!     limits-3f..                            pages of limits, and locks beside them
//!     steps/                                 sockets and notices of streams
//! ```

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The bits of a mode that permit something to others than the owner.
const OTHERS: u32 = 0o077;

/// Names that are tried: any user may make a folder where temporary files are.
const NAMES: u32 = 8;

/// The most characters that a name has.
pub const MOST_NAME: usize = "sparkawait-4294967295-7".len();

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// It cannot be made or looked at.
    #[error("the folder `{path}`, which processes of this host share, cannot be used: {error}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Others own it, or may look into it or write to it.
    #[error("`{0}` must belong to this user alone; remove it, or set TMPDIR to another directory")]
    NotPrivate(PathBuf),
}

/// Returns the folder of this user in `temporary`, which is made if there is none.
///
/// Where others have taken its name there is another one, the same for all processes: the first
/// that is there is found again.
///
/// # Errors
///
/// [`FolderError`]: nothing can be made in `temporary`, or others have taken all names.
pub fn private_folder(temporary: &Path) -> Result<PathBuf, FolderError> {
    let user = rustix::process::geteuid().as_raw();
    let folders = (0..NAMES).map(|number| {
        let ending = if number == 0 { String::new() } else { format!("-{number}") };
        temporary.join(format!("sparkawait-{user}{ending}"))
    });
    if let Some(own) = folders.clone().find(|it| fs::symlink_metadata(it).is_ok_and(is_private)) {
        return Ok(own);
    }
    let mut first = None;
    for folder in folders {
        match make_private(&folder) {
            Ok(()) => return Ok(folder),
            Err(error @ FolderError::Io { .. }) => return Err(error),
            Err(error @ FolderError::NotPrivate(_)) => drop(first.get_or_insert(error)),
        }
    }
    Err(first.unwrap_or_else(|| FolderError::NotPrivate(temporary.to_owned())))
}

/// Makes a folder that nobody else can look into, or checks that it is one.
///
/// # Errors
///
/// [`FolderError`]: it cannot be made, or is not this user's alone.
pub fn make_private(folder: &Path) -> Result<(), FolderError> {
    let io = |error| FolderError::Io { path: folder.to_owned(), error };
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(io(error)),
        _ => {}
    }
    // Not followed if it is a link: who made that may lead it elsewhere.
    if is_private(fs::symlink_metadata(folder).map_err(io)?) {
        return Ok(());
    }
    Err(FolderError::NotPrivate(folder.to_owned()))
}

#[expect(clippy::needless_pass_by_value, reason = "for `is_ok_and`")]
fn is_private(found: fs::Metadata) -> bool {
    let is_own = found.uid() == rustix::process::geteuid().as_raw();
    found.is_dir() && is_own && found.mode() & OTHERS == 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// A folder for temporary files, until the end of a test.
    struct Temporary(PathBuf);

    impl Temporary {
        fn new(test: &str) -> Self {
            let name = format!("sparkawait-folder-{test}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Temporary {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    /// Makes a folder as others could that have taken its name.
    fn take(folder: &Path) {
        fs::create_dir(folder).unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
    }

    #[test]
    fn a_name_that_others_have_taken_is_passed_over_and_the_folder_is_found_again() {
        let temporary = Temporary::new("taken");
        let user = rustix::process::geteuid().as_raw();
        let [first, second, third] =
            ["", "-1", "-2"].map(|ending| temporary.0.join(format!("sparkawait-{user}{ending}")));
        take(&first);
        symlink(std::env::temp_dir(), &second).unwrap();

        assert_eq!(private_folder(&temporary.0).unwrap(), third);
        assert_eq!(fs::metadata(&third).unwrap().mode() & 0o777, 0o700);
        // Processes that begin later use the folder of those that are there.
        fs::remove_dir(&first).unwrap();
        assert_eq!(private_folder(&temporary.0).unwrap(), third);
    }

    #[test]
    fn where_others_have_taken_all_names_the_first_is_told() {
        let temporary = Temporary::new("all-taken");
        let user = rustix::process::geteuid().as_raw();
        let first = temporary.0.join(format!("sparkawait-{user}"));
        take(&first);
        (1..NAMES).for_each(|it| take(&temporary.0.join(format!("sparkawait-{user}-{it}"))));

        let error = private_folder(&temporary.0).unwrap_err().to_string();

        assert!(error.contains(first.to_str().unwrap()), "{error}");
        assert!(error.contains("set TMPDIR to another directory"), "{error}");
    }

    #[test]
    fn no_name_is_longer_than_what_paths_of_sockets_leave_room_for() {
        assert_eq!(format!("sparkawait-{}-{}", u32::MAX, NAMES - 1).len(), MOST_NAME);
    }
}
