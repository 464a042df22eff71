// SPDX-License-Identifier: Apache-2.0
//! What all tasks of a process share: connections, pools, caches.
//!
//! | made by | lives as long as |
//! |---|---|
//! | [`Shared::get_or_make`] | the process |
//! | [`Lender::lend`] | somebody has it, and a minute longer |

use std::any::Any;
use std::collections::HashMap;
use std::convert::Infallible;
use std::ops::Deref;
use std::process;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use crate::supervision::spawn_aside;

/// Things that are made once per process and key, and live as long as it does.
///
/// A forked child sees an empty map: connections of the parent are served by
/// threads that it does not have. The map is swapped and never locked across a
/// fork's boundary, because a lock that another thread holds at that moment
/// stays locked in the child for ever.
pub struct Shared {
    current: ArcSwapOption<ProcessMap>,
}

struct ProcessMap {
    process_id: u32,
    values: Mutex<HashMap<String, Arc<dyn Any + Send + Sync>>>,
}

impl Shared {
    /// Makes an empty map, for a `static`.
    #[must_use]
    pub const fn new() -> Self {
        Self { current: ArcSwapOption::const_empty() }
    }

    /// Returns what was made for `key`, or makes it; one thread at a time makes something.
    ///
    /// A value of another type under the same key is replaced.
    ///
    /// # Errors
    ///
    /// What `make` failed with; nothing is kept then.
    pub fn get_or_make<T: Send + Sync + 'static, E>(
        &self,
        key: &str,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let map = self.of_this_process();
        let mut values = map.values.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = values.get(key).cloned().and_then(|it| it.downcast::<T>().ok()) {
            return Ok(found);
        }
        let value = Arc::new(make()?);
        values.insert(key.to_owned(), Arc::clone(&value) as Arc<dyn Any + Send + Sync>);
        Ok(value)
    }

    /// Returns the one value of a type that this process has, made as its default.
    pub fn of_process<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        self.get_or_make("", || Ok::<_, Infallible>(T::default())).unwrap_or_else(|it| match it {})
    }

    fn of_this_process(&self) -> Arc<ProcessMap> {
        let process_id = process::id();
        loop {
            let current = self.current.load_full();
            if let Some(map) = current.as_ref().filter(|it| it.process_id == process_id) {
                return Arc::clone(map);
            }
            let fresh = Arc::new(ProcessMap { process_id, values: Mutex::default() });
            let previous = self.current.compare_and_swap(&current, Some(fresh));
            // Not dropped: what a parent made has threads that do not exist here.
            std::mem::forget(arc_swap::Guard::into_inner(previous));
        }
    }
}

/// How long something is kept that nobody has: the next task mostly comes soon.
const KEPT: Duration = Duration::from_secs(60);

/// Things that are made once per process and key, and are let go a minute after the last who had them
/// did so.
#[derive(Debug)]
pub struct Lender(Shared);

/// What was lent, and when somebody gave it back last.
struct Kept<T> {
    value: T,
    /// The process that has made it; a forked child has a copy of it, and no part in it.
    process_id: u32,
    returned: Mutex<Option<Instant>>,
    runtime: Handle,
}

/// The use of something that was lent; dropping it gives it back.
pub struct Lent<T: Send + Sync + 'static>(Arc<Kept<T>>);

impl Lender {
    /// Makes an empty one, for a `static`.
    #[must_use]
    pub const fn new() -> Self {
        Self(Shared::new())
    }

    /// Returns what was made for `key`, or makes it; one thread at a time makes something.
    ///
    /// # Errors
    ///
    /// What `make` failed with; nothing is kept then.
    pub fn lend<T: Send + Sync + 'static, E>(
        &self,
        key: &str,
        runtime: &Handle,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Lent<T>, E> {
        let all = self.0.of_process::<Mutex<HashMap<String, Weak<Kept<T>>>>>();
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = all.get(key).and_then(Weak::upgrade) {
            return Ok(Lent(found));
        }
        all.retain(|_, it| it.strong_count() > 0);
        let kept = Arc::new(Kept::new(make()?, runtime.clone(), process::id()));
        all.insert(key.to_owned(), Arc::downgrade(&kept));
        Ok(Lent(kept))
    }
}

impl<T> Kept<T> {
    fn new(value: T, runtime: Handle, process_id: u32) -> Self {
        Self { value, process_id, returned: Mutex::default(), runtime }
    }
}

