// SPDX-License-Identifier: Apache-2.0
//! The plans of a connection, or of all that share them: each is made once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use tokio::runtime::Handle;

use crate::making::Making;
use crate::postgres::failure::Fault;
use crate::postgres::plan::Plan;

/// Plans by what they were made for.
///
/// Who needs a plan that is being made waits for it, and nobody else does.
#[derive(Default)]
pub(crate) struct Plans {
    /// Locked for as long as a look takes, and not while a plan is made.
    all: Mutex<HashMap<Arc<str>, Planning>>,
}

/// A plan that is there, or is being made.
type Planning = Making<Result<Arc<Plan>, Fault>>;

impl Plans {
    /// Returns the plan for `key`, or makes it; one that cannot be made is tried again by the next.
    ///
    /// # Cancel safety
    ///
    /// If that is dropped, the plan is made all the same.
    pub(crate) async fn get_or_make<M>(
        &self,
        key: &Arc<str>,
        runtime: &Handle,
        make: impl FnOnce() -> M,
    ) -> Result<Arc<Plan>, Fault>
    where
        M: Future<Output = Result<Plan, Fault>> + Send + 'static,
    {
        let planning = {
            let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
            let is_made =
                |it: &&Planning| matches!(it.outcome(), Poll::Pending | Poll::Ready(Some(Ok(_))));
            if let Some(planning) = all.get(key).filter(is_made) {
                planning.clone()
            } else {
                let make = make();
                let make = async { make.await.map(Arc::new) };
                let planning = Making::start(runtime, "postgres.planning", make);
                all.insert(Arc::clone(key), planning.clone());
                planning
            }
        };
        let panicked = || Fault::unsent("PostgreSQL: planning panicked; the log says why");
        planning.made().await.unwrap_or_else(|| Err(panicked()))
    }

    /// Forgets all plans, because tables have changed.
    pub(crate) fn forget(&self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::FutureExt;
    use tokio::sync::oneshot;

    use super::*;
    use crate::postgres::plan::PlannedQuery;

    fn plan(text: &str) -> Plan {
        let single = PlannedQuery::text(text, Vec::new(), &[]);
        Plan { batched: None, single, arguments: Vec::new(), results: Vec::new() }
    }

    async fn made(plans: &Plans, key: &str, text: &str) -> Option<String> {
        let make = || ready(Ok(plan(text)));
        let plan = plans.get_or_make(&Arc::from(key), &Handle::current(), make).await;
        plan.ok().map(|plan| format!("{:?}", plan.single))
    }

    #[tokio::test]
    async fn a_plan_is_made_once_and_again_when_all_are_forgotten() {
        let plans = Plans::default();

        let first = made(&plans, "a", "select 1").await;
        assert!(first.is_some());
        assert_eq!(made(&plans, "a", "select 2").await, first);
        plans.forget();
        assert_ne!(made(&plans, "a", "select 2").await, first);
    }

    #[tokio::test]
    async fn while_a_plan_is_made_others_do_not_wait_for_it() {
        let plans = Plans::default();
        let (runtime, key) = (Handle::current(), Arc::from("slow"));
        let mut making = Box::pin(plans.get_or_make(&key, &runtime, pending));

        assert!((&mut making).now_or_never().is_none());
        assert!(made(&plans, "other", "select 1").await.is_some());
        assert!(made(&plans, "slow", "select 1").now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_plan_is_made_though_the_one_who_needed_it_first_has_given_up() {
        let plans = Plans::default();
        let (go, gone) = oneshot::channel::<()>();
        let (runtime, key) = (Handle::current(), Arc::from("slow"));
        let make = || async {
            assert_eq!(gone.await, Ok(()));
            Ok(plan("select 1"))
        };
        let mut first = Box::pin(plans.get_or_make(&key, &runtime, make));
        assert!((&mut first).now_or_never().is_none());
        drop(first);
        assert_eq!(go.send(()), Ok(()));

        let found = made(&plans, "slow", "select 2").await;
        assert!(found.is_some_and(|it| it.contains("select 1")));
    }

    #[tokio::test]
    async fn a_plan_that_cannot_be_made_is_tried_again() {
        let plans = Plans::default();
        let (runtime, key) = (Handle::current(), Arc::from("a"));
        let make = || ready(Err(Fault::transient("not now")));

        assert!(plans.get_or_make(&key, &runtime, make).await.is_err());
        assert!(made(&plans, "a", "select 1").await.is_some());
    }
}
