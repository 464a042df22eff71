# SPDX-License-Identifier: Apache-2.0
"""The schemas that models are told, held against what the services' own clients make of a class."""

import copy
import datetime as dt
import enum
import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Literal

import anthropic
import pytest
from openai.lib._pydantic import _ensure_strict_json_schema
from pydantic import BaseModel, ConfigDict, Field

import sparkawait as sa
from sparkawait._schema.json_schema import json_schema
from sparkawait._schema.types import declared_by
from sparkawait.exceptions import ConfigurationError


class Mood(str, enum.Enum):
    good = "good"
    bad = "bad"


class Seen(BaseModel):
    stars: int = Field(ge=1, le=5, description="of five")
    of: Literal["page", "shop"]


class Review(BaseModel):
    """What somebody says."""

    model_config = ConfigDict(populate_by_name=True)

    mood: Mood = Field(description="the mood")
    before: Mood
    seen: Seen = Field(description="what was seen")
    again: Seen | None = Field(None, description="seen again")
    tags: list[str] = Field(min_length=2, max_length=7)
    words: list[Seen] = Field(default_factory=list, description="each of them")
    at: dt.datetime
    on: dt.date
    price: Annotated[Decimal, "decimal(10,2)"] = Field(gt=Decimal("0.13"))
    why: str = Field(alias="reason", min_length=3, max_length=70, pattern="^[a-z ]+$")


@dataclass
class Row:
    mood: str
    stars: int | None
    parts: list[float] | None
    at: dt.datetime


DDL = "mood string not null, parts array<struct<x: double, y: bigint not null>>, on date"
SHAPES = pytest.mark.parametrize("shape", [Review, Row, DDL])


def told(shape, api):
    return json_schema(declared_by(shape, has_names=True), api=api)


def described(schema):
    """Returns all descriptions of a schema, in order."""
    if isinstance(schema, dict):
        own = [schema["description"]] if isinstance(schema.get("description"), str) else []
        return own + [it for value in schema.values() for it in described(value)]
    return [it for one in schema for it in described(one)] if isinstance(schema, list) else []


@SHAPES
def test_the_client_of_openai_has_nothing_to_change(shape):
    sent = told(shape, "chat")
    strict = copy.deepcopy(sent)
    assert _ensure_strict_json_schema(strict, path=(), root=strict) == sent


@SHAPES
def test_the_client_of_anthropic_finds_no_word_that_its_service_refuses(shape):
    sent = told(shape, "messages")
    kept = anthropic.transform_schema(copy.deepcopy(sent))
    assert sorted(described(kept)) == sorted(described(sent))


def test_what_a_service_does_not_know_stands_in_the_description():
    why = {api: told(Review, api)["properties"]["reason"] for api in ("chat", "messages")}
    assert why["chat"]["pattern"] == "^[a-z ]+$"
    assert set(why["messages"]) == {"type", "description"}
    for words in ("minLength 3", "maxLength 70"):
        assert all(words in it["description"] for it in why.values())
    assert "pattern ^[a-z ]+$" in why["messages"]["description"]


def test_a_described_member_of_a_class_of_its_own_keeps_both():
    mood = told(Review, "chat")["properties"]["mood"]
    assert mood == {"type": "string", "enum": ["good", "bad"], "description": "the mood"}
    assert told(Review, "chat")["properties"]["before"] == {"$ref": "#/$defs/Mood"}


def test_a_map_is_refused_before_a_service_does():
    class Counted(BaseModel):
        counts: dict[str, int]

    with pytest.raises(ConfigurationError, match="a list of objects with a key and a value"):
        sa.llm.chat("{text}", Counted, model="m")


@SHAPES
@pytest.mark.parametrize("api", ["chat", "messages"])
def test_a_call_sends_the_schema_of_its_service(shape, api):
    call = sa.llm.chat("{text}", shape, model="m", api=api, max_tokens=13)
    assert json.dumps(told(shape, api)) in json.dumps(call.options.json)
