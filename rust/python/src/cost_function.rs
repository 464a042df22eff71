// SPDX-License-Identifier: Apache-2.0
//! What rows cost, as a function of Python computes it.

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt};
use sparkawait_arrow::{InputBatch, NoAmount, RefusedRow, amount_of, amount_of_whole};
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::AttemptId;
use sparkawait_core::queue::EntryId;
use sparkawait_task::row_prices::{CostFunction, no_cost};

use crate::error::call_failure;
use crate::guard;
use crate::row::{BatchView, Columns, Row};

/// A function of Python that says what a row costs; called once a row, with the GIL held for a batch.
pub(crate) struct PythonCosts {
    pub(crate) function: Py<PyAny>,
    /// What its limit is called.
    pub(crate) label: String,
    /// How many permits a cost of 1 is.
    pub(crate) scale: u64,
    pub(crate) columns: Arc<Columns>,
}

impl PythonCosts {
    fn cost(&self, row: Bound<'_, Row>) -> Result<u64, RefusedRow> {
        let py = row.py();
        let raised = |error: PyErr| self.raised(py, error);
        let cost = self.function.bind(py).call1((row,)).map_err(raised)?;
        amount(&cost, self.scale)
            .map_err(raised)?
            .map_err(|why| RefusedRow::new(no_cost(&self.label, why)))
    }

    fn raised(&self, py: Python<'_>, error: PyErr) -> RefusedRow {
        let failure = call_failure(py, error, ErrorKind::CostInvalid);
        let say = |what: &str| format!("the `cost` function of RateLimit `{}`: {what}", self.label);
        RefusedRow {
            message: say(&failure.message),
            summary: say(&failure.summary),
            raised: failure.raised,
        }
    }
}

/// Returns a number of Python as an amount, so many times as much; an error for anything else.
fn amount(value: &Bound<'_, PyAny>, scale: u64) -> PyResult<Result<u64, NoAmount>> {
    if value.is_none() {
        return Ok(Err(NoAmount::Null));
    }
    if value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>() {
        // What has no place in 128 bits is as far from a cost as the ends of these.
        let is_negative = || value.lt(0);
        return Ok(match value.extract::<i128>() {
            Ok(whole) => amount_of_whole(whole, scale),
            Err(_) if is_negative()? => Err(NoAmount::Negative),
            Err(_) => Err(NoAmount::TooLarge),
        });
    }
    let number = value.extract::<f64>().ok().filter(|_| !value.is_instance_of::<PyBool>());
    let Some(number) = number else {
        let name = value.get_type().qualname()?;
        return Err(PyTypeError::new_err(format!("must return a number, got `{name}`")));
    };
    Ok(amount_of(number, scale))
}

impl CostFunction for PythonCosts {
    fn costs(&self, input: &Arc<InputBatch>) -> Vec<Result<u64, RefusedRow>> {
        let rows = input.batch.num_rows();
        Python::attach(|py| {
            let view = BatchView::new(py, Arc::clone(input), Arc::clone(&self.columns));
            let view = Arc::new(view);
            // No attempt has begun.
            let none = AttemptId { entry: EntryId::from_u64(0), attempt: 0 };
            let cost_of = |index| {
                let cost = || {
                    let row = Bound::new(py, Row::new(Arc::clone(&view), index, none, 0))?;
                    Ok(self.cost(row))
                };
                guard::guarded(cost).unwrap_or_else(|error| Err(self.raised(py, error)))
            };
            (0..rows).map(cost_of).collect()
        })
    }
}

sparkawait_core::opaque_debug!(PythonCosts, label: label);
