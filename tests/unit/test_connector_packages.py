# SPDX-License-Identifier: Apache-2.0
"""Connectors that other packages bring."""

from __future__ import annotations

import sys
from pathlib import Path

import cloudpickle
import pyarrow as pa
import pytest

import sparkawait as sa

PIGEON = """
import sparkawait as sa

class Get(sa.AsyncFunction):
    schema = "v bigint"

    def __init__(self, times):
        self.times = times

    async def async_invoke(self, row):
        return {"v": self.times * row["x"]}

def get(times):
    return Get(times)
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Installs a package: its name, its entry points, and the modules in it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    names: list[str] = []

    def install(package: str, points: str, **modules: str) -> None:
        folder = tmp_path / f"{package}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[sparkawait.connectors]\n{points}\n")
        for name, text in modules.items():
            names.append(name)
            (tmp_path / f"{name}.py").write_text(text)

    yield install
    for name in names:
        sys.modules.pop(name, None)


def test_a_connector_of_another_package_is_called_like_our_own(packages) -> None:
    packages("carrier-pigeon", "pigeon = pigeon_connector", pigeon_connector=PIGEON)

    function = sa.connector("pigeon").get(7)

    rows = pa.record_batch({"x": range(13)})
    out = sa.arrow.ordered_wait([rows], function, max_concurrency=3)
    expected = [{"x": x, "v": 7 * x} for x in range(13)]
    assert [row for batch in out for row in batch.to_pylist()] == expected
    # As it travels to executors that have the package, too.
    assert b"async def" not in cloudpickle.dumps(function)


def test_a_connector_that_nobody_brings_is_refused_with_those_that_there_are(packages) -> None:
    packages("carrier-pigeon", "pigeon = pigeon_connector", pigeon_connector=PIGEON)

    words = "no installed package brings a connector `dove`; installed ones: `pigeon`;"
    with pytest.raises(sa.ConfigurationError, match=words):
        sa.connector("dove")


def test_a_name_that_two_packages_claim_is_refused(packages) -> None:
    packages("carrier-pigeon", "pigeon = one", one=PIGEON)
    packages("homing-pigeon", "pigeon = two", two=PIGEON)

    words = "several packages bring a connector `pigeon`: `carrier-pigeon`, `homing-pigeon`"
    with pytest.raises(sa.ConfigurationError, match=words):
        sa.connector("pigeon")


def test_a_connector_that_cannot_be_imported_says_why_and_whose_it_is(packages) -> None:
    packages("lame-pigeon", "lame = lame_connector", lame_connector="raise OSError('no wings')")

    with pytest.raises(sa.ConfigurationError, match=r"`lame` of `lame-pigeon`.*no wings") as raised:
        sa.connector("lame")
    assert isinstance(raised.value.__cause__, OSError)
