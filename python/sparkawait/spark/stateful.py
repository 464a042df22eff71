# SPDX-License-Identifier: Apache-2.0
"""What a query keeps state for by ``applyInPandasWithState``, as its plan says on the driver.

A classic session has the plan in the JVM; the client of Spark Connect has its own, which it sends
as a whole. What is behind a name there, such as a view's, is known to the server only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sparkawait._plan.checks import refuse
from sparkawait._plan.plan import Plan
from sparkawait.exceptions import ErrorKind
from sparkawait.spark.metrics import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["check_only", "functions_with_state"]

_CLASSIC = "FlatMapGroupsInPandasWithState"
_CONNECT = "ApplyInPandasWithState"


def check_only(df: DataFrame, plan: Plan) -> None:
    """Checks that nothing before a call with `carry_over` keeps state as it does.

    Raises:
        ConfigurationError: If `df` was made by ``applyInPandasWithState``, of another call or not.
    """
    for name in functions_with_state(df):
        msg = (
            f"`carry_over` of `{plan.function_name}` comes behind `{name}`, and Spark admits one"
            " applyInPandasWithState in a query, which is what `carry_over` uses: give the second"
            " of two calls chain=True, on what the first one returned, so that they share it; or"
            " leave `carry_over` out; state of your own goes into transformWithState, or another"
            " query"
        )
        refuse(msg, ErrorKind.OPTION_INVALID)


def functions_with_state(df: DataFrame) -> list[str]:
    """Returns the names of the functions that `df` gives to ``applyInPandasWithState``, if any."""
    if is_connect(df.sparkSession):
        plan: Any = vars(df).get("_plan")
        found = (node for node in _nodes_here(plan) if type(node).__name__ == _CONNECT)
        return [_name_here(node) for node in found]
    jdf: Any = vars(df)["_jdf"]
    nodes = _nodes_of_jvm(jdf.queryExecution().analyzed())
    return [str(node.functionExpr().name()) for node in nodes if node.nodeName() == _CLASSIC]


def _name_here(node: Any) -> str:
    # Spark 3.5 calls it `_func`.
    function = getattr(node, "_function", None) or getattr(node, "_func", None)
    return str(getattr(function, "_function_name", _CONNECT))


def _nodes_of_jvm(plan: Any) -> Iterator[Any]:
    rest = [plan]
    while rest:
        node = rest.pop()
        yield node
        children = node.children()
        rest.extend(children.apply(index) for index in range(children.size()))


def _nodes_here(plan: Any) -> Iterator[Any]:
    """Yields a plan of the client and all below it, whichever attributes they are in."""
    from pyspark.sql.connect.plan import LogicalPlan

    rest = [plan]
    while rest:
        node = rest.pop()
        if isinstance(node, LogicalPlan):
            yield node
            rest.extend(vars(node).values())
        elif isinstance(node, Sequence) and not isinstance(node, (str, bytes)):
            rest.extend(node)
