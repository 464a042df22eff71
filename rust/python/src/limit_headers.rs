// SPDX-License-Identifier: Apache-2.0
//! What the headers of a response say of limits, for Python's clients.

use std::collections::HashMap;
use std::time::SystemTime;

use pyo3::prelude::*;
use sparkawait_connect::limit_headers::{LimitHeaders, retry_after};
use sparkawait_macros::guarded;

/// Reads headers, by their names in lower case.
pub(crate) fn read(headers: &HashMap<String, String>) -> LimitHeaders {
    let header = |name: &str| headers.get(name).map(|it| it.as_str().into());
    LimitHeaders::read(header, SystemTime::now())
}

/// Returns the seconds after which a call that was refused may be made again.
#[guarded]
#[pyfunction]
pub(crate) fn announced_delay(headers: HashMap<String, String>, is_refused: bool) -> Option<f64> {
    let limits = read(&headers);
    let delay = if is_refused { limits.delay() } else { limits.retry_after };
    delay.map(|it| it.as_secs_f64())
}

/// Returns the seconds that the value of a `Retry-After` header means.
#[guarded]
#[pyfunction]
pub(crate) fn header_seconds(text: &str) -> Option<f64> {
    retry_after(text, SystemTime::now()).map(|it| it.as_secs_f64())
}
