# SPDX-License-Identifier: Apache-2.0
"""What an exception says that leaves a task, for Spark's own writer of exceptions."""

import io
import pickle
import struct
import traceback

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.serializers import SpecialLengths, write_int, write_with_length

import sparkawait as sa
from sparkawait._plan.plan import Chain
from sparkawait._plan.resolve import resolve
from sparkawait.spark.tasks import PartitionTask

try:
    from pyspark.util import handle_worker_exception
except ImportError:

    def handle_worker_exception(error, outfile):
        """Writes the exception as the worker of Spark 3.5 does, which has no function for it."""
        write_int(SpecialLengths.PYTHON_EXCEPTION_THROWN, outfile)
        write_with_length("".join(traceback.format_exception(error)).encode("utf-8"), outfile)


pytestmark = pytest.mark.spark

HALF = "half \ud83d"
"""Half of a character, as `json.loads` makes it; UTF-8 has no place for it."""
BATCH = pa.record_batch({"id": pa.array(range(13), pa.int64())})


class UnencodableError(Exception):
    def __str__(self):
        return HALF


class Function(sa.AsyncFunction):
    schema = "answer long"

    def __init__(self, place, error):
        self.place = place
        self.error = error

    async def open(self, context):
        self.fail_in("open")

    async def async_invoke(self, row):
        self.fail_in("call")
        return {"answer": 7}

    async def close(self):
        self.fail_in("close")

    def fail_in(self, place):
        if place == self.place:
            raise self.error


class Unreadable:
    def __reduce__(self):
        return fail_with_half, ()


def fail_with_half():
    raise ValueError(HALF)


def written_for_spark(run):
    """Returns the text that Spark's worker sends for the exception of `run`."""
    sent = io.BytesIO()
    try:
        run()
    except Exception as error:  # noqa: BLE001 - as Spark's worker does
        handle_worker_exception(error, sent)
    code, length = struct.unpack(">ii", sent.getvalue()[:8])
    text = sent.getvalue()[8:]
    assert (code, length) == (SpecialLengths.PYTHON_EXCEPTION_THROWN, len(text))
    return text.decode()


def task(function, **options):
    plan = resolve("ordered", function, input_schema=BATCH.schema, **options)
    return PartitionTask(Chain.of(plan))


@pytest.mark.parametrize("is_simplified", [False, True])
@pytest.mark.parametrize("error", [ValueError(HALF), UnencodableError(), sa.RetryAfter(0, HALF)])
@pytest.mark.parametrize("place", ["open", "call", "close"])
def test_half_a_character_reaches_the_driver_as_its_escape(
    place, error, is_simplified, monkeypatch
):
    if is_simplified:
        monkeypatch.setenv("SPARK_SIMPLIFIED_TRACEBACK", "1")
    run = task(Function(place, error), retry=0)

    told = written_for_spark(lambda: list(run(iter([BATCH]))))

    assert f"{type(error).__qualname__}: half \\ud83d" in told
    assert told.rstrip().splitlines()[-1].startswith("see ")


def test_notes_and_causes_of_causes_do_so_too():
    error = KeyError("outer")
    error.__cause__ = ValueError(HALF)
    error.__notes__ = [HALF]

    told = written_for_spark(lambda: list(task(Function("call", error), retry=0)(iter([BATCH]))))

    assert told.count("half \\ud83d") == 2
    assert "KeyError: 'outer'" in told


def test_what_a_function_raises_when_it_is_read_does_so_too():
    sealed = cloudpickle.dumps(task(Function("nowhere", Unreadable())))

    assert "ValueError: half \\ud83d" in written_for_spark(lambda: pickle.loads(sealed))  # noqa: S301


def test_an_encodable_cause_stays_the_cause():
    run = task(Function("call", ValueError("für 3 €")), retry=0)

    with pytest.raises(sa.AsyncIOError) as info:
        list(run(iter([BATCH])))

    assert isinstance(info.value.__cause__, ValueError)


@pytest.mark.parametrize("call", ["wait", "column"])
def test_a_query_ends_whose_error_has_half_a_character(spark, call):
    async def fail(row):
        raise ValueError(HALF)

    df = spark.range(3)
    if call == "wait":
        out = sa.ordered_wait(df, fail, schema="answer long")
    else:
        out = df.select(sa.async_udf("long")(fail)("id"))
    with pytest.raises(Exception, match=r"ValueError: half \\ud83d"):
        out.collect()
