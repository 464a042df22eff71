# SPDX-License-Identifier: Apache-2.0
"""The wait functions for DataFrames. The only package that imports PySpark.

```text
  driver     wait --> partition --+     schemas: types and names as Spark has them
             udf  --> columns   --+     expressions: columns that options name
                                  |     shipping, wheel: is sparkawait over there?
                              shipment
  executor                        |
             partition, columns --+--> a task of sparkawait._worker --> metrics
             connection
  streams    carry --> vehicle --> step
  to be burned one day             before_4_1
```

Works with classic sessions and with Spark Connect, for batch and streaming DataFrames.
"""

from typing import TYPE_CHECKING

from sparkawait.spark.actions import Sent, send, split, write_once
from sparkawait.spark.carry import drain
from sparkawait.spark.owner import Job, job
from sparkawait.spark.shipping import ship
from sparkawait.spark.udf import AsyncUserDefinedFunction

if TYPE_CHECKING:  # the same functions as editors show them, with each option
    from sparkawait.spark.signatures import (  # pyright: ignore[reportMissingModuleSource]
        async_udf,
        key_ordered_wait,
        ordered_wait,
        unordered_wait,
    )
else:
    from sparkawait.spark.udf import async_udf
    from sparkawait.spark.wait import key_ordered_wait, ordered_wait, unordered_wait

__all__ = [
    "AsyncUserDefinedFunction",
    "Job",
    "Sent",
    "async_udf",
    "drain",
    "job",
    "key_ordered_wait",
    "ordered_wait",
    "send",
    "ship",
    "split",
    "unordered_wait",
    "write_once",
]
