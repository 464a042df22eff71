# SPDX-License-Identifier: Apache-2.0
"""The column that tells of the calls of each row, for the option ``info=``."""

from __future__ import annotations

import pyarrow as pa

from sparkawait._checks import text
from sparkawait._option import Option, optional

__all__ = ["CALL_TYPE", "INFO"]

CALL_TYPE = pa.struct(
    [
        ("attempts", pa.int32()),
        ("seconds", pa.float64()),
        ("waited", pa.float64()),
        ("cached", pa.bool_()),
        ("hedged", pa.bool_()),
        ("status", pa.int32()),
        ("cost", pa.float64()),
    ]
)
"""The type of the column, as the extension module makes it."""


INFO = Option(
    'a name, such as `"call"`, of a struct column that tells of the calls of each row, failed ones'
    " included: attempts, seconds, waited, cached, hedged, status and cost",
    optional(lambda value, name: text(value, name, "the name of a column, such as 'call'")),
    type="str | None",
    of_task=True,
    is_rare=True,
)
