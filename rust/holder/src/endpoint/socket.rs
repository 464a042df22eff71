// SPDX-License-Identifier: Apache-2.0
//! Sockets that nobody waits at for long: neither where a process stands still, nor where this one
//! has no descriptor left.

use std::io::{self, ErrorKind as IoKind};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::{FdFlags, fcntl_setfd, ioctl_fionbio};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

/// How long is waited before something is tried again that is short.
const PAUSE: Duration = Duration::from_millis(50);

/// Connects to a socket at once.
///
/// # Errors
///
/// [`WouldBlock`](IoKind::WouldBlock): others wait to be taken there, and no more may.
/// [`ConnectionRefused`](IoKind::ConnectionRefused): nobody listens.
pub(super) fn connect(path: &Path) -> io::Result<UnixStream> {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    ioctl_fionbio(&socket, true)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// Connects to a socket, at the latest after `timeout`.
///
/// # Errors
///
/// As [`connect`].
pub(super) fn connect_within(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let until = Instant::now() + timeout;
    loop {
        match connect(path) {
            Err(error) if error.kind() == IoKind::WouldBlock && Instant::now() < until => {
                std::thread::sleep(PAUSE);
            }
            tried => return tried,
        }
    }
}

/// Gives each connection that comes to `serve`, as long as there are some.
///
/// One that cannot be taken, since no descriptor or memory is left, stays in line, and would be
/// tried again at once, for ever.
pub(super) fn accept(
    incoming: impl Iterator<Item = io::Result<UnixStream>>,
    serve: impl Fn(UnixStream),
    pause: impl Fn(Duration),
) {
    let mut is_told = false;
    for stream in incoming {
        match stream {
            Ok(stream) => serve(stream),
            Err(error) => {
                if !is_told {
                    tracing::warn!(
                        %error,
                        "micro-batches in other processes cannot ask for the rows in flight of this one"
                    );
                }
                is_told = true;
                pause(PAUSE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::random::random;

    #[test]
    fn what_cannot_be_taken_is_tried_again_after_a_pause() {
        let (pauses, served) = (Cell::new(0), Cell::new(0));
        let short = || Err(io::Error::from_raw_os_error(24));
        let incoming = [short(), short(), Ok(UnixStream::pair().unwrap().0), short()];

        accept(
            incoming.into_iter(),
            |_| served.set(served.get() + 1),
            |pause| {
                assert_eq!(pause, PAUSE);
                pauses.set(pauses.get() + 1);
            },
        );

        assert_eq!((pauses.get(), served.get()), (3, 1));
    }

    #[test]
    fn nobody_waits_for_a_process_that_stands_still() {
        let number = u64::from_le_bytes(random().unwrap());
        let path = std::env::temp_dir().join(format!("sparkawait-{number:016x}.sock"));
        let listener = UnixListener::bind(&path).unwrap();
        // As many as wait to be taken by somebody who takes none.
        let mut waiting = Vec::new();
        let full = loop {
            match connect(&path) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
        };

        assert_eq!(full.kind(), IoKind::WouldBlock);
        let error = connect_within(&path, Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), IoKind::WouldBlock);
        drop(listener);
        assert_eq!(connect(&path).unwrap_err().kind(), IoKind::ConnectionRefused);
        std::fs::remove_file(&path).unwrap();
    }
}
