// SPDX-License-Identifier: Apache-2.0
//! The cache of an operator as Python describes it.

use std::sync::Arc;

use pyo3::prelude::*;
use sparkawait_task::layer::cache::{CacheConfig, CacheSettings};

use crate::convert::to_duration;

/// A cache, the columns that results depend on, and what names it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct CacheArguments {
    id: String,
    key: Vec<String>,
    cache: CacheBounds,
}

/// The bounds of a `Cache` of Python; times are in seconds.
#[derive(FromPyObject)]
struct CacheBounds {
    max_rows: Option<u64>,
    max_bytes: Option<u64>,
    expire_after_write: Option<f64>,
    expire_after_access: Option<f64>,
    cache_missing: bool,
}

/// Converts the settings of a cache.
pub(crate) fn to_cache(arguments: CacheArguments) -> PyResult<CacheSettings> {
    let CacheArguments { id, key, cache } = arguments;
    let to_expiry =
        |name, seconds: Option<f64>| seconds.map(|it| to_duration(name, it)).transpose();
    let config = CacheConfig {
        max_rows: cache.max_rows,
        max_bytes: cache.max_bytes,
        expire_after_write: to_expiry("expire_after_write", cache.expire_after_write)?,
        expire_after_access: to_expiry("expire_after_access", cache.expire_after_access)?,
        cache_missing: cache.cache_missing,
    };
    Ok(CacheSettings { id, config, key, caches: None, metrics: Arc::default() })
}
