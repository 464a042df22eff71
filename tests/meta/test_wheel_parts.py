# SPDX-License-Identifier: Apache-2.0
"""What a wheel is made of is said of all of it."""

import zipfile

from tools import wheel_parts


def test_the_parts_of_a_wheel_are_the_whole_of_it(tmp_path):
    wheel = tmp_path / "one.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("it/__init__.py", b"a" * 600)
        archive.writestr("it/more.py", b"b" * 100)
        archive.writestr("it-1.dist-info/licenses/TEXTS", b"c" * 300)

    _, _, *rows = wheel_parts.table(wheel).splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]

    assert wheel_parts.parts(wheel) == {"Python code": 700, "TEXTS": 300}
    assert [name for name, _, _ in cells] == ["Python code", "TEXTS", "all else"]
    assert round(sum(float(share.rstrip("%")) for _, _, share in cells)) == 100
