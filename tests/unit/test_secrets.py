# SPDX-License-Identifier: Apache-2.0
"""Secrets are looked up where they are used, and shown nowhere."""

import functools
import pickle
import threading
from typing import Any

import pytest

import sparkawait as sa
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.secrets import DIRECTORY_VARIABLE, reveal, secret


def test_a_secret_comes_from_the_environment_of_the_executor(monkeypatch):
    token = sa.secret("SPARKAWAIT_TEST_TOKEN", prefix="Bearer ")
    pickled = pickle.dumps(token)
    monkeypatch.setenv("SPARKAWAIT_TEST_TOKEN", "hunter2")

    assert pickle.loads(pickled).reveal() == "Bearer hunter2"  # noqa: S301
    assert b"hunter2" not in pickle.dumps(token)
    assert "hunter2" not in repr(token)


def test_a_secret_comes_from_the_directory_of_secrets(monkeypatch, tmp_path):
    (tmp_path / "SPARKAWAIT_TEST_TOKEN").write_text("from a file\n")
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))

    assert sa.secret("SPARKAWAIT_TEST_TOKEN").reveal() == "from a file"


def test_a_secret_comes_from_the_file_that_was_named(tmp_path):
    (tmp_path / "token").write_text("x")

    assert sa.secret(file=str(tmp_path / "token")).reveal() == "x"


def test_a_missing_secret_says_where_it_was_looked_for(monkeypatch, tmp_path):
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))

    with pytest.raises(ConfigurationError, match=str(tmp_path / "SPARKAWAIT_TEST")) as info:
        sa.secret("SPARKAWAIT_TEST").reveal()

    assert info.value.kind is ErrorKind.SECRET_MISSING
    assert DIRECTORY_VARIABLE in str(info.value)


@pytest.mark.parametrize(
    "name", ["API_TOKEN", "db_password", "MY_SECRET", "AWS_ACCESS.KEY", "accesskey"]
)
def test_a_setting_that_spark_hides_is_recommended(name):
    with pytest.raises(ConfigurationError, match="; or set the variable by the Spark setting"):
        sa.secret(name).reveal()


@pytest.mark.parametrize("name", ["API_KEY", "DSN", "AWS_ACCESS_KEY_ID", "PASS"])
def test_a_setting_that_spark_shows_is_not_recommended(name):
    with pytest.raises(ConfigurationError, match="Spark shows its value in its UI and event log"):
        sa.secret(name).reveal()


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read: No such file") as info:
        sa.secret(file=str(tmp_path / "none")).reveal()

    assert info.value.__cause__ is None


@pytest.mark.parametrize(
    "arguments",
    [
        {"name": 5},
        {"file": b"x"},
        {"name": "a\0b"},
        {"name": "\ud800"},
        {"name": "A", "prefix": None},
    ],
    ids=ascii,
)
def test_a_secret_that_no_system_can_name_is_refused(arguments):
    with pytest.raises(ConfigurationError, match="of a secret must be a str without NUL"):
        sa.secret(**arguments)


@pytest.mark.parametrize("arguments", [{}, {"name": "A", "file": "b"}, {"name": ""}])
def test_a_secret_has_a_name_or_a_file(arguments):
    with pytest.raises(ConfigurationError, match="needs a name, file= or provider="):
        sa.secret(**arguments)


def test_plain_texts_reveal_themselves():
    assert reveal("plain") == "plain"


def _token() -> str:
    return "from-the-vault"


def test_a_provider_is_called_where_the_secret_is_looked_up():
    given = secret(provider=_token, prefix="Bearer ")

    assert given.reveal() == "Bearer from-the-vault"
    assert repr(given) == "secret(provider=_token)"
    assert given == secret(provider=_token, prefix="Bearer ")
    assert given.source != secret(provider=_refuses, prefix="Bearer ").source
    assert "from-the-vault" not in given.source


def _refuses() -> str:
    msg = "the hidden value"
    raise PermissionError(msg)


def _none() -> str:
    return None  # pyright: ignore[reportReturnType]


def _empty() -> str:
    return ""


@pytest.mark.parametrize(
    ("provider", "message"),
    [
        (_refuses, "raised a `PermissionError`"),
        (_none, "must return a str that is not empty, got a `NoneType`"),
        (_empty, "got an empty str"),
    ],
)
def test_a_provider_that_fails_is_named_without_what_it_said(provider: Any, message: str):
    with pytest.raises(ConfigurationError, match=message) as caught:
        secret(provider=provider).reveal()

    assert provider.__name__ in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_a_provider_must_be_callable_and_reach_the_executors():
    with pytest.raises(ConfigurationError, match="callable, got a `str`"):
        secret(provider="token")  # pyright: ignore[reportArgumentType]
    pytest.importorskip("pyspark.cloudpickle")
    lock = threading.Lock()
    with pytest.raises(ConfigurationError, match="cannot be pickled"):
        secret(provider=functools.partial(id, lock))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigurationError, match="one of them only"):
        secret("NAME", provider=_token)
