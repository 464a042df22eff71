# SPDX-License-Identifier: Apache-2.0
"""Classes as schemas of native functions; pydantic's own `TypeAdapter` says what is right."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import unquote

import attrs
import cloudpickle
import pyarrow as pa
import pytest
from typing_extensions import NotRequired, TypedDict

import sparkawait as sa
from tests.support.scripted_server import ScriptedServer

CLIENT = sa.http.Client(proxy=False)


def get(url: str, schema: Any, **options: Any) -> sa.typing.NativeFunction:
    return sa.http.get(url + "/{id}", schema, client=CLIENT, **options)


def asked(schema: Any, documents: list[Any], how: str = "left", **options: Any) -> pa.Table:
    """Returns what comes of documents; None is answered with 404."""

    def answer(target: str, _: int) -> tuple[int, dict[str, str], bytes]:
        document = documents[int(unquote(target).rsplit("/", 1)[-1])]
        return (404, {}, b"") if document is None else (200, {}, json.dumps(document).encode())

    with ScriptedServer(answer) as server:
        function = get(server.url, schema, how=how)
        rows = pa.table({"id": range(len(documents))})
        return sa.arrow.ordered_wait(rows, function, retry=0, **options).to_table()


def found(out: pa.Table, *columns: str) -> list[Any]:
    names = columns or [name for name in out.column_names if name not in ("id", "error")]
    rows = out.select(list(names)).to_pylist()
    return [tuple(row.values()) for row in rows]


# -- classes that say no more than types do


@dataclass
class Address:
    city: str
    zips: list[int]


@dataclass
class Customer:
    name: str
    address: Address | None
    since: date | None = None


class Typed(TypedDict):
    name: str
    tier: NotRequired[int]


class Named(NamedTuple):
    name: str
    tier: int | None = None


@attrs.define
class Attrs:
    name: str
    tier: int | None = None


def test_a_dataclass_is_a_schema_without_python_a_row():
    documents = [
        {"name": "Ann", "address": {"city": "Oslo", "zips": [7]}, "since": "2024-02-29"},
        {"name": "Bob", "address": None},
        None,
        {"address": {"city": "Rome", "zips": []}},
        {"name": "Dan", "address": {"city": "Rome"}},
    ]
    assert get("http://host", Customer).rules is None
    out = asked(Customer, documents, on_error="capture")
    assert found(out) == [
        ("Ann", {"city": "Oslo", "zips": [7]}, date(2024, 2, 29)),
        ("Bob", None, None),
        *[(None, None, None)] * 3,
    ]
    assert [it and it["kind"] for it in out["error"].to_pylist()][2:] == [
        None,
        *["result-schema-mismatch"] * 2,
    ]


@pytest.mark.parametrize("form", [Typed, Named, Attrs])
def test_each_class_of_rows_is_a_schema_and_may_leave_out_what_it_says(form):
    assert get("http://host", form).rules is None
    out = asked(form, [{"name": "Ann", "tier": 7}, {"name": "Bob"}, {}], on_error="drop")
    assert found(out) == [("Ann", 7), ("Bob", None)]


def test_a_class_is_the_schema_of_a_python_function_too():
    @sa.async_function(Customer)
    async def look(row):
        return {"name": f"c{row.id}", "address": Address("Oslo", [row.id]), "since": None}

    out = sa.arrow.ordered_wait(pa.table({"id": [7]}), look).to_table()
    assert found(out) == [("c7", {"city": "Oslo", "zips": [7]}, None)]
    assert out.schema.field("name").nullable is False


# -- rules of their own


@dataclass
class Checked:
    name: str
    tier: int = 3
    tags: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.tier > 7:
            message = "no such tier"
            raise ValueError(message)
        self.name = self.name.strip()


@attrs.define
class CheckedAttrs:
    name: str = attrs.field(converter=str.strip)
    tier: int = attrs.field(default=3, validator=attrs.validators.le(7))


DOCUMENTS = [{"name": " Ann "}, {"name": "Bob", "tier": 8}, None, {"name": "Cid", "tier": 7}]


@pytest.mark.parametrize("form", [Checked, CheckedAttrs])
def test_what_a_class_does_when_it_is_made_is_done_to_each_row(form):
    out = asked(form, DOCUMENTS, on_error="capture")
    assert found(out, "name", "tier") == [("Ann", 3), (None, None), (None, None), ("Cid", 7)]
    kinds = [it and it["kind"] for it in out["error"].to_pylist()]
    assert kinds == [None, "result-schema-mismatch", None, None]
    message = out["error"].to_pylist()[1]["message"]
    assert message.startswith(f"`http.get` returned what `{form.__name__}` refuses: ValueError: ")


KEPT: dict[str, tuple[Any, list[Any]]] = {
    "null": ("null", [("Ann", 3), (None, None), (None, None), ("Cid", 7)]),
    "drop": ("drop", [("Ann", 3), (None, None), ("Cid", 7)]),
    "drop, until there are too many": (
        sa.OnError("drop", stop_after=2),
        [("Ann", 3), (None, None), ("Cid", 7)],
    ),
}


@pytest.mark.parametrize(("on_error", "rows"), KEPT.values(), ids=KEPT)
def test_a_row_that_is_refused_is_one_that_failed(on_error, rows):
    assert found(asked(Checked, DOCUMENTS, on_error=on_error), "name", "tier") == rows


def test_a_row_that_is_refused_fails_the_task_where_rows_do():
    for options in ({}, {"on_error": sa.OnError(stop_after=1)}):
        with pytest.raises(
            sa.exceptions.ResultError, match="`Checked` refuses: ValueError: no such tier"
        ):
            asked(Checked, DOCUMENTS, **options)


def test_rules_are_kept_side_by_side_and_behind_a_cache_and_counted():
    def answer(target: str, _: int) -> tuple[int, dict[str, str], bytes]:
        return 200, {}, json.dumps({"name": " x ", "tier": int(target[-1])}).encode()

    with ScriptedServer(answer) as server:
        checked = get(server.url, Checked).with_options(
            on_error=sa.OnError(column="why"), cache=sa.Cache(100)
        )
        plain = sa.http.get(server.url + "/{id}", "t int", client=CLIENT, paths={"t": "tier"})
        rows = pa.table({"id": [5, 9, 5, 9, 7, 8] * 13})
        out = sa.arrow.unordered_wait(rows, [plain, checked, look_at], max_concurrency=7)
        table = out.to_table()
    assert table.num_rows == rows.num_rows
    for row in table.to_pylist():
        assert row["t"] == row["seen"] == row["id"]
        assert (row["tier"], row["name"]) == ((row["id"], "x") if row["id"] < 8 else (None, None))
        assert (row["why"] is not None) is (row["id"] > 7)
    assert sum(it["function.refused"] for it in operators(out) if "function.refused" in it) == 39


@sa.async_function("seen long")
async def look_at(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"seen": row["id"]}


def operators(out: Any) -> list[dict[str, Any]]:
    return list(out.metrics["operators"].values())


@dataclass
class Within:
    checked: Checked


@dataclass
class DefaultWithin:
    typed: Annotated[Any, "string"]
    plain: Pair


@dataclass
class Pair:
    a: int = 3


@dataclass
class Unclear:
    a: int | None = 3


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (Within, "`checked.tier`, whose default nobody fills in there"),
        (DefaultWithin, "for `plain.a`, whose default nobody fills in there"),
        (Unclear, "for `a`, where a null and one that is missing are alike"),
        (int, "or a class whose fields are columns, got `type`"),
        (dict[str, int], "or a class whose fields are columns"),
    ],
)
def test_a_class_that_cannot_be_kept_is_refused(form, words):
    with pytest.raises(sa.ConfigurationError, match=words):
        get("http://host", form)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"carry_over": True}, "`carry_over` does not go with the rules of `Checked`"),
        ({"chain": True}, "`chain=True` does not go with the rules of `Checked`"),
    ],
)
def test_rules_of_rows_that_do_not_leave_a_task_are_refused(options, words):
    rows = sa.arrow.ordered_wait(pa.table({"id": [1]}), get("http://host", Checked))
    function = get("http://host", Checked) if "carry_over" in options else look_at
    with pytest.raises(sa.ConfigurationError, match=words):
        sa.arrow.ordered_wait(rows, function, **options)


# -- models of pydantic

pydantic = pytest.importorskip("pydantic")


class Plain(pydantic.BaseModel):
    """A note says nothing."""

    name: str = pydantic.Field(alias="fullName", description="what it is called")
    tier: int | None = None
    scores: dict[str, float] = pydantic.Field(title="by subject")


class Rated(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(str_strip_whitespace=True)

    mood: Literal["good", "bad"]
    score: float = pydantic.Field(ge=0, le=1)
    name: Annotated[str, pydantic.AfterValidator(str.title)] = "nobody"
    by: dict[str, int] = pydantic.Field(default_factory=dict, validation_alias="byTag")
    at: datetime | None = None

    @pydantic.model_validator(mode="after")
    def is_sure(self) -> Rated:
        if self.mood == "bad" and self.score > 0.5:
            message = "not that bad"
            raise ValueError(message)
        return self


class Off(pydantic.BaseModel):
    name: str
    flag: bool = False


class FromZero(pydantic.BaseModel):
    n: int = pydantic.Field(ge=0)


class Pick(TypedDict):
    score: Annotated[int, pydantic.Field(multiple_of=7)]


@pydantic.dataclasses.dataclass
class Within2:
    pick: Pick
    name: str = "x"


RATED = [
    {
        "mood": "good",
        "score": 0.7,
        "name": " ann ",
        "byTag": {"a": 3},
        "at": "2024-02-29T00:00:00Z",
    },
    {"mood": "good", "score": 1.5},
    {"mood": "fine", "score": 0.5, "byTag": {}},
    None,
    {"mood": "bad", "score": 0.75, "name": "bob"},
    {"mood": "bad", "score": 0.25, "extra": [1, 2]},
    {"score": 0.25},
    {"mood": " good ", "score": 0},
]


def oracle(form: Any, document: Any) -> dict[str, Any] | None:
    try:
        made = pydantic.TypeAdapter(form).validate_json(json.dumps(document))
    except pydantic.ValidationError:
        return None
    return pydantic.TypeAdapter(form).dump_python(made)


@pytest.mark.parametrize(
    ("form", "documents"),
    [
        (Rated, RATED),
        (Off, [{"name": "x", "flag": True}, {"name": "y"}, {}]),
        (FromZero, [{"n": 0}, {"n": -1}]),
        (Pick, [{"score": it} for it in (0, 7, 8, -14, 13)]),
        (Within2, [{"pick": {"score": 14}}, {"pick": {"score": 3}}, {"name": "y"}]),
    ],
)
@pytest.mark.parametrize("how", ["left", "inner"])
def test_rows_are_what_pydantic_makes_of_their_documents(form, documents, how):
    wanted = {at: oracle(form, it) for at, it in enumerate(documents) if it is not None}
    out = asked(form, documents, how=how, on_error="capture").to_pylist()
    assert [row["id"] for row in out] == [
        at for at, it in enumerate(documents) if it is not None or how == "left"
    ]
    for row in out:
        error, expected = row["error"], wanted.get(row["id"])
        assert (error is None) is (expected is not None or row["id"] not in wanted)
        for name in get("http://host", form).result_schema.names:
            value = dict(row[name]) if name == "by" and row[name] is not None else row[name]
            assert value == (expected or {}).get(name)


def test_a_model_without_rules_costs_no_python_and_knows_its_aliases():
    assert get("http://host", Plain).rules is None
    documents = [{"fullName": "Ann", "scores": {"a": 0.5}}, {"name": "Bob", "scores": {}}]
    out = asked(Plain, documents, on_error="drop")
    assert found(out) == [("Ann", None, [("a", 0.5)])]


def test_what_is_refused_is_told_without_the_contents_of_the_row():
    out = asked(Rated, [{"mood": "sEcret", "score": 1.5}], on_error="capture")
    (error,) = out["error"].to_pylist()
    assert error["message"] == (
        "`http.get` returned what `Rated` refuses: mood: Input should be 'good' or 'bad';"
        " score: Input should be less than or equal to 1"
    )
    assert (error["kind"], error["attempts"]) == ("result-schema-mismatch", None)


def test_a_model_that_a_function_has_made_travels():
    class Local(pydantic.BaseModel):
        score: int = pydantic.Field(ge=3)

    function = cloudpickle.loads(cloudpickle.dumps(get("http://host", Local)))
    made = function.rules.maker()
    assert made({"score": 7}).score == 7
    with pytest.raises(pydantic.ValidationError):
        made({"score": 2})


class Forbids(pydantic.BaseModel, extra="forbid"):
    a: int


class Choices(pydantic.BaseModel):
    a: int = pydantic.Field(validation_alias=pydantic.AliasChoices("x", "y"))


class AliasWithin(pydantic.BaseModel):
    plain: Plain


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (Forbids, "`Forbids`, whose rules a native function cannot keep: it forbids extra"),
        (Choices, "`a` has several aliases, or a path; give it one name"),
        (AliasWithin, "a class within it, or a TypedDict, has an alias"),
    ],
)
def test_a_model_whose_rules_cannot_be_kept_is_refused(form, words):
    with pytest.raises(sa.ConfigurationError, match=words):
        get("http://host", form)


def test_rows_that_are_refused_and_rows_that_fail_are_too_many_together():
    def answer(target: str, _: int) -> tuple[int, dict[str, str], bytes]:
        number = int(target.rsplit("/", 1)[1])
        document = {"name": "x", "tier": 9 if number % 3 == 1 else 5}
        return 400 if number % 3 == 0 else 200, {}, json.dumps(document).encode()

    def run(stop_after: int) -> pa.Table:
        with ScriptedServer(answer) as server:
            on_error = sa.OnError("null", stop_after=stop_after)
            checked = get(server.url, Checked).with_options(on_error=on_error)
            rows = pa.table({"id": list(range(31))})
            return sa.arrow.ordered_wait(rows, checked, retry=0).to_table()

    # 11 of the 31 fail, and 10 are refused.
    assert run(22)["tier"].null_count == 21
    with pytest.raises(sa.exceptions.AsyncIOError) as info:
        run(13)
    assert "rows of this task that have ended have failed in `http.get` (" in str(info.value)
