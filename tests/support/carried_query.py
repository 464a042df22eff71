# SPDX-License-Identifier: Apache-2.0
"""A query with `carry_over` whose steps are carried out in this process, without Spark."""

import asyncio
from collections import Counter

import pandas as pd
import pyarrow as pa

import sparkawait as sa
from sparkawait._worker import step as worker_step
from sparkawait._worker.forms import forms_of
from sparkawait._worker.holder import holder
from sparkawait._worker.step import pack
from sparkawait.spark.reports import NO_REPORTS
from sparkawait.spark.step import STATE_VERSION, Step

SCHEMA = pa.schema([("id", pa.int64()), ("key", pa.int64())])
AT_ONCE, NEXT_BATCH = "at_once", "next_batch"


class Service:
    """Doubles numbers as soon as its gate is open, and counts its calls."""

    def __init__(self):
        self.calls = Counter()
        self.is_open = True

    def __reduce__(self):
        """A query is known by what it calls, whatever that has counted."""
        return Service, ()

    def function(self, schema="doubled bigint"):
        @sa.async_function(schema)
        async def double(row):
            self.calls[row["id"]] += 1
            while not self.is_open:  # noqa: ASYNC110 - another thread opens it
                await asyncio.sleep(0.003)
            return {"doubled": 2 * row["id"]}

        return double

    @property
    def further(self):
        """How many calls were made again."""
        return self.calls.total() - len(self.calls)


def frames_of(ids):
    """Returns rows as Spark brings them to a step: each ten of them in a frame of their own."""
    tens = (ids[first : first + 10] for first in range(0, len(ids), 10))
    rows = ({"id": list(ten), "key": [id_ % 3 for id_ in ten]} for ten in tens)
    batches = (batch for it in rows for batch in pa.table(it, SCHEMA).to_batches())
    return [it.to_pandas() for it in pack(batches, [0], partition=0, turn=0, is_keyed=False)]


class Query:
    """A shard of a query that runs micro-batches."""

    def __init__(self, function, *, step=Step, emit=NEXT_BATCH, linger="7ms", key=None, **options):
        wait = sa.arrow.unordered_wait if key is None else sa.arrow.key_ordered_wait
        options |= {} if key is None else {"key": key}
        # What an iterator calls is what a query would call.
        chain, *_ = wait([SCHEMA.empty_table()], function, **options).take_over()
        carry_over = sa.CarryOver(emit=emit, linger=linger)
        self.step = step(
            chain, carry_over, forms_of(SCHEMA), NO_REPORTS.then(None), None, name="it", by=()
        )
        self.state = None
        self.rows = []

    def run(self, ids=()):
        """Returns what a micro-batch says of itself."""
        end = self.step.run((0,), self.state, frames_of(ids))
        if end is None:
            return None
        self.state = STATE_VERSION, end.state
        told = self.step.rows(end)
        self.rows += [
            id_
            for payload in told["payload"].dropna()
            for batch in worker_step.unpack([payload])
            for id_ in batch.column("id").to_pylist()
        ]
        numbers = told.iloc[-1].to_dict()
        left = sum(it for it in told["rows"] if not pd.isna(it))
        return numbers | {"accounts": bool(numbers["accounts"]) and left == numbers["told"]}


def lose_the_worker():
    for task in list(holder()._tasks.values()):
        holder().drop(task)
