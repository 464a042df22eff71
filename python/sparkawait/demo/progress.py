# SPDX-License-Identifier: Apache-2.0
"""Shows how far a run is: a live bar on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["progress"]

_POLL_SECONDS = 0.2
_LINE_SECONDS = 10.0


@contextmanager
def progress(
    console: Console, title: str, total: int, done: Callable[[], int | None]
) -> Generator[None]:
    """Shows, while the body runs, how many of `total` rows `done` returns.

    Args:
        console: Where to.
        title: What runs.
        total: Rows of the run.
        done: Returns the rows so far, or ``None`` if that is not known; called on a thread of the
            progress.
    """
    show = _bar if console.is_terminal else _lines
    stopped = threading.Event()
    thread = threading.Thread(
        target=show, args=(console, title, total, done, stopped), name="progress", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def _bar(
    console: Console,
    title: str,
    total: int,
    done: Callable[[], int | None],
    stopped: threading.Event,
) -> None:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rows, {task.fields[rate]:,.0f} rows/s"),
        TimeElapsedColumn(),
    )
    start = monotonic()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None, rate=0.0)
        while not stopped.wait(_POLL_SECONDS):
            rows = done()
            if rows is not None:
                rate = rows / (monotonic() - start)
                bar.update(task, completed=min(rows, total), total=total, rate=rate)


def _lines(
    console: Console,
    title: str,
    total: int,
    done: Callable[[], int | None],
    stopped: threading.Event,
) -> None:
    while not stopped.wait(_LINE_SECONDS):
        rows = done()
        if rows is not None:
            console.print(f"{title}: {min(rows, total):,} of {total:,} rows")
