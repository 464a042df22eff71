// SPDX-License-Identifier: Apache-2.0
//! The bounded hand-over of input from another thread.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::batch_codec::BatchCodec;
use crate::mail::{TaskInbox, TaskMail};
use crate::part::Patience;

/// Hands batches of input to a task; blocks while enough of them wait there.
///
/// Reading ahead overlaps the transfer of input with the calls of the rows
/// before it.
pub struct Feeder<X: BatchCodec> {
    inbox: TaskInbox<X>,
    read_ahead: Arc<ReadAhead>,
}

impl<X: BatchCodec> Feeder<X> {
    pub(crate) fn new(inbox: TaskInbox<X>, read_ahead: Arc<ReadAhead>) -> Self {
        Self { inbox, read_ahead }
    }

    /// Hands over one batch, after waiting for a place if need be.
    ///
    /// Returns whether the task wants more; it does not once it has ended.
    pub fn put(&self, input: X::Input) -> bool {
        self.read_ahead.acquire() && self.inbox.put(TaskMail::Input(input))
    }

    /// Does as [`put`](Self::put), but gives the batch back if there is no place within `timeout`.
    ///
    /// # Errors
    ///
    /// The batch.
    pub fn put_within(&self, input: X::Input, timeout: Duration) -> Result<bool, X::Input> {
        match self.read_ahead.acquire_within(timeout) {
            Some(is_wanted) => Ok(is_wanted && self.inbox.put(TaskMail::Input(input))),
            None => Err(input),
        }
    }

    /// Tells the task that no batch will follow.
    pub fn put_end(&self) {
        self.inbox.put(TaskMail::EndOfInput);
    }

    /// Tells the task that a part of the input has ended, and others will follow; see
    /// [`Driver::has_part_ended`](crate::Driver::has_part_ended).
    pub fn put_end_of_part(&self, patience: Patience) {
        self.inbox.put(TaskMail::EndOfPart(patience));
    }

    /// Fails the task, because the input could not be read or the function not be opened.
    pub fn put_failure(&self, error: X::Error) {
        self.inbox.put(TaskMail::Failed(error));
    }
}

impl<X: BatchCodec> Clone for Feeder<X> {
    fn clone(&self) -> Self {
        Self { inbox: self.inbox.clone(), read_ahead: Arc::clone(&self.read_ahead) }
    }
}

sparkawait_core::opaque_debug!([X: BatchCodec] Feeder<X>, read_ahead: read_ahead);

/// Counts the batches that may still be handed over.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    state: Mutex<State>,
    condvar: Condvar,
}

#[derive(Debug)]
struct State {
    /// Batches that may be handed over now.
    free: usize,
    /// Whether the task has ended.
    is_closed: bool,
}

impl ReadAhead {
    /// Permits `batches` to wait at the task.
    pub(crate) fn new(batches: usize) -> Self {
        let state = State { free: batches, is_closed: false };
        Self { state: Mutex::new(state), condvar: Condvar::new() }
    }

    /// Takes a place, after waiting for one; returns false once closed.
    fn acquire(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self
            .condvar
            .wait_while(state, |state| state.free == 0 && !state.is_closed)
            .unwrap_or_else(PoisonError::into_inner);
        if state.is_closed {
            return false;
        }
        state.free -= 1;
        true
    }

    /// Takes a place, after waiting for one for `timeout` at most; returns false once closed.
    fn acquire_within(&self, timeout: Duration) -> Option<bool> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut state, _) = self
            .condvar
            .wait_timeout_while(state, timeout, |state| state.free == 0 && !state.is_closed)
            .unwrap_or_else(PoisonError::into_inner);
        if state.is_closed {
            return Some(false);
        }
        state.free = state.free.checked_sub(1)?;
        Some(true)
    }

    /// Gives a place back.
    pub(crate) fn release(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).free += 1;
        self.condvar.notify_one();
    }

    /// Ends all waiting, now and later.
    pub(crate) fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_closed = true;
        self.condvar.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_task_takes_no_more_batches() {
        let read_ahead = ReadAhead::new(2);
        assert!(read_ahead.acquire());

        read_ahead.close();

        assert!(!read_ahead.acquire());
    }

    #[test]
    fn there_is_no_place_as_long_as_none_is_given_back() {
        let read_ahead = ReadAhead::new(1);
        let at_once = Duration::ZERO;

        assert_eq!([(); 2].map(|()| read_ahead.acquire_within(at_once)), [Some(true), None]);

        read_ahead.release();
        assert_eq!(read_ahead.acquire_within(at_once), Some(true));
        read_ahead.close();
        assert_eq!(read_ahead.acquire_within(at_once), Some(false));
    }

    #[test]
    fn a_consumed_batch_frees_its_place() {
        let read_ahead = ReadAhead::new(1);
        assert!(read_ahead.acquire());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| read_ahead.acquire());
            read_ahead.release();
            assert!(waiting.join().unwrap());
        });
    }
}
