// SPDX-License-Identifier: Apache-2.0
//! What the driver is told of an operator.

use std::time::Duration;

use sparkawait_core::policy::WarmUpConfig;

use crate::capacity_growth::GrowthConfig;
use crate::output_flusher::BufferTimeout;

/// How a task begins, and how output batches are cut.
#[derive(Clone, Copy, Debug)]
pub struct DriverConfig {
    /// A batch of this many rows leaves at once.
    pub max_rows_per_batch: usize,
    /// A batch of about so many bytes leaves at once, and none has more unless one row has.
    pub max_bytes_per_batch: usize,
    /// Bounds completed rows by the bytes of their results, and of their places in the queue, where
    /// they take no slots; `None`: the slots bound them, and four times `max_bytes_per_batch`.
    pub capacity_bytes: Option<usize>,
    /// By what the number of records that are held grows, up to the operator's `capacity`; `None`: it
    /// is that from the beginning.
    pub growth: Option<GrowthConfig>,
    /// When a smaller batch leaves.
    pub buffer_timeout: BufferTimeout,
    /// Batches are made smaller so that a row takes this long through one; `None`: never.
    pub target_latency: Option<Duration>,
    /// Few calls are made until rows have left and are asked for again; `None`: all at once.
    pub warm_up: Option<WarmUpConfig>,
    /// What a call is expected to bring, as earlier tasks of its function saw; `None`: nobody knows.
    pub expected_result_bytes: Option<usize>,
}
