# SPDX-License-Identifier: Apache-2.0
"""Rust and Python name the same kinds of error, and the documentation explains each."""

import re

from sparkawait import _core
from sparkawait.exceptions import ErrorKind
from tests.meta.repository import ROOT


def test_rust_and_python_list_the_same_kinds():
    assert sorted(_core.error_kinds()) == sorted(kind.value for kind in ErrorKind)


def test_a_kind_is_listed_once():
    assert len(_core.error_kinds()) == len(set(_core.error_kinds()))


def test_each_kind_has_a_part_in_the_documentation_with_its_cause_and_what_to_do_next():
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    parts = dict(re.findall(r"^### (\S+)\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL))
    assert sorted(parts) == sorted(kind.value for kind in ErrorKind)
    assert [
        kind for kind, part in parts.items() if not re.search(r"\w.*\n\n\*Next:\* ", part)
    ] == []
