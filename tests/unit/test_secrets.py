# SPDX-License-Identifier: Apache-2.0
"""Secrets are looked up where they are used, and shown nowhere."""

import pickle

import pytest

import sparkawait as sa
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.secrets import DIRECTORY_VARIABLE, reveal


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
    with pytest.raises(ConfigurationError, match="needs a name or file="):
        sa.secret(**arguments)


def test_plain_texts_reveal_themselves():
    assert reveal("plain") == "plain"
