// SPDX-License-Identifier: Apache-2.0
//! The plans of a connection, or of all that share them: each is made once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;

use crate::postgres::failure::Failure;
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
        make: impl Future<Output = Result<Plan, Failure>>,
    ) -> Result<Arc<Plan>, Failure> {
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
