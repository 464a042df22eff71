# SPDX-License-Identifier: Apache-2.0
"""Runs the lookups of documents: reads their blocks as JSON, by document, and prints what came out.

What a block makes are the DataFrames that it assigns to a name, or leaves as an expression.
"""

from __future__ import annotations

import ast
import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import sparkawait as sa


@sa.async_function("name string, tier string")
async def customer_of(row: Any) -> dict[str, Any]:
    """Is what a document calls a function of the reader's own."""
    name, tier = {7: ("Ann", "gold"), 8: ("Bob", "silver")}.get(row["customer_id"], (None, None))
    return {"name": name, "tier": tier}


def frames(block: str, names: dict[str, Any]) -> list[DataFrame]:
    """Runs one block."""
    made: list[Any] = []
    for statement in ast.parse(block).body:
        if isinstance(statement, ast.Expr):
            expression = ast.Expression(statement.value)
            made.append(eval(compile(expression, "document", "eval"), names))  # noqa: S307
        else:
            exec(compile(ast.Module([statement], []), "document", "exec"), names)  # noqa: S102
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                made.append(names[statement.targets[0].id])
    return [it for it in made if isinstance(it, DataFrame)]


def main() -> None:
    """Runs all blocks in one Spark."""
    documents: dict[str, list[str]] = json.load(sys.stdin)
    spark = (
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    )
    orders = spark.createDataFrame(
        [(1, 7), (2, 8), (3, 9), (4, None)], "order_id int, customer_id int"
    )
    found: dict[str, list[Any]] = {}
    for document, blocks in documents.items():
        names = {"sa": sa, "orders": orders, "customer_of": customer_of}
        made = [frame for block in blocks for frame in frames(block, names)]
        found[document] = [[row.asDict(recursive=True) for row in it.collect()] for it in made]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
