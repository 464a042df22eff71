# SPDX-License-Identifier: Apache-2.0
"""Any options give a plan that keeps the rules, or a ConfigurationError; nothing else."""

import cloudpickle
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sparkawait import (
    ConfigurationError,
    OnError,
    Tuning,
    WatermarkStrategy,
    async_function,
    retry,
)
from sparkawait._plan.resolve import resolve_unpickled

INPUT = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us"))])

ANYTHING = (
    st.none()
    | st.booleans()
    | st.integers(-2, 200)
    | st.floats()
    | st.text(max_size=5)
    | st.lists(st.integers(), max_size=2)
)
DURATIONS = ANYTHING | st.sampled_from(["1s", "100ms", "2 min", "-1s"])
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "timeout": DURATIONS,
        "attempt_timeout": DURATIONS,
        "max_wait": DURATIONS,
        "capacity": ANYTHING,
        "max_concurrency": ANYTHING,
        "retry": ANYTHING | st.just(retry.fixed_delay(2, "1s")),
        "on_error": ANYTHING
        | st.sampled_from(["fail", "null", "drop", "capture"])
        | st.sampled_from(["why", "id", "y"]).map(lambda name: OnError("capture", column=name)),
        "on_timeout": ANYTHING | st.just({"y": 1}),
        "info": ANYTHING | st.sampled_from(["call", "error", "id", "y"]),
        "watermark": ANYTHING
        | st.sampled_from(["ts", "id", "nope"]).map(
            lambda column: WatermarkStrategy.for_bounded_out_of_orderness(column, "1s")
        ),
        "tuning": ANYTHING | st.builds(Tuning, max_rows=st.integers(1, 13), warm_up=st.booleans()),
        "schema": ANYTHING | st.sampled_from(["y int", "y bigint not null", "id int"]),
        "key": ANYTHING | st.sampled_from(["id", ["id", "ts"], "nope"]),
        "unknown": ANYTHING,
    },
)


@async_function("y bigint")
async def function(row):
    return {"y": 1}


@given(st.sampled_from(["ordered", "unordered", "key_ordered", "random"]), OPTIONS)
def test_options_are_refused_or_keep_the_rules(mode, options):
    try:
        plan = resolve_unpickled(mode, function, input_schema=INPUT, **options)
    except ConfigurationError:
        return
    assert 1 <= plan.max_concurrency <= plan.capacity
    assert plan.options.timeout is None or plan.options.timeout > 0
    assert plan.options.attempt_timeout is None or plan.options.attempt_timeout > 0
    if plan.options.timeout is not None and plan.options.attempt_timeout is not None:
        assert plan.options.attempt_timeout <= plan.options.timeout
    # Without `retry=` there are few, and each waits for a bounded time.
    asked = plan.options.retry is not None and not plan.options.retry.only_refused
    assert plan.options.timeout is not None or not asked
    assert (plan.key is not None) == (mode == "key_ordered")
    names = plan.output_schema(INPUT).names
    assert len(set(names)) == len(names)
    assert cloudpickle.loads(cloudpickle.dumps(plan)).output_schema(INPUT).names == names
