// SPDX-License-Identifier: Apache-2.0
//! The extension module `sparkawait._core`: translates, decides nothing.

mod cache;
mod cells;
mod channels;
mod content_keys;
mod convert;
mod cost_function;
mod debloater;
mod detached_task;
mod error;
mod guard;
mod harness;
mod interruptible;
mod journal;
mod json_columns;
mod key_table;
mod limit_headers;
#[cfg(feature = "redis")]
mod limit_server;
mod log;
mod lookup_server;
mod model_server;
mod native;
mod operator_arguments;
mod policies;
mod port;
mod result_columns;
mod row;
mod row_group;
mod task;

/// What Python sees.
#[pyo3::pymodule]
mod _core {
    use arrow::datatypes::DataType;
    use pyo3::prelude::*;
    use sparkawait_macros::guarded;

    use crate::guard::FromArrow;

    #[pymodule_export]
    use crate::content_keys::content_keys;
    #[pymodule_export]
    use crate::debloater::Debloater;
    #[pymodule_export]
    use crate::detached_task::{
        Carried, DetachedTask, PartEnd, RemoteTask, encode_carried, find_posted, listen_for_steps,
    };
    #[pymodule_export]
    use crate::harness::{Harness, HarnessSnapshot};
    #[pymodule_export]
    use crate::journal::JournalPort;
    #[pymodule_export]
    use crate::json_columns::read_json;
    #[pymodule_export]
    use crate::key_table::KeyTable;
    #[pymodule_export]
    use crate::limit_headers::{announced_delay, header_seconds};
    #[cfg(feature = "redis")]
    #[pymodule_export]
    use crate::limit_server::LimitServer;
    #[pymodule_export]
    use crate::log::Log;
    #[pymodule_export]
    use crate::lookup_server::LookupServer;
    #[pymodule_export]
    use crate::model_server::ModelServer;
    #[pymodule_export]
    use crate::native::{Native, describe_postgres, host_columns, template_columns};
    #[pymodule_export]
    use crate::port::Port;
    #[pymodule_export]
    use crate::result_columns::ResultColumns;
    #[pymodule_export]
    use crate::row::Row;
    #[pymodule_export]
    use crate::row_group::RowGroup;
    #[pymodule_export]
    use crate::task::{Task, too_many};

    /// Returns the stable codes of all errors, for the test that compares them with Python's.
    #[guarded]
    #[pyfunction]
    fn error_kinds() -> Vec<&'static str> {
        sparkawait_core::ErrorKind::ALL.iter().map(|kind| kind.as_str()).collect()
    }

    /// Returns the name that Spark has for a type of Arrow.
    #[guarded]
    #[pyfunction]
    fn simple_string(data_type: FromArrow<DataType>) -> String {
        sparkawait_arrow::simple_string::simple_string(&data_type.0)
    }

    /// Returns what a limit of the job is now: permits, nanoseconds and burst; it is made `anew` first.
    #[guarded]
    #[pyfunction]
    fn limit_now(
        py: Python<'_>,
        application: &str,
        limit: crate::policies::RateLimitArguments,
        anew: Option<crate::policies::Numbers>,
    ) -> PyResult<Option<(u64, u64, u64)>> {
        crate::policies::limit_now(py, application, &limit, anew)
    }

    /// Has the time zones of this name follow the rules of a `TZif` file, in this process.
    #[guarded]
    #[pyfunction]
    fn learn_zone(name: &str, tzif: &[u8]) -> PyResult<()> {
        sparkawait_connect::zone::learn(name, tzif)
            .map_err(|message| crate::error::internal_error(&message))
    }

    /// Panics, as an invariant that breaks would; tests see what happens then.
    #[cfg(debug_assertions)]
    #[guarded]
    #[pyfunction]
    #[pyo3(name = "_panicking")]
    #[expect(clippy::panic, reason = "it is what this is for")]
    fn panicking(message: &str) -> usize {
        panic!("{message}")
    }

    /// The version of the extension module, and of the package around it.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        let mapping = py.import("collections.abc")?.getattr("Mapping")?;
        mapping.call_method1("register", (py.get_type::<Row>(),))?;
        Ok(())
    }
}
