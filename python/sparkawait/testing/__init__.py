# SPDX-License-Identifier: Apache-2.0
"""What tests of asynchronous functions need: a harness, a function that waits, an HTTP server.

```text
  OperatorTestHarness   the operator alone, by a manual clock: no thread, no network
  simulated(latency)    a function that waits and answers, in Rust
  crashes(job, calls)   a job with a journal, run again after it might have died at any moment
  LookupServer(latency) an HTTP server in this process, which tests and the demo call
  ModelServer(rpm=)     the same for model services, with their limits and failures
```

Nothing here needs pyspark. Users test their own retry and timeout rules with it, and so do we.
"""

from sparkawait.testing.harness import Invocation, OperatorTestHarness
from sparkawait.testing.journals import Crash, crashes
from sparkawait.testing.model_server import ModelServer
from sparkawait.testing.services import (
    Latency,
    LookupServer,
    Simulated,
    constant,
    log_normal,
    simulated,
    uniform,
)

__all__ = [
    "Crash",
    "Invocation",
    "Latency",
    "LookupServer",
    "ModelServer",
    "OperatorTestHarness",
    "Simulated",
    "constant",
    "crashes",
    "log_normal",
    "simulated",
    "uniform",
]
