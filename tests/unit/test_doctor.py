# SPDX-License-Identifier: Apache-2.0
"""What the doctor makes of what it finds."""

import json
import os
import re
import subprocess
import sys
import threading

import pytest

from sparkawait import __main__ as cli
from sparkawait import _probe
from sparkawait._doctor import program
from sparkawait._doctor.program import DoctorSettings, try_alone
from sparkawait._doctor.report import (
    Report,
    Status,
    add_process,
    compare_packages,
    look_for_java,
    one_line,
)


@pytest.fixture
def report():
    return Report("0.1.0")


@pytest.fixture
def told():
    """What a process that is well tells of itself."""
    return {
        "python": "3.11.7",
        "implementation": "CPython",
        "executable": "/usr/bin/python3",
        "platform": "Linux x86_64 glibc 2.36",
        "sparkawait": {"version": "0.1.0"},
        "packages": {"pyspark": "4.3.0", "pyarrow": "26.0.1", "uvloop": None},
        "memory_mb": {"machine": 8000, "container": 4000, "address_space": None},
        "open_files": 4096,
        "temporary_folder": None,
        "sockets": None,
        "unix_sockets": None,
        "fork": None,
        "event_loop": None,
        "variables": ["SPARK_HOME"],
    }


def texts(report, subject):
    return [finding.text for finding in report.findings if finding.subject == subject]


def test_options_are_read():
    assert cli.parse(["doctor"]) == DoctorSettings()
    given = cli.parse(["doctor", "--remote", "sc://here", "--timeout", "5s", "--json", "--ship"])
    assert given == DoctorSettings(remote="sc://here", timeout=5.0, json=True, ship=True)


def test_a_master_and_a_remote_exclude_each_other(capsys):
    with pytest.raises(SystemExit):
        cli.parse(["doctor", "--master", "local", "--remote", "local"])
    assert "not allowed with" in capsys.readouterr().err


def test_a_process_that_is_well_has_no_problem(report, told):
    add_process(report, "driver", told)

    assert report.is_well
    assert report.count(Status.WARNING) == 0
    assert texts(report, "packages") == ["pyspark 4.3.0, pyarrow 26.0.1"]
    assert texts(report, "memory") == ["8000 MB in the machine, 4000 MB for the container"]


@pytest.mark.parametrize(
    ("name", "subject"),
    [
        ("temporary_folder", "temporary folder"),
        ("sockets", "sockets"),
        ("unix_sockets", "Unix sockets"),
        ("fork", "fork"),
        ("event_loop", "event loop"),
    ],
)
def test_what_does_not_work_is_a_problem(report, told, name, subject):
    add_process(report, "executors", {**told, name: "OSError: no"})

    assert not report.is_well
    assert texts(report, subject)[0].startswith("OSError: no; ")


def test_few_open_files_and_little_memory_are_warnings(report, told):
    memory = {"machine": 8000, "container": None, "address_space": 512}
    add_process(report, "executors", {**told, "open_files": 256, "memory_mb": memory})

    assert report.is_well
    assert report.count(Status.WARNING) == 2
    assert "spark.executor.pyspark.memory" in texts(report, "memory")[0]


def test_another_version_on_a_worker_is_a_problem(report, told):
    other = {**told, "sparkawait": {"version": "9.9.9"}}

    assert not compare_packages(report, told, other)
    assert texts(report, "sparkawait") == [
        "9.9.9, and the driver has 0.1.0; install the same version on both"
    ]
    assert not report.is_well


def test_a_worker_without_sparkawait_is_a_problem(report, told):
    other = {**told, "sparkawait": {"error": "ModuleNotFoundError: No module named 'sparkawait'"}}

    assert not compare_packages(report, told, other)
    assert "sparkawait.ship(spark)" in texts(report, "sparkawait")[0]


def test_another_pyarrow_is_a_warning(report, told):
    other = {**told, "packages": {**told["packages"], "pyarrow": "18.0.0"}}

    assert compare_packages(report, told, other)
    assert report.count(Status.WARNING) == 1
    assert texts(report, "pyarrow") == [
        "18.0.0, and the driver has 26.0.1; that is mostly harmless"
    ]


@pytest.mark.parametrize(("pyspark", "warnings"), [("4.1.1", 1), (None, 1), ("4.1.4", 0)])
def test_a_pyarrow_that_streams_fail_with_is_a_warning(report, told, pyspark, warnings):
    worker = {**told, "packages": {**told["packages"], "pyspark": pyspark}}
    program._look_at_streams(report, "4.1.1", worker)

    assert report.count(Status.WARNING) == warnings
    assert report.is_well
    assert ["Install PySpark 4.1.4, or 'pyarrow<26'" in it.text for it in report.findings] == (
        [True] * warnings
    )


def test_a_worker_without_pyarrow_is_not_asked_for_streams(report, told):
    worker = {**told, "packages": {**told["packages"], "pyarrow": None}}
    program._look_at_streams(report, "4.1.1", worker)
    assert report.findings == []


