# SPDX-License-Identifier: Apache-2.0
"""Names for annotations: what the arguments of sparkawait may be, and what it passes on.

They are for code around sparkawait that passes such values on; a call needs none of them.

```python
def lookup(timeout: sa.typing.Duration, on_error: sa.typing.OnErrorLike = "fail") -> DataFrame: ...
```
"""

from sparkawait._checks import ColumnLike, ColumnsLike, Duration, Size
from sparkawait._core import Row
from sparkawait._schema.types import ReturnsLike, SchemaLike
from sparkawait.functions import (
    AsyncFunctionLike,
    AsyncFunctionsLike,
    FunctionContext,
    NativeFunction,
    Results,
)
from sparkawait.limits import WhenOpen
from sparkawait.options import FunctionWithOptions
from sparkawait.outcomes import Emit, OnErrorLike, Vehicle
from sparkawait.rate_limit import Cost, Counts, Per, RateLimits, Scope

__all__ = [
    "AsyncFunctionLike",
    "AsyncFunctionsLike",
    "ColumnLike",
    "ColumnsLike",
    "Cost",
    "Counts",
    "Duration",
    "Emit",
    "FunctionContext",
    "FunctionWithOptions",
    "NativeFunction",
    "OnErrorLike",
    "Per",
    "RateLimits",
    "Results",
    "ReturnsLike",
    "Row",
    "SchemaLike",
    "Scope",
    "Size",
    "Vehicle",
    "WhenOpen",
]
