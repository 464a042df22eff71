# SPDX-License-Identifier: Apache-2.0
"""Keys of maps that Python tells apart, and the column does not."""

from datetime import date, datetime

from sparkawait._schema.ddl import parse_schema
from sparkawait._values.results import ResultBuilder


def test_of_keys_that_are_one_in_the_column_the_last_counts():
    """Alone, and beside a map that needs nothing done."""
    nan, day = float("nan"), date(2024, 7, 1)
    midnight = datetime.fromisoformat("2024-07-01")
    for ddl, value, stored in (
        ("map<double,int>", {nan: 1, 0.5: 2, -nan: 3}, [(nan, 3), (0.5, 2)]),
        ("map<float,int>", {0.1: 1, 0.10000000149011612: 2}, [(0.10000000149011612, 2)]),
        ("map<date,int>", {day: 1, midnight: 2}, [(day, 2)]),
        ("map<struct<d: date, n: int>,int>", {(day, 7): 1, (midnight, 7): 2, (day, 8): 3}, None),
        ("map<array<double>,int>", {(nan, None): 1, (-nan, None): 2, (nan,): 3}, None),
    ):
        for others in ([], [{"a": None}, {"a": {}}]):
            results = [{"a": value}, *others]
            builder = ResultBuilder(parse_schema(f"a {ddl}"))
            built = builder.build(list(range(len(results))), results)
            assert built.failures == []
            (found, *_) = built.batch.to_pylist()
            if stored is None:
                assert [item for _, item in found["a"]] == [2, 3]
            else:
                assert repr(found["a"]) == repr(stored).replace("-nan", "nan")
