# SPDX-License-Identifier: Apache-2.0
"""Passwords that change while tasks run, and the connections that had the old ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import postgres, redis
from tests.support.postgres_server import PostgresServer
from tests.support.redis_server import RedisServer
from tests.support.servers import LOOPBACK
from tests.support.waiting import wait_until

TWICE = "select $1::int * 2 as v"
CLIENTS = "select count(*) from pg_stat_activity where usename = 'rotating'"
PATIENT = sa.retry.exponential_backoff(20, "50ms", "300ms", 2.0, budget=None)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(max_connections="60") as running:
        running.run("create role rotating login password 'first'")
        yield running


@pytest.fixture
def cache() -> Iterator[RedisServer]:
    with RedisServer(cli=("--user", "admin", "-a", "admin")) as running:
        running.cli("acl", "setuser", "admin", "on", ">admin", "~*", "&*", "+@all", check=False)
        yield running


def rows_of(function: object, batches: Iterator[pa.RecordBatch], **options: Any) -> list[int]:
    out = sa.arrow.ordered_wait(batches, function, timeout="25s", **options)
    return [it for batch in out for it in batch.column("v").to_pylist()]


def batches(at_half: Callable[[], None] = lambda: None) -> Iterator[pa.RecordBatch]:
    """1 000 rows; the function is called before the second half of them."""
    for start in range(0, 1000, 100):
        if start == 500:
            at_half()
        yield pa.RecordBatch.from_pydict({"k": pa.array(range(start, start + 100), pa.int32())})


def rotate(server: PostgresServer, password: str) -> None:
    """Gives the role another password, and ends its connections, as a proxy of a cloud does."""
    server.run(f"alter role rotating password '{password}'")
    server.run("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'rotating'")


def place(server: PostgresServer) -> str:
    return f"host={LOOPBACK} port={server.port} user=rotating dbname=postgres"


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_password_of_a_file_that_changes_in_the_middle_of_a_task_loses_no_row(
    server: PostgresServer, tmp_path: Path, is_whole: bool
) -> None:
    file, secret = tmp_path / "secret", sa.secret(file=str(tmp_path / "secret"))

    def write(password: str) -> None:
        file.write_text(f"{place(server)} password={password}" if is_whole else password)

    rotate(server, "one")
    write("one")
    dsn, password = (secret, None) if is_whole else (place(server), secret)
    function = postgres.lookup(dsn, TWICE, ["k"], "v int", password=password)

    def at_half() -> None:
        write("two")
        rotate(server, "two")

    assert rows_of(function, batches(at_half)) == [2 * i for i in range(1000)]


def test_a_provider_is_asked_again_when_its_secret_is_refused_and_once_for_all(
    server: PostgresServer,
) -> None:
    passwords, asked = ["three", "four"], []

    def provide() -> str:
        asked.append(passwords[0])
        return passwords[0]

    rotate(server, "three")
    secret = sa.secret(provider=provide)
    function = postgres.lookup(place(server), TWICE, ["k"], "v int", password=secret, connections=4)

    def at_half() -> None:
        passwords.pop(0)
        rotate(server, "four")

    # Those on their way to the server were not answered; a reading may be a second old.
    assert rows_of(function, batches(at_half), retry=PATIENT) == [2 * i for i in range(1000)]
    assert asked == ["three", "four"]


def test_a_provider_that_fails_leaves_the_secret_as_it_was(server: PostgresServer) -> None:
    answers = ["five"]
    rotate(server, "five")
    secret = sa.secret(provider=lambda: answers[0])
    function = postgres.lookup(place(server), TWICE, ["k"], "v int", password=secret)

    def at_half() -> None:
        answers.clear()
        rotate(server, "five")

    assert rows_of(function, batches(at_half)) == [2 * i for i in range(1000)]


def test_a_password_that_nobody_changes_is_refused_for_good(server: PostgresServer) -> None:
    function = postgres.lookup(place(server), TWICE, ["k"], "v int", password="wrong-guess")  # noqa: S106
    batch = pa.RecordBatch.from_pydict({"k": pa.array([1], pa.int32())})

    (out,) = sa.arrow.ordered_wait([batch], function, retry=3, on_error="capture")

    error = out.to_pylist()[0]["error"]
    assert "28P01" in error["message"]
    assert error["attempts"] == 1
    assert "wrong-guess" not in error["message"] + repr(function)


def test_rotations_and_limits_of_statements_share_their_connections(
    server: PostgresServer, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    limit = "select current_setting('statement_timeout') as v where $1 >= 0"
    secret = sa.secret(file=str(file))
    # Those of other tests end.
    rotate(server, "number-0")
    found = []
    for number in range(5):
        file.write_text(f"number-{number}")
        server.run(f"alter role rotating password 'number-{number}'")
        function = postgres.lookup(
            place(server),
            limit,
            ["k"],
            "v string",
            password=secret,
            connections=2,
            statement_timeout=f"{17 + number}s",
        )
        found.append(set(rows_of(function, batches())))

    assert found == [{f"{17 + number}s"} for number in range(5)]
    assert int(server.run(CLIENTS)) <= 2


def test_redis_takes_the_new_password_of_a_file(cache: RedisServer, tmp_path: Path) -> None:
    file = tmp_path / "secret"

    def rotate_user(password: str) -> None:
        file.write_text(password)
        cache.cli("acl", "setuser", "reader", "reset", "on", f">{password}", "~*", "+get", "+auth")
        cache.cli("client", "kill", "user", "reader", check=False)

    cache.cli("mset", *[it for i in range(1000) for it in (f"k:{i}", str(i))])
    rotate_user("one")
    function = redis.get(
        f"redis://{LOOPBACK}:{cache.port}",
        "k:{k}",
        "v int",
        username="reader",
        password=sa.secret(file=str(file)),
    )
    for number in range(5):
        found = rows_of(function, batches(lambda number=number: rotate_user(f"pass-{number}")))
        assert found == list(range(1000))

    wait_until(lambda: cache.cli("client", "list").count("user=reader") == 1)
