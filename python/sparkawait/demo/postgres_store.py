# SPDX-License-Identifier: Apache-2.0
# asyncpg has no types, and PyArrow's stubs leave much of its types open:
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
"""The tables of the demo in a PostgreSQL database, in a schema of their own.

The schema is dropped when the demo ends. A demo that is killed leaves it: ``sparkawait_demo_..``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any
from uuid import uuid4

import pyarrow as pa

from sparkawait.demo.data import Dataset
from sparkawait.demo.errors import DemoError
from sparkawait.demo.functions import postgres_lookups
from sparkawait.demo.service import Service
from sparkawait.secrets import Secret

__all__ = ["postgres_store"]

_SQL_TYPES = {pa.float64(): "double precision", pa.int64(): "bigint", pa.string(): "text"}
_KEYS = {"weather": ("origin", "time_hour"), "aircraft": ("tailnum",)}


@contextmanager
def postgres_store(url: Secret, dataset: Dataset) -> Generator[Service]:
    """Yields a database that has the tables as long as the body runs.

    Raises:
        DemoError: If it cannot be written to, or asyncpg is not installed.
    """
    if find_spec("asyncpg") is None:
        raise DemoError("the package `asyncpg` is missing; run `pip install 'sparkawait[demo]'`")
    schema = f"sparkawait_demo_{uuid4().hex}"

    async def load(connection: Any) -> None:
        async with connection.transaction():
            await connection.execute(f"create schema {schema}")
            for name, keys in _KEYS.items():
                await _load(connection, schema, name, keys, getattr(dataset, name))

    async def drop(connection: Any) -> None:
        await connection.execute(f"drop schema {schema} cascade")

    _run(url, load)
    try:
        yield Service("PostgreSQL", postgres_lookups(url, schema))
    finally:
        _run(url, drop)


async def _load(
    connection: Any, schema: str, name: str, keys: tuple[str, ...], table: pa.Table
) -> None:
    columns = [f"{field.name} {_SQL_TYPES[field.type]}" for field in table.schema]
    primary = f"primary key ({', '.join(keys)})"
    await connection.execute(f"create table {schema}.{name} ({', '.join(columns)}, {primary})")
    records = zip(*(column.to_pylist() for column in table.columns), strict=True)
    await connection.copy_records_to_table(
        name, schema_name=schema, columns=table.column_names, records=records
    )
    await connection.execute(f"analyze {schema}.{name}")


def _run(url: Secret, work: Callable[[Any], Any]) -> None:
    import asyncpg

    async def connected() -> None:
        connection: Any = await asyncpg.connect(url.reveal())
        try:
            await work(connection)
        finally:
            await connection.close()

    try:
        asyncio.run(connected())
    except ValueError:
        # The message may quote parts of the address.
        raise DemoError("the address of PostgreSQL is not one that asyncpg can read") from None
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise DemoError(f"the tables cannot be written to PostgreSQL: {error}") from error
