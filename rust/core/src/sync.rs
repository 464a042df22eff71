// SPDX-License-Identifier: Apache-2.0
//! The primitives of shared state: of `std`, or of `loom` when it checks the interleavings.
//!
//! Only the two ends of a mailbox are shared between threads, [`Inbox`](crate::mailbox::Inbox) and
//! [`Outlet`](crate::mailbox::Outlet), so only the mailbox uses this module.

#[cfg(not(loom))]
mod primitives {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
    pub(crate) use std::sync::{Arc, Mutex, MutexGuard};
}

#[cfg(loom)]
mod primitives {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, Ordering};
    pub(crate) use loom::sync::{Arc, Mutex, MutexGuard};
}

use std::sync::PoisonError;

pub(crate) use primitives::{Arc, AtomicBool, AtomicU8, Mutex, Ordering};

/// Locks `mutex`, also after a panic: no critical section leaves its data half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> primitives::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
