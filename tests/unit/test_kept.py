# SPDX-License-Identifier: Apache-2.0
"""Values and columns of another type than is wanted: one rule for both, of each pair of types."""

from __future__ import annotations

import itertools
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from sparkawait._values.conversion import Misfit, conversion_to
from sparkawait._values.kept import kept_as

TOKYO = timezone(timedelta(hours=9))
NAIVE = datetime.fromisoformat
WHOLE = [0, 7, -1, 127, 128, 2**24 + 1, 2**53 + 1, 2**63 - 1]
NUMBERS = [0.0, 7.0, 1.5, -3.0, 1e300, 3.4028235677973366e38, 5e-324]
NOT_NUMBERS = [float("nan"), float("inf"), float("-inf")]
MOMENTS = [NAIVE("2026-01-01"), NAIVE("1969-12-31T05:30:07"), NAIVE("2026-03-29T02:30:00.000007")]
DAYS = [date(2026, 1, 1), date(1582, 10, 4), date(9999, 12, 31)]
TEXTS = ["", "5", "naïve", "2026-01-01", "true"]
LONG = [timedelta(days=-1), timedelta(milliseconds=1), timedelta(microseconds=7)]
HOURS = [time(5, 30), time(5, 30, 7, 1000), time(5, 30, 7, 7)]

VALUES: dict[Any, list[Any]] = {
    pa.bool_(): [True, False],
    pa.int8(): WHOLE,
    pa.int64(): WHOLE,
    pa.uint64(): [*WHOLE, 2**63],
    pa.float32(): [*NUMBERS[:4], *NOT_NUMBERS],
    pa.float64(): [*NUMBERS, *NOT_NUMBERS],
    pa.decimal128(3, 0): [Decimal(100), Decimal(-7)],
    pa.decimal128(10, 2): [Decimal("1.50"), Decimal("7.00"), Decimal("12345678.90")],
    pa.decimal128(38, 18): [Decimal("1.5"), Decimal(2) ** 63, Decimal("1E-18")],
    pa.string(): TEXTS,
    pa.large_string(): TEXTS,
    pa.binary(): [b"", b"5", b"\xff"],
    pa.large_binary(): [b"", b"5", b"\xff"],
    pa.date32(): DAYS,
    pa.timestamp("s"): MOMENTS,
    pa.timestamp("us"): MOMENTS,
    pa.timestamp("ns"): MOMENTS,
    pa.timestamp("us", "UTC"): [it.replace(tzinfo=timezone.utc) for it in MOMENTS],
    pa.timestamp("ms", "+09:00"): [it.replace(tzinfo=TOKYO) for it in MOMENTS],
    pa.time32("ms"): HOURS,
    pa.time64("us"): HOURS,
    pa.duration("ms"): LONG,
    pa.duration("us"): LONG,
}
FORMS: dict[str, tuple[Any, Any]] = {
    "alone": (lambda it: it, lambda it: it),
    "in a list": (pa.list_, lambda it: [it]),
    "in a struct": (lambda it: pa.struct([("a", it)]), lambda it: {"a": it}),
    "in a map": (lambda it: pa.map_(pa.string(), it), lambda it: {"k": it}),
}


def held(values: list[Any], data_type: Any) -> list[Any]:
    """Returns the arrays of one value that a type has."""
    arrays = []
    for value in values:
        try:
            array = pa.array([value], data_type)
        except (pa.ArrowException, ValueError, OverflowError):
            continue
        if repr(array.to_pylist()[0]) == repr(value) or array.to_pylist()[0] == value:
            arrays.append(array)
    return arrays


def shown(make: Any) -> str | None:
    """Returns what is made, with its type; ``None`` if it is refused."""
    try:
        array = make()
    except (Misfit, pa.ArrowException, ValueError, OverflowError):
        return None
    return f"{array.type} {array}"


def converted(array: Any, wanted: Any, *, keeps_all: bool) -> Any:
    conversion = conversion_to(wanted, keeps_all=keeps_all)
    values = [
        dict(it) if isinstance(it, list) and isinstance(it[0], tuple) else it
        for it in array.to_pylist()
    ]
    return pa.array(conversion.all(values), wanted)


@pytest.mark.parametrize("keeps_all", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_a_column_keeps_what_a_value_of_it_alone_would_be_kept_as(form, keeps_all):
    of_type, of_value = FORMS[form]
    kept = refused = 0
    for came, wanted in itertools.product(VALUES, VALUES):
        for one in held(VALUES[came], came):
            array = pa.array([of_value(one.to_pylist()[0])], of_type(came))
            goal = of_type(wanted)
            as_column = shown(lambda a=array, w=goal: kept_as(a, w, keeps_all=keeps_all))
            as_value = shown(lambda a=array, w=goal: converted(a, w, keeps_all=keeps_all))
            assert as_column == as_value, (came, wanted, one)
            kept += as_column is not None
            refused += as_column is None
    assert min(kept, refused) > 300


def test_what_is_kept_is_what_a_safe_cast_of_pyarrow_makes():
    kept = 0
    for came, wanted in itertools.product(VALUES, VALUES):
        for array in held(VALUES[came], came):
            ours = shown(lambda a=array, w=wanted: kept_as(a, w, keeps_all=True))
            oracle = shown(lambda a=array, w=wanted: a.cast(w))
            if ours is not None and pa.types.is_integer(came) and pa.types.is_decimal(wanted):
                continue  # it looks at the types alone
            assert ours in {None, oracle}, (came, wanted, array)
            kept += ours is not None
    assert kept > 200


@pytest.mark.parametrize("came", [pa.bool_(), pa.string(), pa.binary(), pa.date32()])
@pytest.mark.parametrize("wanted", [pa.int64(), pa.float64(), pa.timestamp("us"), pa.time64("us")])
def test_what_says_something_else_there_is_refused_whatever_its_value(came, wanted):
    with pytest.raises(Misfit):
        kept_as(pa.nulls(3, came), wanted)
    assert kept_as(pa.nulls(3), wanted).null_count == 3
