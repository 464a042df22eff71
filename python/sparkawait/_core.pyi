# SPDX-License-Identifier: Apache-2.0
# Signatures of the extension module; the public classes are documented in the `.py` modules.

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any, final

import pyarrow as pa

@final
class Row(Mapping[str, Any]):
    """One row of an Arrow batch; cells are converted when they are asked for."""

    @property
    def id(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    def __getitem__(self, name: str, /) -> Any: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...
    def keys(self) -> KeysView[str]: ...
    def values(self) -> ValuesView[Any]: ...
    def items(self) -> ItemsView[str, Any]: ...

@final
class Port:
    """The connection of a task to the event loop thread."""

    def fileno(self) -> int: ...
    def take(self) -> tuple[list[Row], list[int], list[Row]] | None: ...
    def complete(
        self,
        rows: list[Row],
        results: pa.RecordBatch,
        counts: list[int] | None,
        retry: list[bool] | None,
    ) -> None: ...
    def fail(
        self, row: Row, error: BaseException, kind: str, retry: bool, delay: float | None
    ) -> None: ...

@final
class Task:
    """The operator of one Spark task over record batches."""

    def __init__(
        self,
        *,
        mode: str,
        input_schema: pa.Schema,
        result_schema: pa.Schema,
        capacity: int,
        max_concurrency: int,
        timeout: float | None,
        attempt_timeout: float | None,
        retry: tuple[int, float, float, float, bool] | None,
        key: list[str] | None,
        on_error: str,
        output: str,
        has_timeout_handler: bool,
        watermark: tuple[str, float] | None,
        buffer_timeout: float | None,
        max_rows_per_batch: int,
        partition: int,
        function_name: str,
        seed: int,
        native: object | None,
    ) -> None: ...
    @property
    def port(self) -> Port: ...
    def put(self, batch: pa.RecordBatch) -> bool: ...
    def put_end(self) -> None: ...
    def put_failure(self, error: BaseException) -> None: ...
    def next(self) -> pa.RecordBatch | None: ...
    def close(self) -> None: ...
    def metrics(self) -> dict[str, int | float | list[tuple[float, int]]]: ...

def error_kinds() -> list[str]:
    """Lists the kinds of error that Rust knows."""
