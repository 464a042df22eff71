# SPDX-License-Identifier: Apache-2.0
"""No entry of the extension module lets a panic out."""

from pathlib import Path

import pytest

from tests.meta.repository import ROOT, tracked_files

SOURCES = tracked_files("rust/python/src/*.rs")
ENTRIES = ("#[pymethods]", "#[pyfunction]", "#[pyfunction(")


def unguarded(source: str) -> list[int]:
    """The lines of entries that `#[guarded]` does not stand in front of."""
    lines = [line.strip() for line in source.splitlines()]
    return [
        number
        for number, line in enumerate(lines, 1)
        if line.startswith(ENTRIES) and lines[number - 2] != "#[guarded]"
    ]


def test_an_entry_without_a_guard_is_found():
    assert unguarded("#[guarded]\n#[pymethods]\nimpl A {}\n\n#[pyfunction]\nfn b() {}") == [5]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_every_entry_is_guarded(path: Path):
    assert unguarded(path.read_text(encoding="utf-8")) == []


def test_what_is_imported_from_arrow_is_guarded():
    # Its conversion runs before the body of an entry; `FromArrow` is guarded.
    using = [path for path in SOURCES if "PyArrowType" in path.read_text(encoding="utf-8")]
    assert [path.relative_to(ROOT).as_posix() for path in using] == []


def test_there_are_entries_at_all():
    found = [path for path in SOURCES if "#[guarded]" in path.read_text(encoding="utf-8")]
    assert len(found) > 5
