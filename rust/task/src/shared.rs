// SPDX-License-Identifier: Apache-2.0
//! What all tasks of a process share: connections, pools, caches.

use std::any::Any;
use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::process;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;

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

impl Default for Shared {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys may hold addresses with passwords.
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

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
    fn what_could_not_be_made_is_tried_again() {
        let shared = Shared::new();

        assert_eq!(shared.get_or_make("a", || Err::<i32, _>("no")), Err("no"));
        assert_eq!(shared.get_or_make("a", || Ok::<_, ()>(1)).map(|it| *it), Ok(1));
    }
}
