// SPDX-License-Identifier: Apache-2.0
//! What panics on the thread of a task: once while it is driven, and once more while it is closed.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use crate::scenario::{PanicPlace, PanicPlan};

/// How the text of each panic begins.
const TEXT: &str = "an injected panic";

/// Panics where a scenario says so.
///
/// Not a part of the world: rows are let go of while somebody looks at that.
#[derive(Debug)]
pub struct Panics {
    plan: Option<PanicPlan>,
    /// Times that the place is passed before.
    left: AtomicU32,
    /// Whether the task is driven.
    is_armed: AtomicBool,
    has_happened: AtomicBool,
    /// Whether closing a function panics, too.
    again: AtomicBool,
}

impl Panics {
    /// Makes those of a scenario, which do not happen yet.
    pub fn new(plan: Option<PanicPlan>) -> Self {
        Self {
            plan,
            left: AtomicU32::new(plan.map_or(0, |it| it.after)),
            is_armed: AtomicBool::new(false),
            has_happened: AtomicBool::new(false),
            again: AtomicBool::new(plan.is_some_and(|it| it.again)),
        }
    }

    /// Lets panics happen from now on, or no more.
    pub fn arm(&self, is_armed: bool) {
        self.is_armed.store(is_armed, Ordering::Relaxed);
    }

    /// Whether something has panicked.
    pub fn has_happened(&self) -> bool {
        self.has_happened.load(Ordering::Relaxed)
    }

    /// Passes a place, which may panic.
    pub fn pass(&self, place: PanicPlace) {
        let is_here = self.plan.is_some_and(|it| it.place == place);
        // A second panic while the first one unwinds would end the process.
        if !is_here || thread::panicking() || !self.is_armed.load(Ordering::Relaxed) {
            return;
        }
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        let panics = left == 0 && !self.has_happened.swap(true, Ordering::Relaxed);
        assert!(!panics, "{TEXT}: {place:?}");
    }

    /// A function is closed.
    pub fn close(&self) {
        let panics = self.has_happened()
            && !thread::panicking()
            && self.is_armed.load(Ordering::Relaxed)
            && self.again.swap(false, Ordering::Relaxed);
        assert!(!panics, "{TEXT}: it is closed");
    }
}
