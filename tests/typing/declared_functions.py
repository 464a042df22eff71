# SPDX-License-Identifier: Apache-2.0
# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
"""A declared function has the parameters and the result of the function that it wraps.

Nothing runs it. A call with a wrong type is marked; the mark is an error where none is found.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column
from typing_extensions import assert_type

import sparkawait as sa


@dataclass
class Customer:
    """What a lookup returns."""

    name: str
    tier: int


@sa.async_function
async def lookup(row: sa.typing.Row, retries: int = 3) -> Customer:
    """Declared without parentheses."""
    return Customer(row["name"], retries)


@sa.async_function("name string", idempotent=True)
async def name_of(row: sa.typing.Row) -> dict[str, str]:
    """Declared with a schema."""
    return {"name": row["id"]}


@sa.async_function("name string", batch=sa.Batch(max_rows=7))
async def names_of(rows: Sequence[sa.typing.Row]) -> list[str]:
    """Declared for batches."""
    return [row["id"] for row in rows]


@sa.async_function("name string")
def plain(row: sa.typing.Row, retries: int = 3) -> str:
    """Is called in threads."""
    return row["id"] * retries


@sa.async_function("size long", threads=7)
def in_threads(row: sa.typing.Row) -> int:
    """The same, in so many."""
    return len(row["id"])


@sa.async_function("name string", timeout="5s", retry=3, on_error="null", threads=None)
async def with_options(row: sa.typing.Row) -> str:
    """Declared with options."""
    return row["id"]


async def accepted(row: sa.typing.Row, column: Column) -> None:
    """What a test of the functions writes."""
    assert_type(await lookup(row, retries=5), Customer)
    assert_type(await name_of(row), dict[str, str])
    assert_type(await names_of([row]), list[str])
    assert_type((await lookup(row)).tier, int)
    assert_type(plain(row, retries=5), str)
    assert_type(in_threads(row), int)
    assert_type(sa.async_function(len, threads=7)("abc"), int)
    assert_type(name_of.with_options(timeout="7ms", threads=3), sa.typing.FunctionWithOptions)
    assert_type(await with_options(row), str)
    # A `Column`, whose type only packages with PySpark know.
    assert_type(lookup(column), Any)
    assert_type(lookup(column, "name", tier=column), Any)
    assert_type(plain("name", column), Any)
    assert_type(in_threads(column), Any)


async def refused(row: sa.typing.Row) -> None:
    """A wrong argument, or a result taken for another."""
    await lookup(row, retries="5")  # pyright: ignore[reportCallIssue, reportArgumentType]
    await lookup(row, attempts=5)  # pyright: ignore[reportArgumentType]
    await name_of()  # pyright: ignore[reportCallIssue]
    await names_of(row["id"], 7)  # pyright: ignore[reportCallIssue, reportArgumentType]
    plain(row, attempts=5)  # pyright: ignore[reportArgumentType]
    sa.async_function("name string", timeout=b"5s")  # pyright: ignore[reportCallIssue, reportArgumentType]
    sa.async_function("name string", capacity=5)  # pyright: ignore[reportCallIssue]
    assert_type(await lookup(row), str)  # pyright: ignore[reportAssertTypeFailure]