def test_this_process_is_well(report, monkeypatch):
    monkeypatch.setenv("SPARK_PASSWORD", "s3cret")
    told = json.loads(_probe.look_as_json(""))
    add_process(report, "driver", told)

    assert report.is_well
    assert "SPARK_PASSWORD" in told["variables"]
    assert "s3cret" not in str(report)


def test_the_probe_needs_the_standard_library_only():
    program = "import runpy, sys; runpy.run_path(sys.argv[1])['look']()"
    result = subprocess.run(
        [sys.executable, "-S", "-c", program, _probe.__file__],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_calls_without_spark_come_back(report):
    try_alone(report)

    assert [finding.status for finding in report.findings] == [Status.OK, Status.OK]


@pytest.mark.parametrize(
    "secret",
    [
        "sc://host/;user_id=me;token=s3cret",
        "redis://user:s3cret@host",
        "spark.redis.password=s3cret",
        "Authorization: Bearer s3cret",
        "AWS_SECRET_ACCESS_KEY=s3cret",
    ],
)
def test_secrets_of_messages_are_not_in_the_report(report, secret):
    report.add("session", "start", f"OSError: {secret}", Status.PROBLEM)

    assert "s3cret" not in str(report)
    assert "s3cret" not in report.to_json()


def test_a_long_exception_of_spark_is_one_line():
    error = RuntimeError(
        "Job aborted due to stage failure: Traceback (most recent call last):\n"
        '  File "worker.py", line 1, in main\n'
        "ImportError: Spark's Python workers run python3, which cannot import sparkawait\n\n"
        "\tat org.apache.spark.api.python.BasePythonRunner(PythonRunner.scala:1)\n"
        "java.lang.IllegalStateException: later\n"
    )

    assert one_line(error) == (
        "ImportError: Spark's Python workers run python3, which cannot import sparkawait"
    )
    assert one_line(TimeoutError()) == "TimeoutError"


def test_the_report_is_for_people_and_programs(report):
    report.add("driver", "Python", "3.11")
    report.add("driver", "Java", "none", Status.PROBLEM)
    report.add("executors", "answer", "later", Status.UNKNOWN)

    assert str(report).splitlines() == [
        "sparkawait doctor, 0.1.0",
        "",
        "driver",
        "  ok           Python: 3.11",
        "  problem      Java: none",
        "",
        "executors",
        "  not checked  answer: later",
        "",
        "problems: 1, warnings: 0",
    ]
    content = json.loads(report.to_json())
    assert content["is_well"] is False
    assert content["findings"][1] == {
        "place": "driver",
        "subject": "Java",
        "status": "problem",
        "text": "none",
    }


# -- Java


@pytest.fixture
def java(tmp_path, monkeypatch):
    """Has JAVA_HOME name a program that says it is a Java of some version."""

    def make(script):
        (tmp_path / "bin").mkdir()
        program = tmp_path / "bin" / "java"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    return make


def says(version):
    specification = re.match(r"1\.\d+|\d+", version)[0]
    lines = f"    java.specification.version = {specification}\n    java.version = {version}"
    return f"printf '%s\\n' '{lines}' >&2"


@pytest.mark.parametrize(
    ("version", "spark", "status"),
    [
        ("17.0.15", "4.3.0", Status.OK),
        ("1.8.0_402", "3.5.9", Status.OK),
        ("1.8.0_402", "4.3.0", Status.PROBLEM),
        ("11.0.2", "4.0.1", Status.PROBLEM),
        ("26", "4.3.0", Status.WARNING),
        ("25", "4.1.0", Status.WARNING),
    ],
)
def test_a_java_that_spark_does_not_run_on_is_found(report, java, version, spark, status):
    java(says(version))

    assert look_for_java(report, spark) is (status is not Status.PROBLEM)
    [finding] = report.findings
    assert finding.status is status
    assert finding.text.startswith(f"{version}, of JAVA_HOME")


@pytest.mark.parametrize(
    ("script", "said"), [("echo I am no Java >&2", "is not Java (I am no Java)"), ("", "it says")]
)
def test_what_is_no_java_is_found(report, java, script, said):
    java(script)

    assert not look_for_java(report, "4.3.0")
    assert said in report.findings[0].text


@pytest.mark.parametrize("home", ["/nowhere", ""])
def test_a_missing_java_is_found(report, monkeypatch, home):
    monkeypatch.setenv("JAVA_HOME", home)
    monkeypatch.setenv("PATH", "/nowhere")

    assert not look_for_java(report, "4.3.0")
    where = "JAVA_HOME, /nowhere, has no bin/java" if home else "none is on PATH"
    assert report.findings[0].text == (
        f"{where}; Spark 4.3.0 needs Java 17 to 25: install one, or set JAVA_HOME"
    )


def test_what_spark_does_not_answer_in_time_is_given_up():
    forever = threading.Event()

    with pytest.raises(TimeoutError, match="are there executors with free cores"):
        program.patient(0.01, forever.wait)
    forever.set()
    assert program.patient(10, lambda: 5) == 5
    with pytest.raises(LookupError):
        program.patient(10, lambda: {}["nothing"])
