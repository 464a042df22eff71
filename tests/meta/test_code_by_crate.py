# SPDX-License-Identifier: Apache-2.0
"""Machine code is counted to the crate that it is of."""

import pytest

from tools.code_by_crate import by_crate, crate_of
from tools.shares import shares


def mangled(*path):
    """Returns the symbol that the compiler makes of a path."""
    parts = [*path, "h3a79ed21464024d5"]
    return "_ZN" + "".join(f"{len(part)}{part}" for part in parts) + "E"


@pytest.mark.parametrize(
    ("symbol", "crate"),
    [
        (mangled("arrow_row", "list", "encode"), "arrow_row"),
        (mangled("_$LT$rustls..Codec$u20$as$u20$core..fmt..Debug$GT$", "fmt"), "rustls"),
        (mangled("core", "ptr", "drop_in_place$LT$tokio..runtime..Runtime$GT$"), "tokio"),
        (mangled("_$LT$alloc..string..String$u20$as$u20$x$GT$", "y"), "standard library"),
        (mangled("std", "io", "Write", "write_fmt"), "standard library"),
        # The standard library comes compiled, with symbols of the newer form.
        ("_RNvNtNtCs4vhPdRjlYlo_4core3fmt9formatter3pad", "standard library"),
        ("_RNvXs_NtCsi4oS1vHUkQ5_9addr2line4lineNtB4_5Lines4next", "addr2line"),
        ("ring_core_0_17_14__aes_nohw_encrypt", "C and assembly"),
    ],
)
def test_code_is_of_the_crate_that_its_symbol_names(symbol, crate):
    assert crate_of(symbol) == crate


def test_the_crates_are_all_of_the_code():
    found = by_crate([(mangled("a", "b"), 600), ("memcpy", 300), ("memset", 95)])

    _, _, *rows = shares(found, 1000, "crate", "code").splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]

    assert found == {"a": 600, "C and assembly": 395}
    assert [name for name, _, _ in cells] == ["a", "C and assembly", "all else"]
    assert round(sum(float(share.rstrip("%")) for _, _, share in cells)) == 100
