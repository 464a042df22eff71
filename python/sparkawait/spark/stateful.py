# SPDX-License-Identifier: Apache-2.0
"""What a query keeps state for and observes, as its plan says on the driver.

A classic session has the plan in the JVM; the client of Spark Connect has its own, which it sends
as a whole. What is behind a name there, such as a view's, is known to the server only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sparkawait._emission import CarryOver
from sparkawait._plan.checks import refuse
from sparkawait._plan.plan import Plan, numbered
from sparkawait.exceptions import ErrorKind
from sparkawait.spark.metrics import is_connect
from sparkawait.spark.vehicle import way_to_a_second

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


OBSERVED = "sparkawait"
"""What a query's progress calls the numbers of its rows in flight."""

_CLASSIC = "FlatMapGroupsInPandasWithState"
_CONNECT = "ApplyInPandasWithState"
_OBSERVING = "CollectMetrics"


def check_only(df: DataFrame, plan: Plan, carry_over: CarryOver) -> None:
    """Checks that nothing before a call with `carry_over` keeps state as it does.

    Raises:
        ConfigurationError: If `df` was made by ``applyInPandasWithState``, of another call or not,
            and the call would use it, too.
    """
    if carry_over.vehicle == "transform_with_state":
        return
    for name in functions_with_state(df):
        msg = (
            f"`carry_over` of `{plan.function_name}` comes behind `{name}`, and Spark admits one"
            " applyInPandasWithState in a query, which is what `carry_over` uses: give the second"
            " of two calls chain=True, on what the first one returned, so that they share it; or"
            f" {way_to_a_second(df.sparkSession)}leave `carry_over` out; state of your own goes"
            " into transformWithState, or another query"
        )
        refuse(msg, ErrorKind.OPTION_INVALID)


def functions_with_state(df: DataFrame) -> list[str]:
    """Returns the names of the functions that `df` gives to ``applyInPandasWithState``, if any."""
    if is_connect(df.sparkSession):
        return [_function_here(node) for node in _nodes_here(df) if _is(node, _CONNECT)]
    nodes = _nodes_of_jvm(df)
    return [str(node.functionExpr().name()) for node in nodes if node.nodeName() == _CLASSIC]


def observed_as(df: DataFrame, function_name: str, name: str | None) -> str:
    """Returns what the progress calls the numbers of a call on `df`.

    Args:
        df: What comes before it.
        function_name: The function's.
        name: What the user has called it.

    Raises:
        ConfigurationError: If something before it is called as the user has said.
    """
    taken = set(_observed(df))
    if name is None:
        own = OBSERVED if OBSERVED not in taken else f"{OBSERVED}_{function_name}"
        return numbered(own, taken)
    own = f"{OBSERVED}_{name}"
    if own in taken:
        msg = (
            f"`name` of CarryOver is {name!r}, as that of a call before `{function_name}`, and the"
            " progress of a query has one of a name; give it another"
        )
        refuse(msg, ErrorKind.OPTION_INVALID)
    return own


def _observed(df: DataFrame) -> Iterator[str]:
    if is_connect(df.sparkSession):
        for node in _nodes_here(df):
            if _is(node, _OBSERVING):
                yield str(getattr(node, "_observation", None) or getattr(node, "_name", ""))
        return
    for node in _nodes_of_jvm(df):
        if node.nodeName() == _OBSERVING:
            yield str(node.name())


def _is(node: Any, kind: str) -> bool:
    return type(node).__name__ == kind


def _function_here(node: Any) -> str:
    # Spark 3.5 calls it `_func`.
    function = getattr(node, "_function", None) or getattr(node, "_func", None)
    return str(getattr(function, "_function_name", _CONNECT))


def _nodes_of_jvm(df: DataFrame) -> Iterator[Any]:
    jdf: Any = vars(df)["_jdf"]
    rest = [jdf.queryExecution().analyzed()]
    while rest:
        node = rest.pop()
        yield node
        children = node.children()
        rest.extend(children.apply(index) for index in range(children.size()))


def _nodes_here(df: DataFrame) -> Iterator[Any]:
    """Yields the plan of the client and all below it, whichever attributes they are in."""
    from pyspark.sql.connect.plan import LogicalPlan

    plan: Any = vars(df).get("_plan")
    rest = [plan]
    while rest:
        node = rest.pop()
        if isinstance(node, LogicalPlan):
            yield node
            rest.extend(vars(node).values())
        elif isinstance(node, Sequence) and not isinstance(node, (str, bytes)):
            rest.extend(node)
