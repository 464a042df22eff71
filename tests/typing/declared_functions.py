# SPDX-License-Identifier: Apache-2.0
# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
"""A declared function has the parameters and the result of the function that it wraps.

Nothing runs it. A call with a wrong type is marked; the mark is an error where none is found.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import assert_type

import sparkawait as sa


@dataclass
class Customer:
    """What a lookup returns."""

    name: str
    tier: int


@sa.async_function
async def lookup(row: sa.Row, retries: int = 3) -> Customer:
    """Declared without parentheses."""
    return Customer(row["name"], retries)


@sa.async_function("name string", idempotent=True)
async def name_of(row: sa.Row) -> dict[str, str]:
    """Declared with a schema."""
    return {"name": row["id"]}


@sa.async_function("name string", batch=sa.Batch(max_rows=7))
async def names_of(rows: Sequence[sa.Row]) -> list[str]:
    """Declared for batches."""
    return [row["id"] for row in rows]


@sa.async_function("name string")
def plain(row: sa.Row, retries: int = 3) -> str:
    """Is called in threads."""
    return row["id"] * retries


@sa.blocking("size long", threads=7)
def blocking(row: sa.Row) -> int:
    """The same, in so many."""
    return len(row["id"])


async def accepted(row: sa.Row) -> None:
    """What a test of the functions writes."""
    assert_type(await lookup(row, retries=5), Customer)
    assert_type(await name_of(row), dict[str, str])
    assert_type(await names_of([row]), list[str])
    assert_type((await lookup(row)).tier, int)
    assert_type(plain(row, retries=5), str)
    assert_type(blocking(row), int)
    assert_type(sa.blocking(len, threads=7)("abc"), int)
    assert_type(name_of.with_options(timeout="7ms"), sa.FunctionWithOptions)


async def refused(row: sa.Row) -> None:
    """A wrong argument, or a result taken for another."""
    await lookup(row, retries="5")  # pyright: ignore[reportArgumentType]
    await lookup(row, attempts=5)  # pyright: ignore[reportCallIssue]
    await name_of()  # pyright: ignore[reportCallIssue]
    await names_of(row["id"], 7)  # pyright: ignore[reportCallIssue]
    plain(row, attempts=5)  # pyright: ignore[reportCallIssue]
    assert_type(await lookup(row), str)  # pyright: ignore[reportAssertTypeFailure]
