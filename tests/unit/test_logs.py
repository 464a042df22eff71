# SPDX-License-Identifier: Apache-2.0
"""Lines of Rust reach Python's logging, and those of a worker its standard error."""

import logging
import os
import subprocess
import sys
import threading

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait._worker.replies import RustLines

WARN_AND_INFORM = """
from sparkawait._worker.replies import write_to_standard_error
import logging
{before}
write_to_standard_error()
{after}
logger = logging.getLogger("sparkawait")
logger.warning("a warning")
logger.info("information")
"""


def written(level=None, before="", after=""):
    """What a worker writes, without the time."""
    environment = {name: value for name, value in os.environ.items() if name != "SPARKAWAIT_LOG"}
    if level is not None:
        environment["SPARKAWAIT_LOG"] = level
    result = subprocess.run(
        [sys.executable, "-c", WARN_AND_INFORM.format(before=before, after=after)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.split(" ", 2)[-1] for line in result.stderr.splitlines()]


def test_warnings_are_written_by_default():
    assert written() == ["WARNING sparkawait: a warning"]


@pytest.mark.parametrize("level", ["info", "INFO", "debug"])
def test_the_environment_sets_the_level(level):
    assert written(level) == ["WARNING sparkawait: a warning", "INFO sparkawait: information"]


def test_a_level_that_does_not_exist_is_named():
    assert written("loud") == [
        "WARNING sparkawait: SPARKAWAIT_LOG must be one of DEBUG, INFO, WARNING, ERROR",
        "WARNING sparkawait: a warning",
    ]


@pytest.mark.parametrize("when", ["before", "after"])
def test_logging_that_is_set_up_by_the_user_is_left_alone(when):
    set_up = {when: "logging.basicConfig(format='a b mine: %(message)s')"}

    assert written(**set_up) == ["mine: a warning"]


def test_a_warning_of_rust_is_logged(caplog):
    logged = threading.Event()
    handler = logging.Handler()
    handler.emit = lambda record: logged.set()
    # Behind the one that `caplog` has there, which then has the line already.
    logging.getLogger().addHandler(handler)
    try:
        lookup = sa.redis.get("redis://127.0.0.1:1", "{id}", schema="value string")
        batch = pa.RecordBatch.from_pydict({"id": [1]})
        list(sa.arrow.ordered_wait([batch], lookup, on_error="null", retry=0))
        assert logged.wait(50)
    finally:
        logging.getLogger().removeHandler(handler)

    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert caplog.messages[0].startswith(
        "no connection to Redis: reason=the connection to Redis at"
    )


def test_lost_lines_are_counted(caplog):
    lines = RustLines.__new__(RustLines)
    lines._log = type("Full", (), {"take": lambda self: ([(30, "one")], 7)})()

    lines.deliver()

    assert caplog.messages == ["one", "7 more lines were lost, because they came too fast"]
