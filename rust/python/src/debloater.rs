// SPDX-License-Identifier: Apache-2.0
//! Sizes of batched calls, for the event loop thread.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use sparkawait_core::flow::{Debloater as Inner, DebloaterConfig};
use sparkawait_macros::guarded;

use crate::convert::to_duration;

/// Time between two measurements, as Flink's.
const PERIOD: f64 = 0.2;

/// Sizes batches so that a target latency is met.
#[pyclass(frozen, module = "sparkawait._core")]
pub(crate) struct Debloater {
    inner: Mutex<Inner>,
}

#[guarded]
#[pymethods]
impl Debloater {
    #[new]
    fn new(max_rows: u32, target: f64) -> PyResult<Self> {
        let target = to_duration("target_latency", target)?;
        let config = DebloaterConfig { target, ..DebloaterConfig::new(1, max_rows) };
        Ok(Self { inner: Mutex::new(Inner::new(config)) })
    }

    #[getter]
    fn period(&self) -> f64 {
        PERIOD
    }

    /// Takes a measurement and returns the size of batches from now on.
    fn measure(&self, rows: u64, elapsed: f64, in_use: u32) -> u32 {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let elapsed = Duration::try_from_secs_f64(elapsed).unwrap_or_default();
        inner.measure(rows, elapsed, in_use);
        inner.size()
    }
}
