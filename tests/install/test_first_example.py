# SPDX-License-Identifier: Apache-2.0
"""Who installs the wheel into an empty environment and copies the first example sees its output.

`make test-install` runs this: it installs packages from the registry that pip is set up with. The
variable `SPARKAWAIT_WHEEL` names a wheel that was built elsewhere.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.meta.test_readme import blocks
from tests.support.environments import Environment
from tests.support.servers import LOOPBACK, free_port
from tests.support.spark_cluster import SparkCluster
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.install, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
LOCAL = '.master("local[2]")'
ONCE = '.config("spark.task.maxFailures", "1")'
EXAMPLE = blocks("README.md", "python run")[0]
[TABLE] = [text for text in blocks("README.md", "text") if "customer 0" in text]
SHOWN = "\n".join(TABLE.splitlines()[:4])
"""With the first row; those behind it may be others, since the example keeps no order."""
START_SECONDS = 90.0
ANY_PORT = {"SPARK_TESTING": "1"}
"""Has the server that PySpark starts listen on a free port, not always on the same one."""


def program(folder: Path, session: str = LOCAL) -> str:
    """Writes the first example of the README, with another session if one is given."""
    assert EXAMPLE.count(LOCAL) == 1
    path = folder / "example.py"
    path.write_text(EXAMPLE.replace(LOCAL, session))
    return path.name


@contextlib.contextmanager
def connect_server(environment: Environment, folder: Path) -> Iterator[str]:
    """Starts a server of Spark Connect whose workers run the Python of an environment."""
    port = free_port()
    command = ["bash", str(environment.spark_home / "bin" / "spark-submit")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += ["--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    command += ["--conf", f"spark.connect.grpc.binding.address={LOOPBACK}"]
    command += ["--conf", f"spark.connect.grpc.binding.port={port}", "spark-internal"]
    log = folder / "server.log"
    python = {"PYSPARK_PYTHON": str(environment.python), "SPARK_LOCAL_IP": LOOPBACK}
    kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ}
    with log.open("wb") as written:
        process = subprocess.Popen(
            command, stdout=written, stderr=subprocess.STDOUT, env={**kept, **python}, cwd=folder
        )
    try:
        wait_until(lambda: "Spark Connect server started" in log.read_text(), START_SECONDS)
        yield f"sc://{LOOPBACK}:{port}"
    finally:
        process.terminate()
        process.wait()


def test_in_a_venv_that_is_not_activated(installed, tmp_path):
    ran = installed.run(installed.python, program(tmp_path), cwd=tmp_path)

    assert SHOWN in ran.stdout, ran.stderr[-3000:]


@pytest.mark.nightly
def test_in_a_prefix_of_its_own_as_conda_makes_it(installed, tmp_path):
    environment = Environment.prefix(tmp_path / "prefix", installed.packages)

    ran = environment.run(environment.python, program(tmp_path), cwd=tmp_path)

    assert SHOWN in ran.stdout, ran.stderr[-3000:]


@pytest.mark.nightly
def test_in_a_venv_of_uv(installed, wheel, tmp_path):
    tools = Environment.venv(tmp_path / "tools")
    tools.install("uv")
    uv = tools.folder / "bin" / "uv"
    environment = Environment(tmp_path / ".venv")
    steps = (
        ["venv", "--quiet", "--python", sys.executable],
        # What is large comes from the environment that has it.
        ["pip", "install", "--quiet", "--no-deps", wheel],
    )
    for step in steps:
        done = tools.run(uv, *step, cwd=tmp_path)
        assert done.returncode == 0, done.stderr[-3000:]
    environment.see(installed)

    ran = tools.run(uv, "run", "--no-project", "python", program(tmp_path), cwd=tmp_path)

    assert SHOWN in ran.stdout, ran.stderr[-3000:]
    assert (environment.packages / "sparkawait").is_dir()


@pytest.mark.nightly
def test_by_spark_connect_that_the_program_starts(installed, wheel, tmp_path):
    environment = Environment.venv(tmp_path / "venv", beside=installed)
    environment.install(f"{wheel}[connect]")

    example = program(tmp_path, '.remote("local[2]")')
    ran = environment.run(environment.python, example, cwd=tmp_path, **ANY_PORT)

    assert SHOWN in ran.stdout, ran.stderr[-3000:]


@pytest.mark.nightly
def test_by_the_thin_client_of_spark_connect(installed, wheel, tmp_path):
    environment = Environment.venv(tmp_path / "venv")
    environment.install(wheel, "pyspark-client")
    (tmp_path / "server").mkdir()

    with connect_server(installed, tmp_path / "server") as address:
        example = program(tmp_path, f'.remote("{address}")')
        ran = environment.run(environment.python, example, cwd=tmp_path)

    assert SHOWN in ran.stdout, ran.stderr[-3000:]


@pytest.fixture(scope="module")
def cluster(installed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    with SparkCluster(folder, workers=1, home=installed.spark_home) as cluster:
        yield cluster


@pytest.mark.nightly
def test_a_cluster_runs_the_python_that_it_is_told(installed, cluster, tmp_path):
    example = program(tmp_path, f'.master("{cluster.address}")')
    ran = installed.run(
        installed.python, example, cwd=tmp_path, PYSPARK_PYTHON=str(installed.python)
    )

    assert SHOWN in ran.stdout, ran.stderr[-3000:]


@pytest.mark.nightly
def test_a_cluster_that_is_told_no_python_says_so_in_one_sentence(installed, cluster, tmp_path):
    empty = Environment.venv(tmp_path / "empty")  # stands for what is first on PATH there
    example = program(tmp_path, f'.master("{cluster.address}"){ONCE}')
    ran = installed.run(installed.python, example, cwd=tmp_path, PYSPARK_PYTHON=str(empty.python))

    assert ran.returncode != 0
    [sentence, *_] = [line for line in ran.stderr.splitlines() if line.startswith("ImportError: ")]
    assert f"run {empty.python}, which cannot import sparkawait" in sentence
    assert f"the driver runs {installed.python}" in sentence
    assert "PYSPARK_PYTHON" in sentence


@pytest.mark.nightly
def test_workers_with_another_minor_version_say_so_in_one_sentence(installed, cluster, tmp_path):
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    python, version = other_python()
    example = program(tmp_path, f'.master("{cluster.address}"){ONCE}')
    ran = installed.run(installed.python, example, cwd=tmp_path, PYSPARK_PYTHON=python)

    assert ran.returncode != 0
    # Spark's own, which comes before anything of ours is read.
    assert f"Python in worker has different version: {version} than that in driver: {own}" in (
        ran.stderr
    )
    assert "PYSPARK_PYTHON" in ran.stderr


def other_python() -> tuple[str, str]:
    """Returns a Python of this machine with another minor version than this one."""
    for environment in ("spark40", "spark35", "pyarrow-oldest"):
        found = subprocess.run(
            [ROOT / "tools" / "python-for", environment, "python3"],
            capture_output=True,
            text=True,
            check=False,
        )
        if found.returncode:
            continue
        python = found.stdout.strip()
        asked = subprocess.run(
            [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=True,
        )
        version = asked.stdout.strip()
        if version != f"{sys.version_info[0]}.{sys.version_info[1]}":
            return python, version
    pytest.skip("this machine has Python in one minor version only")
