// SPDX-License-Identifier: Apache-2.0
//! A function that notes its calls, for the world to answer.

use std::sync::Arc;

use sparkawait_core::operator::AttemptId;
use sparkawait_runtime::AsyncFunction;
use sparkawait_task::function::{Call, Calls};

use super::{Shared, World};
use crate::columns::Reader;
use crate::scenario::PanicPlace;
use crate::trace::{Path, What};

/// A function that notes its calls, for the world to answer.
#[derive(Debug)]
pub struct Noting {
    /// Its number.
    pub site: usize,
    /// Operators before it.
    pub operator: usize,
    /// The world.
    pub shared: Shared,
}

/// Looks at each call.
pub(super) fn each_call(
    shared: &Shared,
    operator: usize,
    calls: &Calls,
    mut see: impl FnMut(&mut World, &Call, &Path),
) {
    let mut world = shared.world();
    let scenario = Arc::clone(&world.scenario);
    let batches = calls.batches.iter().map(|it| Reader::new(&scenario, &it.batch, operator));
    let readers: Vec<Reader<'_>> = batches.collect();
    for call in &calls.calls {
        if world.broken.is_none() {
            let path = readers[call.batch as usize].path(call.row as usize);
            see(&mut world, call, &path);
        }
    }
}

impl Noting {
    fn each(&self, calls: &Calls, see: impl FnMut(&mut World, &Call, &Path)) {
        each_call(&self.shared, self.operator, calls, see);
    }
}

impl AsyncFunction<Calls> for Noting {
    fn invoke(&mut self, calls: Calls) {
        self.shared.panics().pass(PanicPlace::Function);
        self.each(&calls, |world, call, path| world.invoked(self.site, call.attempt, path));
        self.shared.tell_requests();
    }

    fn ask_timeout(&mut self, calls: Calls) {
        self.each(&calls, |world, call, path| world.asked(self.site, call.attempt, path));
    }

    fn cancel(&mut self, attempts: Vec<AttemptId>) {
        let mut world = self.shared.world();
        for attempt in attempts {
            if world.broken.is_none() {
                world.cancelled(self.site, attempt);
            }
        }
    }

    fn close(&mut self) {
        self.shared.panics().close();
        let mut world = self.shared.world();
        let checked = world.model.closed(self.site);
        world.breaks(checked);
        if let Some(cache) = &mut world.cached[self.site] {
            cache.close();
        }
        world.note(What::Closed { site: self.site });
    }
}
