// SPDX-License-Identifier: Apache-2.0
//! Functions in Python that read secrets again.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::prelude::*;
use sparkawait_task::secret::{Source, Sources};

/// By the names of the secrets: a function, and whether it costs no more than to read a file.
pub(crate) type PythonSources = HashMap<String, (Py<PyAny>, bool)>;

/// A function in Python that reads a secret.
struct PythonSource {
    function: Py<PyAny>,
    is_cheap: bool,
}

/// Returns the functions as sources of secrets.
pub(crate) fn sources_of(given: PythonSources) -> Sources {
    let source = |(name, (function, is_cheap))| {
        (name, Arc::new(PythonSource { function, is_cheap }) as Arc<dyn Source>)
    };
    given.into_iter().map(source).collect()
}

impl Source for PythonSource {
    fn read(&self) -> Result<String, String> {
        let read = Python::try_attach(|py| {
            let text = self.function.call0(py).and_then(|it| it.extract(py));
            // An error's text could quote the secret.
            text.map_err(|error| format!("it raised a `{}`", error.get_type(py)))
        });
        read.unwrap_or_else(|| Err("the interpreter ends".to_owned()))
    }

    fn is_cheap(&self) -> bool {
        self.is_cheap
    }
}
