# SPDX-License-Identifier: Apache-2.0
"""What the tests of this folder share beside Spark."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.calls import CallLog, Once, Presence, Watch


@pytest.fixture
def calls(tmp_path: Path) -> CallLog:
    return CallLog(tmp_path / "calls")


@pytest.fixture
def once(tmp_path: Path) -> Once:
    return Once(tmp_path / "once")


@pytest.fixture
def presence(tmp_path: Path) -> Presence:
    return Presence(tmp_path / "presence")


@pytest.fixture
def watch(presence: Presence) -> Iterator[Watch]:
    watch = presence.watch()
    yield watch
    watch.close()