impl Default for Lender {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send + Sync + 'static> Deref for Lent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T: Send + Sync + 'static> Drop for Lent<T> {
    fn drop(&mut self) {
        if self.0.process_id != process::id() {
            // The runtime has no threads here, a lock may be held for ever by one that it had, and
            // what was made is the parent's: to close a connection here would close its own.
            std::mem::forget(Arc::clone(&self.0));
            return;
        }
        let mut returned = self.0.returned.lock().unwrap_or_else(PoisonError::into_inner);
        let is_kept = returned.replace(Instant::now()).is_some();
        drop(returned);
        if !is_kept {
            let keeping = keep(Arc::clone(&self.0));
            spawn_aside(&self.0.runtime, "shared.kept", keeping);
        }
    }
}

/// Has something for a minute after it was given back last.
async fn keep<T>(kept: Arc<Kept<T>>) {
    loop {
        let rest = {
            let mut returned = kept.returned.lock().unwrap_or_else(PoisonError::into_inner);
            rest(&mut returned, Instant::now())
        };
        match rest {
            Some(rest) => sleep(rest).await,
            None => return,
        }
    }
}

/// Returns how long something is still kept that was returned then, if it is. Its next user keeps
/// it again.
fn rest(returned: &mut Option<Instant>, now: Instant) -> Option<Duration> {
    let since = now.saturating_duration_since(returned.unwrap_or(now));
    let rest = KEPT.checked_sub(since).filter(|it| !it.is_zero());
    if rest.is_none() {
        *returned = None;
    }
    rest
}

sparkawait_core::opaque_debug!([T: Send + Sync + 'static] Lent<T>);

impl Default for Shared {
    fn default() -> Self {
        Self::new()
    }
}

// Keys may hold addresses with passwords.
sparkawait_core::opaque_debug!(Shared);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_made_once_for_each_key() {
        let shared = Shared::new();
        let make = |value: i32| shared.get_or_make("a", || Ok::<_, ()>(value)).unwrap();

        assert_eq!((*make(1), *make(2)), (1, 1));
        assert_eq!(*shared.get_or_make("b", || Ok::<_, ()>(3)).unwrap(), 3);
    }

    #[test]
    fn what_was_given_back_is_kept_for_a_minute_after_the_last_time() {
        let start = Instant::now();
        let mut returned = Some(start);
        assert_eq!(rest(&mut returned, start), Some(KEPT));

        returned = Some(start + KEPT / 2);
        assert_eq!(rest(&mut returned, start + KEPT), Some(KEPT / 2));
        assert_eq!(rest(&mut returned, start + KEPT * 2), None);
        assert_eq!(returned, None, "who gives it back now keeps it again");
    }

    #[tokio::test]
    async fn what_is_lent_to_several_is_one_and_goes_with_who_keeps_it() {
        static NUMBERS: Lender = Lender::new();
        let runtime = Handle::current();
        let lend =
            |number: i32| NUMBERS.lend("a", &runtime, || Ok::<_, Infallible>(number)).unwrap();
        let (one, other) = (lend(1), lend(2));
        assert_eq!((*one, *other), (1, 1));
        drop((one, other));
        // Kept by a task of the runtime.
        assert_eq!(*lend(3), 1);
    }

    /// Tells when it is let go of.
    struct Told(Arc<Mutex<u32>>);

    impl Drop for Told {
        fn drop(&mut self) {
            *self.0.lock().unwrap() += 1;
        }
    }

    #[tokio::test]
    async fn a_forked_child_neither_keeps_what_its_parent_was_lent_nor_lets_go_of_it() {
        let (dropped, runtime) = (Arc::default(), Handle::current());
        let lent = |process_id| {
            Lent(Arc::new(Kept::new(Told(Arc::clone(&dropped)), runtime.clone(), process_id)))
        };
        let of_parent = lent(process::id() ^ 1);
        let _held_by_a_thread_of_the_parent = of_parent.0.returned.lock().unwrap();
        drop(Lent(Arc::clone(&of_parent.0)));
        assert_eq!(runtime.metrics().num_alive_tasks(), 0);
        drop(lent(process::id() ^ 1));
        assert_eq!((runtime.metrics().num_alive_tasks(), *dropped.lock().unwrap()), (0, 0));

        drop(lent(process::id()));
        assert_eq!(runtime.metrics().num_alive_tasks(), 1, "it is kept for a minute");
    }

    #[test]
    fn what_could_not_be_made_is_tried_again() {
        let shared = Shared::new();

        assert_eq!(shared.get_or_make("a", || Err::<i32, _>("no")), Err("no"));
        assert_eq!(shared.get_or_make("a", || Ok::<_, ()>(1)).map(|it| *it), Ok(1));
    }
}
