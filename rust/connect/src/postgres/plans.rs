// SPDX-License-Identifier: Apache-2.0
//! The plans of a connection, or of all that share them: each is made once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;

use crate::postgres::failure::Fault;
use crate::postgres::plan::Plan;

/// Plans by what they were made for.
///
/// Who needs a plan that is being made waits for it, and nobody else does.
#[derive(Default)]
pub(crate) struct Plans {
    /// Locked for as long as a look takes, and not while a plan is made.
    cells: Mutex<HashMap<Arc<str>, Arc<Cell>>>,
}

/// A plan that is there, is being made, or will be.
type Cell = OnceCell<Arc<Plan>>;

impl Plans {
    /// Returns the plan for `key`, or makes it; one that cannot be made is tried again by the next.
    ///
    /// # Cancel safety
    ///
    /// If the future that makes a plan is dropped, one that waits for the plan makes it.
    pub(crate) async fn get_or_make(
        &self,
        key: &Arc<str>,
        make: impl Future<Output = Result<Plan, Fault>>,
    ) -> Result<Arc<Plan>, Fault> {
        let cell = {
            let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(cells.entry(Arc::clone(key)).or_default())
        };
        let plan = cell.get_or_try_init(|| async { make.await.map(Arc::new) }).await?;
        Ok(Arc::clone(plan))
    }

    /// Forgets all plans, because tables have changed.
    pub(crate) fn forget(&self) {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::postgres::plan::PlannedQuery;

    fn plan(text: &str) -> Plan {
        let single = PlannedQuery::text(text, Vec::new(), &[]);
        Plan { batched: None, single, arguments: Vec::new(), results: Vec::new() }
    }

    fn poll<T>(future: impl Future<Output = T>) -> Poll<T> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn made(plans: &Plans, key: &str, text: &str) -> Option<String> {
        match poll(plans.get_or_make(&Arc::from(key), ready(Ok(plan(text))))) {
            Poll::Ready(Ok(plan)) => Some(format!("{:?}", plan.single)),
            _ => None,
        }
    }

    #[test]
    fn a_plan_is_made_once_and_again_when_all_are_forgotten() {
        let plans = Plans::default();

        let first = made(&plans, "a", "select 1");
        assert!(first.is_some());
        assert_eq!(made(&plans, "a", "select 2"), first);
        plans.forget();
        assert_ne!(made(&plans, "a", "select 2"), first);
    }

    #[test]
    fn while_a_plan_is_made_others_do_not_wait_for_it() {
        let plans = Plans::default();
        let key = Arc::from("slow");
        let mut making = Box::pin(plans.get_or_make(&key, pending()));
        let mut context = Context::from_waker(Waker::noop());
        assert!(making.as_mut().poll(&mut context).is_pending());

        assert!(made(&plans, "other", "select 1").is_some());
        assert!(made(&plans, "slow", "select 1").is_none());
        drop(making);
        assert!(made(&plans, "slow", "select 1").is_some());
    }

    #[test]
    fn a_plan_that_cannot_be_made_is_tried_again() {
        let plans = Plans::default();
        let failure = Fault::transient("not now");
        let failed = poll(plans.get_or_make(&Arc::from("a"), ready(Err(failure))));

        assert!(matches!(failed, Poll::Ready(Err(_))));
        assert!(made(&plans, "a", "select 1").is_some());
    }
}
