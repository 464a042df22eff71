# SPDX-License-Identifier: Apache-2.0
"""Every wrong argument is refused before anything starts, with its value and its rule."""

import sys
import threading
from datetime import timedelta

import cloudpickle
import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import (
    AsyncFunction,
    Batch,
    ConfigurationError,
    WaitOptions,
    WatermarkStrategy,
    retry,
)
from sparkawait._checks import warn_once
from sparkawait._plan.plan import Chain, Plan
from sparkawait._plan.resolve import resolve
from sparkawait.exceptions import ErrorKind
from sparkawait.functions import NativeFunction, async_function
from sparkawait.options import OPTIONS
from sparkawait.retry import ONLY_REFUSED

INPUT = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("name", pa.string())])


@async_function("y bigint")
async def double(row):
    return {"y": 1}


class Native(NativeFunction):
    result_schema = pa.schema([("y", pa.int64())])

    def _native(self, *, retry_misses):
        return "spec"


def plan(function=double, mode="ordered", input_schema=INPUT, **options):
    return resolve(mode, function, input_schema=input_schema, **options)


def watermark(column):
    return WatermarkStrategy.for_bounded_out_of_orderness(column, "1s")


def test_the_defaults_are_those_of_the_documentation():
    made = plan()
    options = made.options
    assert (options.timeout, options.attempt_timeout) == (60.0, None)
    assert (made.capacity, made.max_concurrency) == (800, 100)
    assert (options.retry, options.on_error, options.on_timeout) == (
        ONLY_REFUSED,
        sa.OnError("fail"),
        None,
    )
    assert (options.watermark, made.key) == (None, None)
    assert options.tuning.resolve() == ("auto", 8192, 64 << 20, None)
    assert options.tuning.warm_up is True


@pytest.mark.parametrize(
    ("mode", "given", "calls", "rows"),
    [
        ("ordered", {}, 100, 800),
        ("unordered", {}, 100, 100),
        ("key_ordered", {}, 100, 100),
        # As in Flink, where it is both.
        ("ordered", {"capacity": 30}, 30, 30),
        ("ordered", {"capacity": 5003}, 100, 5003),
        ("key_ordered", {"capacity": 101}, 100, 101),
        ("unordered", {"capacity": 30}, 30, 30),
        ("ordered", {"max_concurrency": 30}, 30, 240),
        ("unordered", {"max_concurrency": 30}, 30, 30),
        ("key_ordered", {"max_concurrency": 30}, 30, 30),
        ("ordered", {"max_concurrency": 30, "capacity": 40}, 30, 40),
        ("ordered", {"max_concurrency": 2**30}, 2**30, 2**31 - 1),
    ],
)
def test_the_rows_that_are_held_follow_the_calls(mode, given, calls, rows):
    key = {"key": "id"} if mode == "key_ordered" else {}
    made = plan(mode=mode, **key, **given)
    assert (made.max_concurrency, made.capacity) == (calls, rows)


def test_an_option_that_is_given_wins_over_that_of_a_set():
    usual = WaitOptions(timeout="5s", on_error="null", capacity=7)
    made = plan(options=usual, timeout="9s", capacity=8)
    assert (made.options.timeout, made.capacity) == (9.0, 8)
    assert made.options.on_error.action == "null"
    assert plan(options=usual, on_error="fail").options.on_error.action == "fail"
    assert (usual.timeout, usual.given["timeout"]) == (5.0, "5s")


def test_a_set_of_options_is_checked_when_it_is_made_and_stays_as_it_is():
    with pytest.raises(ConfigurationError, match="did you mean `capacity`"):
        WaitOptions(capasity=5)
    with pytest.raises(ConfigurationError, match="`timeout` must be positive"):
        WaitOptions(timeout=0)
    options = WaitOptions(timeout="5s")
    with pytest.raises(AttributeError, match="make another set"):
        options.timeout = 6
    assert repr(options) == "WaitOptions(timeout='5s')"
    assert options == WaitOptions(timeout="5s") != WaitOptions(timeout="6s")


