# SPDX-License-Identifier: Apache-2.0
"""The documentation says what the tests hold to."""

from tests.types.document import FILE, render


def test_the_page_is_what_the_tables_say():
    assert FILE.read_text(encoding="utf-8") == render(), "run `python -m tests.types.document`"
