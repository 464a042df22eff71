# SPDX-License-Identifier: Apache-2.0
"""The columns of a function that says what it returns by its annotation."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, InitVar, dataclass, field, fields
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    Optional,
    TypedDict,
    TypeVar,
)
from uuid import UUID

import attrs
import pyarrow as pa
import pytest
from typing_extensions import NotRequired, Required

import sparkawait as sa
from sparkawait import arrow
from sparkawait._plan.resolve import resolve_unpickled
from sparkawait._schema.classes import _GIVEN, _defaults_of, _names_of
from sparkawait._schema.ddl import parse_schema
from sparkawait._values.records import fields_of

Money = Annotated[Decimal, "decimal(10,2)"]
CustomerId = NewType("CustomerId", int)


class Tier(str, Enum):
    GOLD = "gold"


class Level(IntEnum):
    HIGH = 1


@dataclass
class Address:
    city: str
    zips: list[int]


@dataclass
class Customer:
    id: CustomerId
    name: str | None
    address: Address | None
    tags: dict[str, float | None]
    owed: Money


class Named(NamedTuple):
    x: int
    y: Optional[str]  # noqa: UP045 - the older way to write it


class Typed(TypedDict):
    x: int
    y: str | None


class Half(TypedDict, total=False):
    x: Required[int]
    y: str


class Marked(TypedDict):
    x: int
    y: NotRequired[str]


T = TypeVar("T")


@dataclass
class Page(Generic[T]):
    x: T
    many: list[T | None]
    named: dict[str, T]


@attrs.define
class Attrs:
    x: int
    y: str | None


class Model:
    """As a model of pydantic is."""

    model_fields = {"x": ..., "y": ...}  # noqa: RUF012
    x: int
    y: str | None

    def model_dump(self):
        return {"x": 1, "y": None}


def schema_of(function, **options):
    return resolve_unpickled("ordered", function, input_schema=None, **options).declared_schema


def returning(annotation, **options):
    async def found(row):
        return None

    found.__qualname__ = found.__name__ = "found"
    found.__annotations__["return"] = annotation
    return sa.async_function(**options)(found)


def test_a_dataclass_that_came_by_value_has_its_fields():
    """The cloudpickle of Spark 3.5 copies the objects that mark what is a field."""

    @dataclass
    class Sent:
        kept: ClassVar[int] = 7
        scale: InitVar[int]
        word: str
        many: list[str] = field(default_factory=list)
        count: int = 3

    missing = type(MISSING)()
    for it in Sent.__dataclass_fields__.values():
        it._field_type = copy.copy(it._field_type)
        it.default = missing if it.default is MISSING else it.default
        it.default_factory = missing if it.default_factory is MISSING else it.default_factory
    assert fields(Sent) == ()

    assert _names_of(Sent) == ["word", "many", "count"]
    assert _defaults_of(Sent) == {"many": _GIVEN, "count": 3}
    assert fields_of(Sent(1, "w")) == {"word": "w", "many": [], "count": 3}


def test_a_dataclass_names_its_columns():
    @sa.async_function
    async def lookup(row) -> Customer:
        return Customer(1, "Ada", Address("London", [1]), {"a": 1.0}, Decimal("1.20"))

    element = pa.field("element", pa.int64(), nullable=False)
    address = pa.struct(
        [
            pa.field("city", pa.string(), nullable=False),
            pa.field("zips", pa.list_(element), nullable=False),
        ]
    )
    expected = [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("address", address),
        pa.field("tags", pa.map_(pa.string(), pa.float64()), nullable=False),
        pa.field("owed", pa.decimal128(10, 2), nullable=False),
    ]
    assert schema_of(lookup) == pa.schema(expected)
    (out,) = arrow.ordered_wait([pa.RecordBatch.from_pydict({"x": [1]})], lookup)
    assert out.to_pylist(maps_as_pydicts="strict") == [
        {
            "x": 1,
            "id": 1,
            "name": "Ada",
            "address": {"city": "London", "zips": [1]},
            "tags": {"a": 1.0},
            "owed": Decimal("1.20"),
        }
    ]


@pytest.mark.parametrize("form", [Named, Typed, Attrs, Model], ids=lambda form: form.__name__)
@pytest.mark.parametrize("many", [False, True], ids=["one", "list"])
def test_a_class_of_rows_names_its_columns(form, many):
    annotation = list[form] if many else form
    assert schema_of(returning(annotation)) == parse_schema("x bigint not null, y string")


@pytest.mark.parametrize("form", [Half, Marked])
def test_a_key_that_a_dict_need_not_have_is_a_column_that_is_null(form):
    schema = schema_of(returning(form))
    assert [(it.name, it.type, it.nullable) for it in schema] == [
        ("x", pa.int64(), False),
        ("y", pa.string(), True),
    ]

    async def found(row):
        return [{"x": 1}, {"x": 1, "y": "z"}, {"y": "z"}][row.id % 3]

    found.__annotations__["return"] = form
    rows = pa.table({"id": list(range(31))})
    out = arrow.ordered_wait(rows, found, on_error="capture").to_table()

    texts = [None if i % 3 == 0 else "z" if i % 3 == 1 else "failed" for i in range(31)]
    found = ["failed" if row["error"] else row["y"] for row in out.to_pylist()]
    assert found == texts
    assert "column `x` is missing" in out["error"].to_pylist()[2]["message"]


def test_a_generic_class_has_the_columns_of_what_it_was_given():
    schema = schema_of(returning(Page[int]))

    element = pa.field("element", pa.int64())
    value = pa.field("value", pa.int64(), nullable=False)
    assert schema == pa.schema(
        [
            pa.field("x", pa.int64(), nullable=False),
            pa.field("many", pa.list_(element), nullable=False),
            pa.field("named", pa.map_(pa.string(), value), nullable=False),
        ]
    )


@pytest.mark.parametrize(
    ("annotation", "ddl"),
    [
        (int, "bigint not null"),
        ("int | None", "bigint"),
        (Optional[float], "double"),  # noqa: UP045
        (bool, "boolean not null"),
        (str, "string not null"),
        (bytes, "binary not null"),
        (date, "date not null"),
        (datetime, "timestamp not null"),
        (timedelta, "interval day to second not null"),
        (Money, "decimal(10,2) not null"),
        (Money | None, "decimal(10,2)"),
        (Annotated[int, "int"], "int not null"),
        (Annotated[int, 5], "bigint not null"),
        (CustomerId, "bigint not null"),
        (Tier, "string not null"),
        (Level, "bigint not null"),
        (Literal["a", "b"], "string not null"),
        (Literal["a", None], "string"),  # noqa: PYI061 - as people write it
        (Literal["a"] | None, "string"),
        (Annotated[Decimal | None, "decimal(10,2)"], "decimal(10,2)"),
        (Annotated[Annotated[int | None, 5], 7], "bigint"),
    ],
    ids=str,
)
def test_a_scalar_is_a_column_named_like_the_function(annotation, ddl):
    assert schema_of(returning(annotation)) == parse_schema(f"found {ddl}")


def test_a_time_is_one_of_a_day():
    assert schema_of(returning(time)).field("found").type == pa.time64("ns")


def test_a_scalar_is_returned_as_it_is():
    @sa.async_function
    async def doubled(row) -> int | None:
        return row.x * 2 if row.x else None

    batch = pa.RecordBatch.from_pydict({"x": [1, 0]})
    (out,) = arrow.ordered_wait([batch], doubled, tuning=sa.Tuning(buffer_timeout=None))
    assert out.to_pylist() == [{"x": 1, "doubled": 2}, {"x": 0, "doubled": None}]


def test_a_batched_function_returns_a_list_of_results():
    batch = sa.Batch(max_rows=2)
    assert schema_of(returning(list[Named], batch=batch)).names == ["x", "y"]
    assert schema_of(returning(Sequence[int], batch=batch)) == parse_schema("found bigint not null")
    assert schema_of(returning(list[list[Named]], batch=batch)).names == ["x", "y"]


def test_methods_partials_and_objects_are_read_too():
    class Service(sa.AsyncFunction):
        async def async_invoke(self, row) -> Named:
            return Named(1, None)

    class Callable:
        async def __call__(self, row) -> Named:
            return Named(1, None)

    async def with_client(row, client) -> Named:
        return Named(1, None)

    for function in (Service(), Callable(), functools.partial(with_client, client=1)):
        assert schema_of(function).names == ["x", "y"]


def test_a_schema_that_is_given_goes_first():
    function = returning(UUID)
    assert schema_of(function, schema="a int").names == ["a"]


def test_a_local_class_that_the_function_makes_is_found():
    @dataclass
    class Local:
        x: int

    @sa.async_function()
    async def lookup(row) -> Local:
        return Local(1)

    assert schema_of(lookup).names == ["x"]


@pytest.mark.parametrize(
    "annotation",
    [
        None,
        Any,
        dict,
        dict[str, Any],
        dict[str, int],
        Mapping[str, Any],
        list,
        list[dict[str, Any]],
        "dict | None",
    ],
    ids=str,
)
def test_an_annotation_that_names_no_columns_is_no_schema(annotation):
    with pytest.raises(sa.ConfigurationError, match="`found` has no schema") as info:
        schema_of(returning(annotation))
    assert info.value.kind is sa.exceptions.ErrorKind.SCHEMA_MISSING


@dataclass
class Tree:
    children: list[Tree]


@dataclass
class Unclear:
    price: Decimal
    any: Any


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (Unclear, r"`Unclear`, that is `Decimal` for `price`, .* write Annotated\[Decimal, 'dec"),
        (Decimal, r"return `Decimal`, of no precision; write Annotated"),
        (UUID, "return `UUID`, which is not a type of Spark; give a schema"),
        (int | str, r"return `int \| str`, which is not a type of Spark"),
        (list[str], r"return `list\[str\]`, which may be rows or one array; give a schema"),
        (Named | None, "but None is not a row; return \\[\\] for none"),
        (Tree, "for `children.element`, which contains itself"),
        ("Unknown", "needs `Unknown`, which its module does not have"),
    ],
    ids=str,
)
def test_an_annotation_without_a_type_in_spark_is_refused(annotation, words):
    with pytest.raises(sa.ConfigurationError, match=words) as info:
        schema_of(returning(annotation))
    assert info.value.kind is sa.exceptions.ErrorKind.SCHEMA_INVALID
