# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a call is said by the call, on the driver, before Spark does anything."""

import inspect
import threading

import pytest

import sparkawait as sa
from sparkawait import retry
from sparkawait._plan import options
from sparkawait.exceptions import ErrorKind
from sparkawait.spark import Metrics

pytestmark = pytest.mark.spark


@sa.async_function("doubled bigint")
async def double(row):
    return {"doubled": 2 * row["id"]}


@pytest.fixture
def numbers(spark):
    return spark.range(3)


@pytest.mark.parametrize("wait", [sa.ordered_wait, sa.unordered_wait])
@pytest.mark.parametrize(
    ("option", "kind"),
    [
        ({"capacity": 0}, ErrorKind.CAPACITY_NOT_POSITIVE),
        ({"timeout": 0}, ErrorKind.TIMEOUT_NOT_POSITIVE),
        ({"timeout": "5 parsecs"}, ErrorKind.DURATION_INVALID),
        ({"timeout": None, "retry": retry.fixed_delay(1, 0)}, ErrorKind.RETRY_NEEDS_TIMEOUT),
        ({"max_concurrency": 101}, ErrorKind.MAX_CONCURRENCY_OUT_OF_RANGE),
        ({"on_error": "ignore"}, ErrorKind.OPTION_INVALID),
        ({"output": "prepend"}, ErrorKind.OPTION_INVALID),
        ({"schema": "id bigint"}, ErrorKind.COLUMN_CLASH),
        ({"schema": "doubled unknown"}, ErrorKind.SCHEMA_INVALID),
        ({"watermark": "time"}, ErrorKind.WATERMARK_INVALID),
        (
            {"watermark": sa.WatermarkStrategy.for_bounded_out_of_orderness("time", 0)},
            ErrorKind.COLUMN_MISSING,
        ),
        ({"metrics": {}}, ErrorKind.OPTION_INVALID),
    ],
    ids=repr,
)
def test_a_wrong_option_is_refused_by_the_call(numbers, wait, option, kind):
    with pytest.raises(sa.ConfigurationError) as info:
        wait(numbers, double, **option)
    assert info.value.kind is kind


def test_a_key_that_is_no_column_is_refused(numbers):
    with pytest.raises(sa.ConfigurationError, match="`key` names column `name`"):
        sa.key_ordered_wait(numbers, double, key="name")


def test_a_function_without_schema_is_refused(numbers):
    async def nameless(row):
        return {}

    with pytest.raises(sa.ConfigurationError, match="has no schema"):
        sa.ordered_wait(numbers, nameless)


def test_a_function_that_cannot_be_sent_is_refused(numbers):
    lock = threading.Lock()

    @sa.async_function("doubled bigint")
    async def locked(row):
        with lock:
            return {"doubled": 1}

    with pytest.raises(sa.ConfigurationError, match="make connections and locks in open") as info:
        sa.ordered_wait(numbers, locked)
    assert info.value.kind is ErrorKind.FUNCTION_NOT_PICKLABLE


def test_what_is_no_dataframe_is_refused():
    with pytest.raises(sa.ConfigurationError, match="`df` must be a DataFrame, got `list`"):
        sa.ordered_wait([1, 2, 3], double)


def test_metrics_are_refused_on_connect():
    session_of_connect = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()

    with pytest.raises(sa.ConfigurationError, match="needs a classic session"):
        Metrics(session_of_connect)


def test_nothing_is_called_before_the_query_runs(numbers, calls):
    @sa.async_function("doubled bigint")
    async def note(row):
        calls.add("call")
        return {"doubled": 2 * row["id"]}

    out = sa.ordered_wait(numbers, note)
    assert out.columns == ["id", "doubled"]

    with pytest.raises(FileNotFoundError):
        calls.counts()


@pytest.mark.parametrize("wait", [sa.ordered_wait, sa.unordered_wait, sa.key_ordered_wait])
def test_signatures_show_every_option_with_its_default(wait):
    parameters = inspect.signature(wait).parameters
    shown = {name: one.default for name, one in parameters.items() if one.kind is one.KEYWORD_ONLY}

    assert shown.pop("metrics") is None
    if wait is sa.key_ordered_wait:
        assert shown.pop("key") is inspect.Parameter.empty
    assert shown == options._DEFAULTS