def test_what_options_mean_together_is_checked_with_the_call():
    patient = WaitOptions(attempt_timeout="90s")
    with pytest.raises(ConfigurationError, match="must not be above `timeout`"):
        plan(options=patient)
    assert plan(options=patient, timeout="2min").options.attempt_timeout == 90.0
    with pytest.raises(ConfigurationError, match=r"must be a sparkawait\.WaitOptions, got `dict`"):
        plan(options={"timeout": 1})


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        (
            {"capacity": 0},
            "capacity-not-positive",
            "`capacity` must be an int of at least 1, got 0",
        ),
        ({"capacity": -5}, "capacity-not-positive", "got -5"),
        ({"capacity": True}, "capacity-not-positive", "must be an int of at least 1, got True"),
        (
            {"capacity": "9"},
            "capacity-not-positive",
            "a text with a unit such as '256 MB', got '9'",
        ),
        ({"capacity": "9 rows"}, "option-invalid", "`capacity` is not a size: '9 rows'"),
        ({"capacity": "0 MB"}, "option-invalid", "`capacity` must be at least 1 byte"),
        ({"capacity": 1.0}, "capacity-not-positive", "must be an int of at least 1, got 1.0"),
        ({"capacity": 2**40}, "capacity-not-positive", "must be at most"),
        ({"timeout": 0}, "timeout-not-positive", "None sets no bound"),
        ({"timeout": "-1s"}, "timeout-not-positive", "`timeout` must be positive"),
        ({"timeout": "soon"}, "duration-invalid", "'soon'"),
        ({"timeout": []}, "duration-invalid", "got `list`"),
        ({"attempt_timeout": 0}, "timeout-not-positive", "`attempt_timeout` must be positive"),
        ({"attempt_timeout": "2m"}, "attempt-timeout-too-long", "120 s and 60 s"),
        ({"max_concurrency": 0}, "max-concurrency-out-of-range", "sparkawait.PerJob, got 0"),
        ({"max_concurrency": 101, "capacity": 100}, "max-concurrency-out-of-range", "101 and 100"),
        ({"max_concurrency": False}, "max-concurrency-out-of-range", "must be an int"),
        ({"retry": "3"}, "retry-invalid", "made by sparkawait.retry, a number of retries"),
        (
            {"retry": retry.fixed_delay(1, 0), "timeout": None},
            "retry-needs-timeout",
            "`retry` needs a `timeout`, got None",
        ),
        ({"on_error": "ignore"}, "option-invalid", "'fail', 'null', 'drop', 'capture'"),
        ({"on_error": None}, "option-invalid", "got None"),
        ({"watermark": "ts"}, "watermark-invalid", "got 'ts'"),
        ({"watermark": watermark("nope")}, "column-missing", "column `nope`"),
        ({"watermark": watermark("id")}, "column-not-a-timestamp", "not a timestamp but bigint"),
        ({"tuning": 8192}, "option-invalid", "a sparkawait.Tuning, got 8192"),
        ({"max_rows_per_batch": 13}, "option-unknown", "`max_rows_per_batch`"),
        (
            {"setup_timeout": "1s"},
            "option-unknown",
            "an attribute of an AsyncFunction, whose `open`",
        ),
        ({"blocked_loop_timeout": "1s"}, "option-unknown", "@sa.async_function(..,"),
        ({"on_timeout": {"z": 1}}, "fallback-invalid", "column `y` is missing"),
        ({"on_timeout": "y"}, "fallback-invalid", "`on_timeout` does not fit"),
        ({"on_timeout": [], "timeout": None}, "fallback-invalid", "needs a `timeout`"),
        ({"on_timeout": double}, "fallback-invalid", "plain function"),
        ({"on_timeout": lambda: None}, "fallback-invalid", "takes no arguments by position"),
        ({"on_timeout": lambda row, x: {}}, "fallback-invalid", "but needs `x` too"),
        ({"schema": "y"}, "schema-invalid", "has no type"),
        ({"schema": "id int"}, "column-clash", "`id` is already a column of the input"),
        ({"schema": "error int", "on_error": "capture"}, "column-clash", "`error` has the name"),
        ({"error_column": "why"}, "option-unknown", "`error_column`"),
        ({"capasity": 5}, "option-unknown", "did you mean `capacity`"),
        ({"zzz": 5}, "option-unknown", "known are schema"),
        ({"key": "id"}, "option-unknown", "key_ordered_wait"),
    ],
    ids=repr,
)
def test_a_wrong_option_is_refused(options, kind, message):
    with pytest.raises(ConfigurationError) as info:
        plan(**options)
    assert info.value.kind == kind
    assert message in str(info.value)


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (None, "option-invalid"),
        ([], "option-invalid"),
        (5, "option-invalid"),
        (["id", 5], "option-invalid"),
        ("nope", "column-missing"),
        (["id", "nope"], "column-missing"),
    ],
)
def test_a_wrong_key_is_refused(key, kind):
    with pytest.raises(ConfigurationError) as info:
        plan(mode="key_ordered", key=key)
    assert info.value.kind == kind


