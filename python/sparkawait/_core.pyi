# SPDX-License-Identifier: Apache-2.0
# Signatures of the extension module; the public classes are documented in the `.py` modules.

from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Literal, TypeAlias, final

import pyarrow as pa
from typing_extensions import Self

__all__ = [
    "VERSION",
    "Debloater",
    "Harness",
    "Log",
    "LookupServer",
    "Native",
    "Port",
    "ResultColumns",
    "Row",
    "Task",
    "_panicking",
    "announced_delay",
    "describe_postgres",
    "error_kinds",
    "header_seconds",
    "host_columns",
    "template_columns",
]

VERSION: str

@final
class Row(Mapping[str, Any]):
    """One row of an Arrow batch: a mapping by column name, whose columns are attributes too.

    Cells are converted when they are asked for.
    """

    @property
    def __sparkawait_attempt__(self) -> int: ...
    @property
    def __sparkawait_channel__(self) -> int | None: ...
    def __getattribute__(self, name: str, /) -> Any: ...
    def __getitem__(self, name: str, /) -> Any: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...
    def __or__(self, other: Mapping[str, Any], /) -> dict[str, Any]: ...
    def __ror__(self, other: Mapping[str, Any], /) -> dict[str, Any]: ...
    def get(self, name: str, default: Any = None, /) -> Any: ...
    def keys(self) -> KeysView[str]: ...
    def values(self) -> ValuesView[Any]: ...
    def items(self) -> ItemsView[str, Any]: ...
    def asDict(self, recursive: bool = False) -> dict[str, Any]: ...  # noqa: N802 - Spark's name

@final
class ResultColumns:
    """Columns of plain types, read from dicts."""

    @staticmethod
    def of(schema: pa.Schema, required: list[str]) -> ResultColumns | None: ...

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
    def try_complete(
        self, columns: ResultColumns, rows: list[Row], results: list[object]
    ) -> bool: ...
    def fail(
        self, row: Row, error: BaseException, kind: str, retry: bool, delay: float | None
    ) -> None: ...

@final
class Task:
    """The operator of one Spark task over record batches."""

    def __new__(
        cls,
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
        error_column: str,
        output: str,
        has_timeout_handler: bool,
        watermark: tuple[str, float, int | None] | None,
        buffer_timeout: float | tuple[Literal["auto"], float] | None,
        max_rows_per_batch: int,
        max_bytes_per_batch: int,
        partition: int,
        function_name: str,
        seed: int,
        native: Native | None,
        cache: tuple[str, int | None, int | None, float | None, float | None, bool, list[str]]
        | None,
        channels: tuple[
            list[str], bool, int, int, int, int, int, tuple[int, int, float | None] | None
        ]
        | None,
        target_latency: float | None,
        warm_up: tuple[int, int] | None,
    ) -> Self: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def port(self) -> Port: ...
    def put(self, batch: pa.RecordBatch) -> bool: ...
    def put_end(self) -> None: ...
    def put_failure(self, error: BaseException) -> None: ...
    def next(self, patience: float | None = None) -> pa.RecordBatch | None: ...
    def close(self) -> None: ...
    def metrics(self) -> dict[str, Any]: ...

@final
class Debloater:
    """Sizes batches so that a target latency is met."""

    def __new__(cls, max_rows: int, target: float) -> Self: ...
    @property
    def period(self) -> float: ...
    def measure(self, rows: int, elapsed: float, in_use: int) -> int: ...

@final
class Log:
    """The lines that Rust logs in this process."""

    def __new__(cls, level: int) -> Self: ...
    def fileno(self) -> int: ...
    def take(self) -> tuple[list[tuple[int, str]], int]: ...

@final
class LookupServer:
    """The server of `sparkawait.testing`."""

    def __new__(
        cls,
        *,
        latency: tuple[str, float, float, float, float],
        faults: tuple[float, float, float, float | None],
        port: int,
        seed: int,
    ) -> Self: ...
    @property
    def port(self) -> int: ...
    def add_table(self, name: str, entries: list[tuple[str, bytes]]) -> None: ...
    def stats(self) -> dict[str, int]: ...
    def set_latency(self, latency: tuple[str, float, float, float, float]) -> None: ...
    def set_faults(self, faults: tuple[float, float, float, float | None]) -> None: ...
    def stop(self) -> None: ...

@final
class Native:
    """The description of a native function, as a task takes it."""

    def check(self, columns: pa.Schema, results: pa.Schema) -> None: ...
    def concurrency(self) -> int | None: ...
    @staticmethod
    def simulated(
        *,
        latency: tuple[str, float, float, float, float],
        error_rate: float,
        seed: int,
        timestamps: bool,
    ) -> Native: ...
    @staticmethod
    def http(description: str) -> Native: ...
    @staticmethod
    def postgres(description: str) -> Native: ...
    @staticmethod
    def redis(description: str) -> Native: ...

_Settings: TypeAlias = tuple[
    str,
    int,
    int,
    float | None,
    float | None,
    tuple[int, float, float, float, bool] | None,
    bool,
]

@final
class Harness:
    """The operator and its mailbox under a manual clock; values are numbers."""

    def __new__(cls, settings: _Settings) -> Self: ...
    @staticmethod
    def restore(
        snapshot: bytes,
        settings: _Settings,
        load: Callable[[str, bytes], int],
        key_of: Callable[[int], int | None],
    ) -> Harness: ...
    def snapshot(self, dump: Callable[[str, int], bytes]) -> bytes: ...
    def process_element(self, token: int, timestamp: int | None, key: int | None) -> bool: ...
    def process_watermark(self, timestamp: int) -> None: ...
    def complete(self, entry: int, attempt: int, token: int, retry: bool) -> None: ...
    def fail(
        self, entry: int, attempt: int, token: int, retry: bool, delay: float | None
    ) -> None: ...
    def run(self) -> None: ...
    def take_events(self) -> list[tuple[str, int, int, int, int | None]]: ...
    def next_timer(self) -> int | None: ...
    def set_now(self, nanos: int) -> None: ...
    def awaits(self, entry: int, attempt: int) -> bool: ...
    def end_input(self) -> None: ...
    def close(self) -> None: ...
    @property
    def finished(self) -> bool: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def queue_size(self) -> int: ...
    @property
    def active_timers(self) -> int: ...
    @property
    def pending_retries(self) -> int: ...

def _panicking(message: str) -> int: ...  # in debug builds only
def announced_delay(headers: dict[str, str], is_refused: bool) -> float | None: ...
def header_seconds(text: str) -> float | None: ...
def error_kinds() -> list[str]: ...
def describe_postgres(description: str) -> pa.Schema: ...
def host_columns(url: str) -> tuple[list[str], bool]: ...
def template_columns(text: str, option: str) -> list[str]: ...
