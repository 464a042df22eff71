# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""The tables of the demo in a Redis server: JSON documents under a prefix of their own.

They are removed when the demo ends, and expire after a day if it does not get that far.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from uuid import uuid4

import pyarrow as pa

import sparkawait as sa
from sparkawait.demo.data import Dataset
from sparkawait.demo.errors import DemoError
from sparkawait.demo.functions import redis_lookups
from sparkawait.demo.service import Service
from sparkawait.secrets import Secret

__all__ = ["redis_store"]

_EXPIRES_SECONDS = "86400"
_CALLS = 10_000


@contextmanager
def redis_store(url: Secret, dataset: Dataset) -> Generator[Service]:
    """Yields a server that has the tables as long as the body runs.

    Raises:
        DemoError: If it cannot be written to.
    """
    prefix = f"sparkawait-demo:{uuid4().hex}:"
    documents = _documents(dataset)
    _send(url, documents, "SET", prefix + "{key}", "{document}", "EX", _EXPIRES_SECONDS)
    try:
        yield Service("Redis", redis_lookups(url, prefix))
    finally:
        _send(url, documents, "UNLINK", prefix + "{key}")


def _documents(dataset: Dataset) -> pa.RecordBatch:
    documents = {
        f"{table}:{key}": json.dumps(value)
        for table, values in dataset.served().items()
        for key, value in values.items()
    }
    return pa.record_batch({"key": list(documents), "document": list(documents.values())})


def _send(url: Secret, rows: pa.RecordBatch, *command: str) -> None:
    try:
        function = sa.redis.command(url, *command, schema="reply string", writes=True)
        for _ in sa.arrow.unordered_wait(
            [rows], function, max_concurrency=_CALLS, output="replace"
        ):
            pass
    except sa.AsyncIOError as error:
        raise DemoError(f"the tables cannot be written to Redis: {error}") from error
