# SPDX-License-Identifier: Apache-2.0
"""Rust and Python name the same kinds of error."""

from sparkawait import _core
from sparkawait.exceptions import ErrorKind


def test_rust_and_python_list_the_same_kinds():
    assert sorted(_core.error_kinds()) == sorted(kind.value for kind in ErrorKind)


def test_a_kind_is_listed_once():
    assert len(_core.error_kinds()) == len(set(_core.error_kinds()))
