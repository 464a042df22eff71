# SPDX-License-Identifier: Apache-2.0
"""The thread that pulls the input."""

import threading

import pyarrow as pa
import pytest

from sparkawait import ConfigurationError
from sparkawait._worker.feeder import Feeder
from sparkawait.arrow.output import Source
from sparkawait.exceptions import ErrorKind


class FakeTask:
    """Takes batches until `capacity` is reached, then is closed."""

    def __init__(self, capacity=100):
        self.capacity = capacity
        self.batches = []
        self.failure = None
        self.ended = threading.Event()

    def put(self, batch):
        if len(self.batches) == self.capacity:
            self.ended.set()
            return False
        self.batches.append(batch)
        return True

    def put_end(self):
        self.ended.set()

    def put_failure(self, error):
        self.failure = error
        self.ended.set()


class Exporter:
    """An Arrow producer that is not PyArrow."""

    def __init__(self, batch):
        self.batch = batch

    def __arrow_c_array__(self, requested_schema=None):
        return self.batch.__arrow_c_array__(requested_schema)


BATCH = pa.RecordBatch.from_pydict({"x": [1, 2]})


def feed(batches, task):
    source = Source.of(batches)
    feeder, first = source.feeder, source.feeder.first()
    feeder.start(task)
    assert task.ended.wait(50)
    feeder.join()
    return first


def test_every_batch_is_fed_once_in_order():
    batches = [pa.RecordBatch.from_pydict({"x": [i]}) for i in range(3)]
    task = FakeTask()
    assert feed(batches, task) is batches[0]
    assert task.batches == batches
    assert task.failure is None


@pytest.mark.parametrize(
    "source",
    [
        BATCH,
        pa.Table.from_batches([BATCH]),
        pa.RecordBatchReader.from_batches(BATCH.schema, [BATCH]),
        [Exporter(BATCH)],
        (batch for batch in [BATCH]),
    ],
    ids=["batch", "table", "reader", "exporter", "generator"],
)
def test_any_source_of_arrow_batches_is_taken(source):
    task = FakeTask()
    feed(source, task)
    assert task.batches == [BATCH]


def test_an_empty_input_has_no_first_batch():
    assert Source.of([]).feeder.first() is None


@pytest.mark.parametrize("source", [None, 5])
def test_what_holds_no_batches_is_refused_at_once(source):
    with pytest.raises(ConfigurationError, match="`batches`") as info:
        Source.of(source)
    assert info.value.kind is ErrorKind.INPUT_INVALID


@pytest.mark.parametrize("item", [7, "x", None, [7], BATCH.column(0)], ids=repr)
def test_an_item_that_has_no_rows_is_refused(item):
    with pytest.raises(ConfigurationError, match="the input must hold record batches, or what has"):
        Source.of([item]).feeder.first()


def test_the_input_fails_the_task_with_its_own_exception():
    error = OSError("disk on fire")

    def broken():
        yield BATCH
        raise error

    task = FakeTask()
    feed(broken(), task)
    assert task.failure is error


def test_an_input_that_changes_its_schema_fails_the_task():
    task = FakeTask()
    feed([BATCH, pa.RecordBatch.from_pydict({"x": ["a"]})], task)
    assert isinstance(task.failure, ConfigurationError)
    assert "from (x int64) to (x string)" in str(task.failure)


def test_the_feeder_ends_when_the_task_is_closed():
    pulled = []

    def endless():
        while True:
            pulled.append(1)
            yield BATCH

    feed(endless(), FakeTask(capacity=3))
    assert len(pulled) == 4


def test_a_feeder_that_waits_in_the_users_iterator_is_not_waited_for():
    gate = threading.Event()
    waiting = threading.Event()

    def slow():
        yield BATCH
        waiting.set()
        gate.wait()

    feeder = Feeder(slow())
    feeder.first()
    feeder.start(FakeTask())
    assert waiting.wait(50)
    feeder.join()
    assert feeder._thread.is_alive()
    gate.set()
    feeder._thread.join(5)
    assert not feeder._thread.is_alive()