def test_a_key_is_one_column_or_several():
    assert plan(mode="key_ordered", key="id").key == ("id",)
    assert plan(mode="key_ordered", key=["id", "name"]).key == ("id", "name")


# -- functions


class NotAsync(AsyncFunction):
    schema = "y bigint"

    def async_invoke(self, row):
        return {"y": 1}


class NoMethod(AsyncFunction):
    schema = "y bigint"


class NoBatchMethod(AsyncFunction):
    schema = "y bigint"
    batch = Batch()

    async def async_invoke(self, row):
        return {"y": 1}


class AsyncTimeout(AsyncFunction):
    schema = "y bigint"

    async def async_invoke(self, row):
        return {"y": 1}

    async def on_timeout(self, row):
        return []


class WrongBatch(AsyncTimeout):
    batch = "100"
    on_timeout = AsyncFunction.on_timeout


@pytest.mark.parametrize(
    ("function", "kind", "message"),
    [
        (None, "function-invalid", "got `NoneType`"),
        (NotAsync, "function-invalid", "pass an instance, NotAsync(..)"),
        (NoMethod(), "function-invalid", "must define `async_invoke`"),
        (NoBatchMethod(), "function-invalid", "must define `async_invoke_batch`"),
        (AsyncTimeout(), "function-invalid", "`AsyncTimeout.on_timeout` must be a plain function"),
        (WrongBatch(), "batch-invalid", "`WrongBatch.batch` must be a sparkawait.Batch, or an int"),
        (lambda row: {"y": 1}, "schema-missing", "has no schema"),
        (print, "schema-missing", "`print` has no schema"),
        (double.function, "schema-missing", "`double` has no schema"),
    ],
    ids=str,
)
def test_a_wrong_function_is_refused(function, kind, message):
    with pytest.raises(ConfigurationError) as info:
        plan(function)
    assert info.value.kind == kind
    assert message in str(info.value)


def test_an_unpicklable_function_is_refused_where_spark_will_send_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark.cloudpickle", cloudpickle)
    lock = threading.Lock()

    @async_function("y bigint")
    async def locked(row):
        with lock:
            return {"y": 1}

    with pytest.raises(ConfigurationError, match=r"make connections and locks in open\(\)") as info:
        plan(locked)
    assert info.value.kind is ErrorKind.FUNCTION_NOT_PICKLABLE
    assert isinstance(info.value.__cause__, TypeError)


def test_a_plan_survives_pickling():
    made = plan(
        mode="key_ordered",
        key="id",
        watermark=watermark("ts"),
        retry=retry.fixed_delay(3, "1s", if_exception=OSError),
        on_timeout=lambda row: {"y": row["id"]},
    )
    assert made.has_timeout_handler
    copy = cloudpickle.loads(cloudpickle.dumps(made))
    assert copy.output_schema(INPUT) == made.output_schema(INPUT)
    for name in ("retry", "watermark"):
        assert getattr(copy.options, name) == getattr(made.options, name)
    assert copy.key == made.key


def test_a_plain_async_function_takes_its_schema_from_the_option():
    assert plan(double.function, schema="z string").result_schema.names == ["z"]


def test_the_option_schema_overrides_the_functions():
    assert plan(double, schema="z string").result_schema.names == ["z"]


def test_durations_are_in_seconds():
    made = plan(timeout=timedelta(minutes=1), attempt_timeout="250ms").options
    assert (made.timeout, made.attempt_timeout) == (60.0, 0.25)


