# SPDX-License-Identifier: Apache-2.0
"""What executors must have, and what is said where they do not have it."""

import base64
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from py4j.java_gateway import GatewayClient
from pyspark import cloudpickle

import sparkawait as sa
from sparkawait._checks import warn_once
from sparkawait.exceptions import ErrorKind
from sparkawait.spark import session, shipment
from sparkawait.spark.session import Session, run_drivers_python
from sparkawait.spark.shipment import Shipment, fingerprint
from tests.support.environments import Environment
from tests.support.spark_program import run_spark_program

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]


class Parcel(Shipment):
    def __init__(self, value):
        self.value = value


@sa.async_function("doubled bigint")
async def double(row):
    return {"doubled": 2 * row["id"]}


def unpickle(sent):
    return pickle.loads(sent)  # noqa: S301 - it was made here


def in_another_python(code, *arguments):
    """Runs a Python that has PySpark's packages, and of sparkawait at most what is installed."""
    return subprocess.run(
        [sys.executable, "-S", "-c", code, *arguments],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(pyspark.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def python(tmp_path):
    """Makes a program that stands for another Python, and answers `-c` with the given script."""

    def make(script):
        program = tmp_path / "python"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return str(program)

    return make


def test_what_is_sent_comes_out_as_it_was():
    def add(number):
        return number + 1

    opened = unpickle(cloudpickle.dumps(Parcel(add)))

    assert type(opened) is Parcel
    assert opened.value(1) == 2


def test_another_version_on_an_executor_says_so(monkeypatch):
    sent = cloudpickle.dumps(Parcel(1))
    monkeypatch.setattr(shipment, "VERSION", "9.9.9")

    with pytest.raises(sa.ConfigurationError) as raised:
        unpickle(sent)

    assert raised.value.kind is ErrorKind.VERSION_MISMATCH
    assert str(raised.value) == (
        f"the driver has sparkawait {sa._core.VERSION}, this executor 9.9.9;"
        " install the same version on both"
    )


def test_the_version_is_checked_before_classes_are_looked_for(monkeypatch):
    sent = cloudpickle.dumps(Parcel(1))
    monkeypatch.setattr(shipment, "VERSION", "9.9.9")
    monkeypatch.delattr(sys.modules[__name__], "Parcel")

    with pytest.raises(sa.ConfigurationError, match=r"this executor 9\.9\.9"):
        unpickle(sent)


def test_another_build_of_the_same_version_says_so(monkeypatch):
    sent = cloudpickle.dumps(Parcel(1))
    monkeypatch.setattr(shipment, "BUILD", shipment.BUILD + 1)
    monkeypatch.delattr(sys.modules[__name__], "Parcel")

    with pytest.raises(sa.ConfigurationError) as raised:
        unpickle(sent)

    assert raised.value.kind is ErrorKind.VERSION_MISMATCH
    assert str(raised.value) == (
        f"the driver and this executor have sparkawait {sa._core.VERSION}, but from different"
        " builds; install the same wheel on both, and start the driver again if that was done"
        " while it ran"
    )


@pytest.mark.parametrize("unknown", ["driver", "executor"])
def test_a_build_that_cannot_be_told_is_taken(monkeypatch, unknown):
    if unknown == "driver":
        monkeypatch.setattr(shipment, "BUILD", 0)
    sent = cloudpickle.dumps(Parcel(1))
    monkeypatch.undo()
    if unknown == "executor":
        monkeypatch.setattr(shipment, "BUILD", 0)

    assert unpickle(sent).value == 1


def test_builds_are_told_by_the_python_files_of_the_package(tmp_path):
    def built(name, files):
        package = tmp_path / name
        for file, text in files.items():
            (package / file).parent.mkdir(parents=True, exist_ok=True)
            (package / file).write_text(text)
        return fingerprint(package)

    files = {"plan.py": "a = 1", "spark/carry.py": "b = 2"}
    one = built("one", files)

    assert one == built("elsewhere", dict(reversed(files.items())))
    assert one == built("other_machine", {**files, "_core.abi3.so": "machine code", "a.pyc": ""})
    assert one != built("longer", {**files, "plan.py": "a = 10"})
    assert one != built("moved", {"plan.py": "a = 1", "carry.py": "b = 2"})
    assert built("compiled", {"plan.pyc": "a = 1"}) == 0
    assert shipment.BUILD == fingerprint(Path(sa.__file__).parent) != 0


def test_a_module_that_is_not_on_the_executor_is_named(tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("class Thing:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    import only_here  # pyright: ignore[reportMissingImports]

    sent = cloudpickle.dumps(Parcel(only_here.Thing()))
    monkeypatch.undo()
    monkeypatch.delitem(sys.modules, "only_here", raising=False)

    with pytest.raises(sa.ConfigurationError, match="needs module `only_here`") as raised:
        unpickle(sent)

    assert raised.value.kind is ErrorKind.MODULE_MISSING


def test_a_worker_without_sparkawait_names_both_pythons_and_the_setting():
    sent = base64.b64encode(cloudpickle.dumps(Parcel(1))).decode()

    result = in_another_python(
        "import base64, pickle, sys; pickle.loads(base64.b64decode(sys.argv[1]))", sent
    )

    *_, sentence = result.stderr.strip().splitlines()
    assert sentence == (
        f"ImportError: Spark's Python workers run {sys.executable}, which cannot import sparkawait"
        f" (No module named 'sparkawait'); the driver runs {sys.executable} and has sparkawait"
        f" {sa.__version__}. Send it along with sparkawait.ship(spark), install it for the"
        " workers'"
        " Python, or name another Python with PYSPARK_PYTHON, spark.pyspark.python or, for Spark"
        " Connect, spark.sql.execution.pyspark.python"
    )


def test_a_pyarrow_that_is_too_old_on_an_executor_says_so(monkeypatch):
    sent = cloudpickle.dumps(Parcel(1))
    newer = pa.__version__
    monkeypatch.setattr(pa, "__version__", "1.0.0")

    with pytest.raises(sa.ConfigurationError) as raised:
        unpickle(sent)

    assert raised.value.kind is ErrorKind.WORKERS_UNFIT
    sentence = str(raised.value)
    assert (
        f"workers run {sys.executable}, whose pyarrow 1.0.0 is too old for this Spark" in sentence
    )
    assert f"the driver runs {sys.executable} with pyarrow {newer}" in sentence
    assert "PYSPARK_PYTHON" in sentence


def test_a_python_of_the_workers_without_distutils_is_told_what_brings_it(monkeypatch):
    def ask():
        raise ModuleNotFoundError(name="distutils")

    monkeypatch.setattr(shipment, "require_minimum_pyarrow_version", ask)

    with pytest.raises(sa.ConfigurationError) as raised:
        shipment._require_pyarrow("/driver/python", "21.0.0")

    assert raised.value.kind is ErrorKind.WORKERS_UNFIT
    assert f"run {sys.executable}, which lacks `distutils`, needed by" in str(raised.value)
    assert "Install 'setuptools<81' there" in str(raised.value)


def test_tasks_of_another_version_fail_with_that_sentence(spark):
    number = spark.range(1)

    class Old(Shipment):
        def __call__(self, batches):
            return batches

        def __reduce__(self):
            opener, (format_, _, *others) = super().__reduce__()
            return opener, (format_, "0.0.1", *others)

    with pytest.raises(Exception, match=r"the driver has sparkawait 0\.0\.1, this executor"):
        number.mapInArrow(Old(), "id bigint").collect()


def test_a_python_of_the_workers_without_sparkawait_is_refused_by_the_call(
    spark, python, monkeypatch
):
    other = python(
        f"echo {sys.version_info[0]}.{sys.version_info[1]}\n"
        "echo \"ModuleNotFoundError: No module named 'sparkawait'\" >&2\n"
        "exit 1"
    )
    monkeypatch.setattr(spark.sparkContext, "pythonExec", other)

    with pytest.raises(sa.ConfigurationError) as raised:
        sa.ordered_wait(spark.range(1), double)

    assert raised.value.kind is ErrorKind.WORKERS_UNFIT
    assert str(raised.value) == (
        f"Spark's Python workers would run {other}, which cannot import sparkawait"
        " (ModuleNotFoundError: No module named 'sparkawait'); the driver runs"
        f" {sys.executable}. Set PYSPARK_PYTHON (spark.pyspark.python for spark-submit) to it"
        ' before the session starts: os.environ["PYSPARK_PYTHON"] = sys.executable; or send'
        " sparkawait along with sparkawait.ship(spark)"
    )


def test_another_version_of_python_is_refused_by_the_call(spark, python, monkeypatch):
    monkeypatch.setattr(spark.sparkContext, "pythonExec", python("echo 3.1"))

    with pytest.raises(sa.ConfigurationError, match=r"which is Python 3\.1 and not 3\."):
        sa.unordered_wait(spark.range(1), double)


def test_workers_run_the_drivers_python_where_nobody_chose_theirs(spark, monkeypatch):
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "python3")
    monkeypatch.delenv("PYSPARK_PYTHON")

    assert sa.ordered_wait(spark.range(3), double).count() == 3
    assert spark.sparkContext.pythonExec == sys.executable


@pytest.mark.parametrize("is_other", [True, False])
def test_a_python_that_workers_would_not_have_run_is_told_once(
    spark, python, monkeypatch, caplog, is_other
):
    other = python("exit 1") if is_other else sys.executable
    monkeypatch.setattr(session.shutil, "which", lambda _: other)
    monkeypatch.delenv("PYSPARK_PYTHON")
    warn_once.cache_clear()
    for _ in range(3):
        monkeypatch.setattr(spark.sparkContext, "pythonExec", "python3")
        run_drivers_python(Session(spark))

    assert spark.sparkContext.pythonExec == sys.executable
    said = [it.getMessage() for it in caplog.records if "the workers of this session" in it.msg]
    assert len(said) == is_other
    assert all(f"run {sys.executable}, as the driver does" in it for it in said)


@pytest.mark.newest_spark
@pytest.mark.nightly
def test_workers_without_pyarrow_are_named_by_ship_with_the_way_out(tmp_path):
    empty = Environment.venv(tmp_path / "empty").python
    body = """
from sparkawait.spark import shipping
try:
    shipping._platform_of_executors(spark)
except sa.ConfigurationError as error:
    print(error.kind, error)
"""
    told = run_spark_program(body, PYSPARK_PYTHON=str(empty)).stdout
    assert f"module-missing the workers run `{empty}`, which has no pyarrow" in told
    assert "set PYSPARK_PYTHON on the driver, before the session starts" in told


def test_a_column_function_runs_the_drivers_python_where_nobody_chose_one(spark, monkeypatch):
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "python3")
    monkeypatch.delenv("PYSPARK_PYTHON")
    spark.range(1).select(sa.async_udf(double)("id"))

    assert spark.sparkContext.pythonExec == sys.executable


@pytest.mark.parametrize("chosen", [{"PYSPARK_PYTHON": "python3"}, {}])
def test_a_python_that_was_chosen_stays(spark, python, monkeypatch, chosen):
    name = chosen.get("PYSPARK_PYTHON") or python(f'exec {sys.executable} "$@"')
    monkeypatch.setattr(spark.sparkContext, "pythonExec", name)
    monkeypatch.delenv("PYSPARK_PYTHON")
    for variable, value in chosen.items():
        monkeypatch.setenv(variable, value)
    run_drivers_python(Session(spark))

    assert spark.sparkContext.pythonExec == name


def test_another_python_with_sparkawait_is_as_good(spark, python, monkeypatch):
    other = python(f'exec {sys.executable} "$@"')
    monkeypatch.setattr(spark.sparkContext, "pythonExec", other)

    assert sa.ordered_wait(spark.range(3), double).count() == 3


def test_a_missing_package_is_named_with_the_way_out(spark, monkeypatch):
    numbers = spark.range(1)
    monkeypatch.setitem(sys.modules, "pandas", None)
    session.require_packages.cache_clear()

    for call in (lambda: sa.ordered_wait(numbers, double), lambda: sa.async_udf(double)):
        with pytest.raises(sa.ConfigurationError) as raised:
            call()
        assert raised.value.kind is ErrorKind.MODULE_MISSING
        assert "Pandas >= " in str(raised.value)
        assert "pip install 'sparkawait[spark]'" in str(raised.value)


@pytest.mark.parametrize("flavour", ["mapInArrow", "column"])
def test_tasks_find_the_connection_to_the_jvm(spark, calls, flavour):
    """It lies in PySpark's private variables, so each line of Spark is asked."""

    @sa.async_function("found boolean")
    async def look(row):
        import threading

        names = [thread.name for thread in threading.enumerate()]
        return {"found": "sparkawait-connection" in names}

    numbers = spark.range(1)
    if flavour == "column":
        found = numbers.select(sa.async_udf(look)("id"))
    else:
        found = sa.ordered_wait(numbers, look).select("found")

    assert found.first()[0] is True


def test_a_call_asks_the_jvm_as_little_as_mapping_does(spark, monkeypatch):
    numbers = spark.range(3)
    sa.ordered_wait(numbers, double)  # what is asked once
    send, sent = GatewayClient.send_command, []

    def counted(client, command, *arguments, **options):
        if not command.startswith("m"):  # whenever Python finds garbage
            sent.append(command)
        return send(client, command, *arguments, **options)

    monkeypatch.setattr(GatewayClient, "send_command", counted)
    numbers.mapInArrow(lambda batches: batches, "id bigint, doubled bigint")
    mapping = len(sent)
    sa.ordered_wait(numbers, double)

    # The schema, the master and the like; to copy the settings of the context were 600 more.
    assert 0 < mapping < len(sent) < 3 * mapping, (mapping, len(sent))
