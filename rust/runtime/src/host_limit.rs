// SPDX-License-Identifier: Apache-2.0
//! A limit in time that the processes of a host keep together.

use std::hash::{BuildHasher, Hash};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sparkawait_core::ProcessingTime;
use sparkawait_core::policy::Gcra;

use crate::clock::Clock;
use crate::shared_page::{PageError, SharedPage, Slot};

/// Returns where an application keeps its limits: in a directory of this user, in `temporary`.
///
/// `application` names what shares them, such as the id of a Spark application.
pub fn page_of(temporary: &Path, application: &str) -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    // Clocks begin anew with the host, so pages do, too.
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let name = number_of(&(application, boot));
    temporary.join(format!("sparkawait-{user}")).join(format!("limits-{name:016x}"))
}

/// Returns the same number for the same thing in all processes of a version.
fn number_of(thing: &impl Hash) -> NonZeroU64 {
    let number = foldhash::quality::FixedState::default().hash_one(thing);
    NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN)
}

/// The clock that all processes of a host read alike.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostClock;

impl Clock for HostClock {
    fn now(&self) -> ProcessingTime {
        // Goes on while the host sleeps, as the limits of services do.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let id = ClockId::Boottime;
        // Has no such clock that is the same after it was started again.
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let id = ClockId::Realtime;
        let now = clock_gettime(id);
        let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
        let nanos = u32::try_from(now.tv_nsec).unwrap_or_default();
        ProcessingTime::ZERO + Duration::new(seconds, nanos)
    }
}

/// One limit of a page.
///
/// Its whole state is the word of a [`Gcra`], so there is nothing that a process
/// which is killed could leave half done; it loses at most what it has reserved.
/// Times are those of the [`HostClock`], which a manual clock may stand for in
/// tests.
#[derive(Clone, Debug)]
pub struct HostLimit {
    page: Arc<SharedPage>,
    slot: Slot,
    limit: Gcra,
}

impl HostLimit {
    /// Takes part in the limit that `page` has by this name.
    ///
    /// # Errors
    ///
    /// [`PageError::OtherTerms`] if the name has another rate or burst there, [`PageError::Full`].
    pub fn new(page: Arc<SharedPage>, name: &str, limit: Gcra) -> Result<Self, PageError> {
        let slot = page.slot(number_of(&name), number_of(&limit))?;
        Ok(Self { page, slot, limit })
    }

    /// Takes `cost`, to be used at the time that is returned: now, or when its turn comes.
    ///
    /// Turns come in the order of reservations, of all processes. None is given that
    /// comes later than `horizon` after now, so that a process does not take all that
    /// there will be; then the time is returned at which to ask again.
    ///
    /// # Errors
    ///
    /// The time at which to ask again. Nothing was taken.
    pub fn reserve(
        &self,
        cost: u64,
        now: ProcessingTime,
        horizon: Duration,
    ) -> Result<ProcessingTime, ProcessingTime> {
        let (value, last) = (self.page.value(self.slot), now + horizon);
        let mut word = value.load(Ordering::Relaxed);
        loop {
            let tat = ProcessingTime::from_nanos(word);
            let ready = self.limit.ready_at(tat, cost).max(now);
            if ready > last {
                return Err(ProcessingTime::from_nanos(
                    ready.as_nanos() - (last.as_nanos() - now.as_nanos()),
                ));
            }
            let taken = self.limit.take(tat, cost, now).as_nanos();
            // Only the word itself is shared, so no other memory has to be in order.
            match value.compare_exchange_weak(word, taken, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(ready),
                Err(found) => word = found,
            }
        }
    }

    /// Corrects the cost of a call that had taken `taken`: what was too much comes back.
    pub fn settle(&self, taken: u64, actual: u64) {
        let settle = |word| {
            Some(self.limit.settle(ProcessingTime::from_nanos(word), taken, actual).as_nanos())
        };
        // It always has a new value.
        let _ =
            self.page.value(self.slot).fetch_update(Ordering::Relaxed, Ordering::Relaxed, settle);
    }
}
