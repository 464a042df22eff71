// SPDX-License-Identifier: Apache-2.0
//! A function that the event loop thread calls.

use std::sync::Arc;

use sparkawait_core::operator::AttemptId;
use sparkawait_runtime::AsyncFunction;
use sparkawait_task::function::Calls;

use crate::port::Mouth;

/// Hands bursts of calls to a port.
pub(crate) struct PythonFunction {
    pub(crate) mouth: Arc<Mouth>,
}

impl AsyncFunction<Calls> for PythonFunction {
    fn invoke(&mut self, calls: Calls) {
        self.mouth.invoke(calls);
    }

    fn ask_timeout(&mut self, calls: Calls) {
        self.mouth.ask_timeout(calls);
    }

    fn cancel(&mut self, attempts: Vec<AttemptId>) {
        self.mouth.cancel(attempts);
    }

    fn close(&mut self) {
        self.mouth.close();
    }
}
