# SPDX-License-Identifier: Apache-2.0
"""The operator over any iterator of Arrow record batches; no Spark needed."""

from typing import TYPE_CHECKING

from sparkawait.arrow.output import Batches
from sparkawait.arrow.task import run

if TYPE_CHECKING:  # the same functions as editors show them, with each option
    from sparkawait.arrow.signatures import (  # pyright: ignore[reportMissingModuleSource]
        key_ordered_wait,
        ordered_wait,
        unordered_wait,
    )
else:
    from sparkawait.arrow.wait import key_ordered_wait, ordered_wait, unordered_wait

__all__ = ["Batches", "key_ordered_wait", "ordered_wait", "run", "unordered_wait"]
