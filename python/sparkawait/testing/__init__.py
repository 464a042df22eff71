# SPDX-License-Identifier: Apache-2.0
"""What tests of asynchronous functions need: a harness, a function that waits, an HTTP server.

Nothing here needs pyspark. Users test their own retry and timeout rules with it, and so do we.
"""

from sparkawait.testing.harness import Invocation, OperatorTestHarness
from sparkawait.testing.latency import Latency, constant, log_normal, uniform
from sparkawait.testing.lookup_server import LookupServer
from sparkawait.testing.simulated import Simulated, simulated

__all__ = [
    "Invocation",
    "Latency",
    "LookupServer",
    "OperatorTestHarness",
    "Simulated",
    "constant",
    "log_normal",
    "simulated",
    "uniform",
]
