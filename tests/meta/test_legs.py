# SPDX-License-Identifier: Apache-2.0
"""What the Makefile names is all that there is: a test that no leg reads never fails."""

import re

from tests.meta.repository import ROOT, tracked_files

MARK = re.compile(r"\bmark\.spark\b")


def read_by_the_leg_on_spark() -> list[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    [places] = re.findall(r"^ON_SPARK := (.*)$", makefile, re.MULTILINE)
    return places.split()


def test_tests_that_need_spark_are_read_by_the_leg_that_has_it():
    places = read_by_the_leg_on_spark()
    marked = [
        path.relative_to(ROOT)
        for path in tracked_files("tests/**/test_*.py")
        if MARK.search(path.read_text(encoding="utf-8"))
    ]
    assert len(marked) > 50
    assert [
        str(path) for path in marked if not any(path.is_relative_to(place) for place in places)
    ] == []
