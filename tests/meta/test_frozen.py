# SPDX-License-Identifier: Apache-2.0
"""Classes of the extension module are frozen.

A class that is not frozen is borrowed at run time, and a second borrow from another thread raises.
"""

import re

from tests.meta.repository import ROOT

# class: why it cannot be frozen
EXCEPTIONS: dict[str, str] = {}

PYCLASS = re.compile(r"#\[pyclass(?:\((?P<options>[^\]]*)\))?\]", re.DOTALL)
NAME = re.compile(r"\b(?:struct|enum)\s+(\w+)")


def classes_by_frozen() -> dict[str, bool]:
    found = {}
    for path in (ROOT / "rust" / "python" / "src").rglob("*.rs"):
        source = path.read_text(encoding="utf-8")
        for match in PYCLASS.finditer(source):
            name = NAME.search(source, match.end())
            assert name, f"no class after {match.group()} in {path}"
            found[name.group(1)] = "frozen" in (match["options"] or "")
    return found


def test_every_class_is_frozen():
    thawed = {name for name, frozen in classes_by_frozen().items() if not frozen}
    assert thawed == set(EXCEPTIONS)


def test_classes_are_found():
    assert classes_by_frozen()