def test_no_timeout_is_none():
    assert plan(timeout=None).options.timeout is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("auto", 8192, 64 << 20, None)),
        ({"buffer_timeout": "7ms", "max_rows": 13}, (0.007, 13, 64 << 20, None)),
        ({"buffer_timeout": 0, "max_bytes": "3 KB"}, (0.0, 8192, 3072, None)),
        ({"buffer_timeout": None, "target_latency": "211ms"}, (None, 8192, 64 << 20, 0.211)),
    ],
)
def test_the_operator_is_told_how_its_output_leaves(given, expected):
    made = plan(tuning=sa.Tuning(**given)).operator_arguments(pa.schema([]))

    names = ("buffer_timeout", "max_rows_per_batch", "max_bytes_per_batch", "target_latency")
    told = ("auto", 0.0) if expected[0] == "auto" else expected[0]
    assert tuple(made[name] for name in names) == (told, *expected[1:])


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ({"buffer_timeout": -1}, "duration-invalid", "`buffer_timeout`"),
        ({"buffer_timeout": "automatic"}, "duration-invalid", "`buffer_timeout`"),
        ({"max_rows": 0}, "option-invalid", "of Tuning must be an int of at least 1, got 0"),
        ({"max_rows": "1"}, "option-invalid", "must be an int"),
        ({"max_bytes": "64 XB"}, "option-invalid", "not a size: '64 XB'"),
        ({"max_bytes": 0}, "option-invalid", "at least 1 byte"),
        ({"max_bytes": "2 GB"}, "option-invalid", "at most 2147483647 bytes"),
        ({"target_latency": 0}, "timeout-not-positive", "`target_latency`"),
        ({"warm_up": 0}, "option-invalid", "`warm_up` of Tuning must be a bool, got 0"),
    ],
)
def test_wrong_tuning_is_refused(given, kind, message):
    with pytest.raises(sa.ConfigurationError) as caught:
        sa.Tuning(**given)
    assert caught.value.kind == kind
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("given", "first"),
    [
        ({"max_concurrency": 1_009}, (1_009, 1)),
        ({"capacity": 1_009, "max_concurrency": 31}, (31, 1)),
        ({"tuning": sa.Tuning(warm_up=False)}, None),
        # Rows leave in full batches only, however few are wanted.
        ({"tuning": sa.Tuning(buffer_timeout=None)}, None),
    ],
)
def test_a_task_is_told_with_how_many_calls_it_may_begin(given, first):
    schema = pa.schema([("x", pa.int64())])
    made = plan(**given)

    assert made.operator_arguments(schema)["warm_up"] == first
    assert made.operator_arguments(schema, is_wanted=True)["warm_up"] is None


# -- schemas


def test_the_output_is_the_input_and_the_returned_columns():
    metadata = {b"spark.watermarkDelayMs": b"1"}
    schema = pa.schema([INPUT.field("ts").with_metadata(metadata)], metadata={"a": "b"})
    output = plan().output_schema(schema)
    assert output.names == ["ts", "y"]
    assert output.field("ts").metadata == metadata
    assert output.metadata == {b"a": b"b"}


def test_a_plan_may_leave_the_input_columns_out():
    assert plan(keeps_input=False, schema="id int").output_schema(INPUT).names == ["id"]


def test_capture_adds_the_error_column():
    output = plan(on_error="capture").output_schema(INPUT)
    assert output.names[-1] == "error"
    names = [field.name for field in output.field("error").type]
    assert names == ["kind", "message", "attempts", "status"]


@pytest.mark.parametrize(
    ("on_error", "nullable"), [("fail", False), ("drop", False), ("null", True), ("capture", True)]
)
def test_returned_columns_are_nullable_where_a_failed_row_leaves_them_empty(on_error, nullable):
    made = plan(schema="y bigint not null", on_error=on_error)
    assert made.output_schema(INPUT).field("y").nullable is nullable


def test_an_input_with_a_column_twice_is_refused():
    with pytest.raises(ConfigurationError, match="column `a` twice"):
        plan(input_schema=pa.schema([("a", pa.int8()), ("a", pa.int8())]))


@pytest.mark.parametrize(
    "column",
    [
        pa.field("a\0b", pa.int8()),
        pa.field("s", pa.list_(pa.struct([pa.field("a\0b", pa.int8())]))),
    ],
    ids=["column", "field"],
)
def test_a_name_that_cannot_be_sent_is_refused(column):
    with pytest.raises(
        ConfigurationError, match=r"column or field 'a\\x00b', with the character NUL"
    ):
        plan(input_schema=pa.schema([column, ("a", pa.int8())]))


def test_the_input_is_checked_later_when_it_is_not_known_yet():
    made = plan(input_schema=None, schema="id int")
    with pytest.raises(ConfigurationError, match="already a column"):
        Chain.of(made).output_schema(INPUT)


# -- native functions and the operator


def test_a_native_function_describes_itself_in_the_executor():
    assert plan(Native()).operator_arguments(INPUT)["native"] == "spec"


@pytest.mark.parametrize(
    "options",
    [
        {"schema": "y int"},
        {"retry": retry.fixed_delay(1, 0, if_exception=OSError)},
        {"on_timeout": []},
    ],
    ids=["schema", "predicate", "fallback"],
)
def test_python_options_are_refused_for_a_native_function(options):
    with pytest.raises(ConfigurationError, match="native function"):
        plan(Native(), **options)


