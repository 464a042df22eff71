# SPDX-License-Identifier: Apache-2.0
"""What the documents say is so: their Python runs, and their commands exist.

A block opened by ```python run is executed: those of one document in order and as one program, all
documents in one Spark session. One opened by ```python lookup is too, against servers that know the
customers of `orders`. A block opened by ```python is an excerpt and has to be valid Python; so has
one opened by ```python batch or ```python client, which the tests of batched requests and those of
clients of Arrow run.
"""

import ast
import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.meta.repository import ROOT, tracked_files
from tests.support.nginx import Nginx
from tests.support.postgres_server import PostgresServer
from tests.support.redis_server import RedisServer

FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
# What the documents tell the reader to set, for servers that ask for no real ones.
SECRETS = {"OPENAI_API_KEY": "a key", "CLIENT_SECRET": "a secret"}
# A document that leaves the session in another state than it found it in. It is the first.
CARELESS = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
"""
NEWEST = "4.3."
"""The line of Spark beside which all packages are that documents use."""
SELDOM = ("docs/cookbook/", "docs/guides/", "docs/migration/")
"""Folders of documents that are read beside the others, and use what these use."""
DOCUMENTS = [path.relative_to(ROOT).as_posix() for path in tracked_files("*.md")]


def blocks(document: str, *infos: str) -> list[str]:
    text = (ROOT / document).read_text(encoding="utf-8")
    return [match["text"] for match in FENCE.finditer(text) if match["info"].strip() in infos]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_python_in_a_document_is_valid(document: str):
    batched = ("python batch embeddings", "python batch documents", "python batch scores")
    clients = [f"python client {name}" for name in ("duckdb", "adbc", "lance", "model")]
    for block in blocks(document, "python", "python run", "python lookup", *batched, *clients):
        # An excerpt may await at its top level.
        compile(block, document, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.fixture(scope="module")
def failures(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str | None]:
    """Runs the documents that are asked for, and says of each what failed, if something did."""
    documents = [
        item.callspec.params["document"]
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.originalname == test_examples_in_a_document_run.__name__
    ]
    codes = {"careless": CARELESS} | {document: code_of(document) for document in documents}
    folder = tmp_path_factory.mktemp("documents")
    report = folder / "report.jsonl"
    result = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "meta" / "document_program.py"), str(report)],
        cwd=folder,
        input=json.dumps(codes),
        env=os.environ | SECRETS | {"NO_PROXY": "127.0.0.1,localhost"},
        capture_output=True,
        text=True,
        check=False,
    )
    written = report.read_text(encoding="utf-8").splitlines() if report.exists() else []
    found = {line["document"]: line["failure"] for line in map(json.loads, written)}
    end = f"the program ended with {result.returncode}\n{result.stderr[-4000:]}"
    return {document: found.get(document, end) for document in codes}


def code_of(document: str) -> str:
    """Returns the examples of a document as one program, each line where the document has it."""
    text = (ROOT / document).read_text(encoding="utf-8")
    lines = [""] * (text.count("\n") + 1)
    for match in FENCE.finditer(text):
        if match["info"].strip() == "python run":
            first = text.count("\n", 0, match.start("text"))
            block = match["text"].splitlines()
            lines[first : first + len(block)] = block
    return "\n".join(lines)


@pytest.mark.spark
@pytest.mark.timeout(600)  # the first one waits for all
@pytest.mark.parametrize(
    "document",
    [
        pytest.param(name, marks=[pytest.mark.nightly] if name.startswith(SELDOM) else [])
        for name in DOCUMENTS
        if blocks(name, "python run")
    ],
)
def test_examples_in_a_document_run(document: str, failures: dict[str, str | None]):
    failure = failures[document]
    absent = re.search(r"No module named '(\w+)'", failure or "")
    if absent is not None and not version("pyspark").startswith(NEWEST):
        pytest.skip(f"{absent[1]} is installed beside the newest Spark only")
    assert failure is None, f"{document}: {failure}"


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_document_that_leaves_an_option_behind_fails(failures: dict[str, str | None]):
    assert "not as they were: ['spark.sql.session.timeZone']" in (failures["careless"] or "")


@pytest.mark.spark
def test_lookups_in_documents_find_what_they_look_up(tmp_path: Path):
    examples = {name: found for name in DOCUMENTS if (found := blocks(name, "python lookup"))}
    (tmp_path / "nginx").mkdir()
    with (
        RedisServer() as redis,
        PostgresServer() as postgres,
        Nginx(tmp_path / "nginx", "location /customers/ { try_files $uri =404; }") as nginx,
    ):
        load_customers(redis, postgres, nginx)
        addresses = {"REDIS_URL": redis.url, "PG_DSN": postgres.dsn}
        result = subprocess.run(
            [sys.executable, str(ROOT / "tests" / "meta" / "lookup_program.py")],
            cwd=tmp_path,
            # The address that the documents name does not exist.
            input=json.dumps(examples).replace("https://api.example.com", nginx.url),
            env=os.environ | addresses | {"API_TOKEN": "token", "NO_PROXY": "localhost"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert result.returncode == 0, result.stderr[-4000:]
    found = json.loads(result.stdout)
    assert list(found) == list(examples)
    for document, frames in found.items():
        assert frames, document
        for rows in frames:
            assert sorted(row["order_id"] for row in rows) == [1, 2, 3, 4]
            assert [row for row in rows if not has_its_customer(row)] == [], document


CUSTOMERS = {7: ("Ann", "gold", "Oslo"), 8: ("Bob", "silver", "Rome")}


def load_customers(redis: RedisServer, postgres: PostgresServer, nginx: Nginx) -> None:
    postgres.run("create table customers (id int primary key, name text, tier text)")
    (nginx.files / "customers").mkdir()
    for number, (name, tier, city) in CUSTOMERS.items():
        redis.load([["HSET", f"customer:{number}", "name", name, "tier", tier]])
        postgres.run(f"insert into customers values ({number}, '{name}', '{tier}')")  # noqa: S608
        document = json.dumps({"name": name, "address": {"city": city}})
        (nginx.files / "customers" / str(number)).write_text(document)


def has_its_customer(row: dict) -> bool:
    name, tier, city = CUSTOMERS.get(row["customer_id"], (None, None, None))
    found = {"tier": tier, "address": city and {"city": city}}
    return row["name"] == name and all(
        found[column] == row[column] for column in row.keys() & found
    )


@pytest.mark.parametrize("document", DOCUMENTS)
def test_make_targets_in_a_document_exist(document: str):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):.*## ", makefile, re.MULTILINE))
    text = (ROOT / document).read_text(encoding="utf-8")
    commands = "\n".join(
        [
            *blocks(document, "", "sh", "bash", "console", "shell"),
            *re.findall(r"`(make [^`]*)`", text),
        ]
    )
    named = set(
        re.findall(r"^\s*(?:\$ )?make (?:[A-Z]+=\S+ )*([a-z][\w-]*)", commands, re.MULTILINE)
    )
    assert named <= targets


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_that_a_document_links_to_exist(document: str):
    text = (ROOT / document).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", text)
    folder = (ROOT / document).parent
    assert [link for link in links if not (folder / link).exists()] == []
