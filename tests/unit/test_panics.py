# SPDX-License-Identifier: Apache-2.0
"""A panic of the extension module is an ordinary exception."""

import pytest

from sparkawait import _core
from sparkawait.exceptions import ErrorKind, InternalError

panicking = getattr(_core, "_panicking", None)


@pytest.mark.skipif(panicking is None, reason="only a debug build has what panics when asked to")
def test_a_panic_in_an_entry_is_an_internal_error(capfd):
    with pytest.raises(InternalError) as info:
        panicking("out of luck")

    assert isinstance(info.value, Exception)
    assert info.value.kind is ErrorKind.INTERNAL
    assert str(info.value) == "the extension module panicked: out of luck; please report this"


def test_an_entry_that_returns_no_result_returns_what_it_did():
    assert _core.Debloater(10, 0.1).period == 0.2
    assert "internal" in _core.error_kinds()