def test_the_operator_gets_what_was_given():
    strategy, behind = retry.exponential_backoff(3, "1s", "9s"), watermark("ts")
    made = plan(
        mode="key_ordered",
        key="id",
        watermark=behind,
        retry=strategy,
        max_concurrency=7,
    )
    arguments = made.operator_arguments(INPUT)
    assert (arguments["retry"], arguments["watermark"]) == (strategy, behind)
    assert arguments["key"] == ["id"]
    assert arguments["max_concurrency"] == 7
    assert arguments["function_name"] == "double"


def test_rows_that_wait_for_a_batch_are_in_flight_for_the_operator():
    batched = async_function("y bigint", batch=Batch(max_rows=9))(double.function)
    arguments = plan(batched, max_concurrency=2).operator_arguments(INPUT)
    assert (arguments["max_concurrency"], arguments["capacity"]) == (18, 18)
    arguments = plan(batched, max_concurrency=2, capacity=100).operator_arguments(INPUT)
    assert arguments["max_concurrency"] == 18


def test_each_task_has_its_own_seed():
    assert plan().operator_arguments(INPUT)["seed"] != plan().operator_arguments(INPUT)["seed"]


@pytest.mark.parametrize(
    ("mode", "given", "expected"),
    [
        ("ordered", {"capacity": "1 MB"}, (100, 100, 1 << 20)),
        ("unordered", {"capacity": "2.5 GiB", "max_concurrency": 7}, (7, 7, 5 << 29)),
        ("key_ordered", {"capacity": "100 b", "key": INPUT.names[0]}, (100, 100, 100)),
        ("ordered", {"capacity": 30}, (30, 30, None)),
    ],
)
def test_a_capacity_in_bytes_bounds_completed_rows_and_leaves_the_calls(mode, given, expected):
    made = plan(mode=mode, **given)
    assert (made.max_concurrency, made.capacity, made.capacity_bytes) == expected
    arguments = made.operator_arguments(INPUT)
    assert (arguments["capacity"], arguments["capacity_bytes"]) == expected[1:]


# -- calls that nobody asked for


@pytest.fixture
def told(caplog):
    warn_once.cache_clear()
    yield lambda: [it.getMessage() for it in caplog.records if "`capacity` is" in it.getMessage()]
    warn_once.cache_clear()


def test_a_capacity_without_a_number_of_calls_is_told_once(told):
    for _ in range(3):
        assert plan(capacity=1009).max_concurrency == 100
    (message,) = told()
    assert "`capacity` is 1009, the rows that a task holds, and it makes 100 calls" in message
    # Both ways out are silent, and mean what the message says.
    assert plan(capacity=1009, max_concurrency=1009).max_concurrency == 1009
    assert plan(capacity=1009, max_concurrency=100).max_concurrency == 100
    assert told() == [message]


@pytest.mark.parametrize(
    "given", [{}, {"capacity": 100}, {"capacity": 31}, {"capacity": "7 MB"}], ids=repr
)
def test_a_capacity_that_asks_for_no_more_calls_is_not_told(told, given):
    plan(**given)
    assert told() == []


# -- what is checked when


def test_only_what_is_given_is_checked_in_a_call(monkeypatch):
    seen = []
    for name, option in OPTIONS.items():
        assert option.usual == getattr(WaitOptions(), name)  # checked by now
        noted = _Noted(option.check, seen)
        monkeypatch.setattr(option, "check", noted)
    patient = WaitOptions(timeout="31s", attempt_timeout="7s")
    assert seen == ["timeout", "attempt_timeout"]
    made = plan(options=patient, max_concurrency=7)
    assert seen == ["timeout", "attempt_timeout", "max_concurrency"]
    assert (made.options.timeout, made.max_concurrency) == (31.0, 7)


class _Noted:
    def __init__(self, check, seen):
        self.check, self.seen = check, seen

    def __call__(self, value, name):
        self.seen.append(name)
        return self.check(value, name)


def test_each_plan_of_a_task_is_made_once_and_no_field_of_it_is_replaced(monkeypatch):
    made, init = [], Plan.__init__

    def noted(self, *args, **given):
        init(self, *args, **given)
        made.append(self.name)

    monkeypatch.setattr(Plan, "__init__", noted)
    chain = Chain.of(plan())
    other = double.with_options(schema="z bigint")
    chain = chain.then(plan([double, other], input_schema=None, taken=chain.names))
    assert made == ["double", "double#2", "double#2#2", "[double, double#2]"]
    assert [it.function_name for it in chain.operators] == [made[0], made[3], *made[1:3]]
