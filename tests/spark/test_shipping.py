# SPDX-License-Identifier: Apache-2.0
"""sparkawait is sent to executors that have none."""

import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pyspark
import pytest

import sparkawait as sa
from sparkawait.exceptions import ErrorKind
from sparkawait.spark import session, shipping
from sparkawait.spark.shipping import Platform, Wheel
from tests.spark.shipping_program import VEHICLES

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
PACKAGE = Path(sa.__file__).parent
MACHINE = platform.machine()
DEBIAN = Platform("Linux", "x86_64", "glibc", (2, 36), (3, 11))
ALPINE = Platform("Linux", "aarch64", "musl", (1, 2), (3, 12))
MAC = Platform("Darwin", "arm64", "", (14, 5), (3, 13))


def wheel_of(path: Path, tag: str, version: str = sa.__version__, extra: str = "") -> Path:
    """Makes a wheel of the package under test, as a build backend does."""
    about = f"sparkawait-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(PACKAGE.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, f"sparkawait/{file.relative_to(PACKAGE)}")
        archive.writestr(f"{about}/WHEEL", f"Wheel-Version: 1.0\nTag: {tag}\n")
        archive.writestr(f"{about}/METADATA", f"Name: sparkawait\nVersion: {version}\n{extra}")
    return path


def small_wheel(path: Path, *tags: str, version: str = sa.__version__) -> Path:
    about = f"sparkawait-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("sparkawait/_core.abi3.so", b"")
        archive.writestr(f"{about}/WHEEL", "".join(f"Tag: {tag}\n" for tag in tags))
        archive.writestr(f"{about}/METADATA", f"Version: {version}\n")
    return path


# --- a wheel


@pytest.mark.parametrize(
    ("tag", "fits", "reason"),
    [
        ("cp310-abi3-manylinux_2_17_x86_64", DEBIAN, None),
        ("cp310-abi3-manylinux2014_x86_64", DEBIAN, None),
        ("cp310-abi3-manylinux_2_39_x86_64", DEBIAN, "needs glibc 2.39 or newer"),
        ("cp312-abi3-manylinux_2_17_x86_64", DEBIAN, "needs Python 3.12 or newer"),
        ("cp310-abi3-manylinux_2_17_aarch64", DEBIAN, "was built for Linux on aarch64"),
        ("cp310-abi3-musllinux_1_2_x86_64", DEBIAN, "needs musl 1.2 or newer"),
        ("cp310-abi3-macosx_11_0_arm64", DEBIAN, "was built for macOS on arm64"),
        ("cp310-abi3-linux_x86_64", DEBIAN, None),
        ("cp310-abi3-linux_aarch64", DEBIAN, "was built for linux_aarch64"),
        ("cp310-abi3-win_amd64", DEBIAN, "was built for win_amd64"),
        ("cp310-abi3-musllinux_1_2_aarch64", ALPINE, None),
        ("cp310-abi3-manylinux_2_17_aarch64", ALPINE, "needs glibc 2.17 or newer"),
        ("cp310-abi3-macosx_11_0_arm64", MAC, None),
        ("cp310-abi3-macosx_11_0_universal2", MAC, None),
        ("cp310-abi3-macosx_15_0_arm64", MAC, "needs macOS 15.0 or newer"),
        ("cp310-abi3-manylinux_2_17_x86_64", MAC, "was built for Linux on x86_64"),
        ("py3-none-any", MAC, None),
    ],
)
def test_a_wheel_says_why_it_does_not_run_somewhere(tmp_path, tag, fits, reason):
    assert Wheel.read(small_wheel(tmp_path / "w.whl", tag)).misfit(fits) == reason


def test_one_tag_that_fits_is_enough(tmp_path):
    tags = ("cp310-abi3-manylinux_2_39_x86_64", "cp310-abi3-manylinux_2_17_x86_64")
    assert Wheel.read(small_wheel(tmp_path / "w.whl", *tags)).misfit(DEBIAN) is None


def test_what_executors_get_is_the_package_of_the_wheel(tmp_path):
    wheel = wheel_of(tmp_path / "w.whl", f"cp310-abi3-linux_{MACHINE}")
    Wheel.read(wheel).write_zip(tmp_path / "one.zip")
    Wheel.read(wheel).write_zip(tmp_path / "two.zip")
    with zipfile.ZipFile(tmp_path / "one.zip") as archive:
        found = archive.read("sparkawait/__init__.py")
    assert found == (PACKAGE / "__init__.py").read_bytes()
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


def test_an_installed_wheel_is_found_with_its_files(tmp_path, monkeypatch):
    site = tmp_path / "site"
    wheel = wheel_of(tmp_path / "w.whl", "cp310-abi3-manylinux_2_17_x86_64")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
        names = [*archive.namelist(), "../../../bin/sparkawait", "sparkawait/__pycache__/a.pyc"]
    record = site / f"sparkawait-{sa.__version__}.dist-info" / "RECORD"
    record.write_text("".join(f"{name},,\n" for name in names))
    monkeypatch.setattr(shipping, "PACKAGE", site / "sparkawait")
    installed = Wheel.installed()
    assert installed.version == sa.__version__
    assert installed.tags == ("cp310-abi3-manylinux_2_17_x86_64",)
    installed.write_zip(tmp_path / "it.zip")
    with zipfile.ZipFile(tmp_path / "it.zip") as archive:
        assert sorted(archive.namelist()) == sorted(names[:-2])


def test_what_was_not_installed_from_a_wheel_has_none(tmp_path, monkeypatch):
    monkeypatch.setattr(shipping, "PACKAGE", tmp_path / "sparkawait")
    with pytest.raises(sa.ConfigurationError, match=r"name it with wheel='\.\.'") as raised:
        Wheel.installed()
    assert raised.value.kind is ErrorKind.OPTION_INVALID


@pytest.mark.parametrize("content", [None, b"", b"no zip", "zip"])
def test_what_is_no_wheel_of_sparkawait_is_refused(tmp_path, content):
    path = tmp_path / "thing.whl"
    if content == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("other-1.dist-info/WHEEL", "Tag: py3-none-any\n")
            archive.writestr("other-1.dist-info/METADATA", "Version: 1\n")
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(sa.ConfigurationError, match=r"`wheel` must be the path of a wheel of"):
        Wheel.read(path)


# --- ship


def test_another_version_than_the_drivers_is_refused(spark, tmp_path):
    wheel = small_wheel(tmp_path / "w.whl", "py3-none-any", version="9.9.9")
    with pytest.raises(
        sa.ConfigurationError, match=r"has sparkawait 9\.9\.9, the driver"
    ) as raised:
        shipping.ship(spark, wheel=wheel)
    assert raised.value.kind is ErrorKind.VERSION_MISMATCH
    assert not session.is_shipped(spark)


@pytest.mark.parametrize("wheel", [5, b"w.whl", ["w.whl"]])
def test_a_wheel_is_named_by_its_path(spark, wheel):
    with pytest.raises(sa.ConfigurationError, match="`wheel` must be a path, got"):
        shipping.ship(spark, wheel=wheel)


def bare_python(folder: Path) -> Path:
    """Makes an environment without packages, and returns its Python.

    Those of the tests are named by PYTHONPATH, whose folders are not searched for the file by which
    the sparkawait under test is found.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    # Nor are they for the one by which setuptools brings distutils, which Spark 3.5 needs on
    # Python 3.12.
    brings_distutils = Path(sysconfig.get_path("purelib"), "distutils-precedence.pth")
    if brings_distutils.exists():
        shutil.copy(brings_distutils, sysconfig.get_path("purelib", vars={"base": str(folder)}))
    return folder / "bin" / "python"


@pytest.fixture(
    scope="module",
    params=[pytest.param(kind, marks=pytest.mark.nightly) for kind in ("classic", "connect")],
)
def shipped(request, tmp_path_factory):
    """What came of shipping to workers with a Python that has everything but sparkawait."""
    if request.param == "connect":
        pytest.importorskip("grpc")
        if int(pyspark.__version__.partition(".")[0]) < 4:
            pytest.skip("before Spark 4.0 the server is not in the package")
    folder = tmp_path_factory.mktemp("shipping")
    python, servers = bare_python(folder / "bare"), bare_python(folder / "server")
    tag = f"cp310-abi3-{platform.system().lower()}_{MACHINE}"
    wheel = wheel_of(folder / "sparkawait-linux.whl", tag)
    wheel_of(folder / "sparkawait-win.whl", "cp310-abi3-win_amd64")
    wheel_of(folder / "sparkawait-linux.whl.other", tag, extra="Summary: another build\n")
    packages = sysconfig.get_path("purelib")
    lacking = subprocess.run(
        [python, "-c", "import pyarrow, pyspark; import sparkawait"],
        env={**os.environ, "PYTHONPATH": packages},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No module named 'sparkawait'" in lacking.stderr
    out = folder / "results.json"
    arguments = (out, wheel, python, servers, request.param)
    program = subprocess.run(
        [sys.executable, "-m", "tests.spark.shipping_program", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": packages},
        capture_output=True,
        text=True,
        check=False,
    )
    assert program.returncode == 0, program.stderr[-5000:]
    results = json.loads(out.read_text())
    by_server = str(servers if request.param == "connect" else python)
    return results | {"expected python": str(python), "expected of the server": by_server}


def test_functions_run_on_workers_that_have_only_what_was_shipped(shipped):
    assert [row["id"] for row in shipped["rows"]] == [0, 1, 2]
    for found in [*shipped["rows"], shipped["column"]]:
        assert found["python"] == shipped["expected python"]
        assert f"sparkawait-{sa.__version__}/sparkawait/__init__.py" in found["module"]


def test_streams_run_there_too(shipped):
    """Spark has a Python unpickle what carries rows over, on the driver, too.

    The second vehicle it always carries out by that of its server.
    """
    pythons = (shipped["expected python"], shipped["expected of the server"])
    rows = [[[id_, python] for id_ in range(3)] for python in pythons]
    assert shipped["carried over"] == [list(it) for it in zip(VEHICLES, rows, strict=False)]


def test_a_wheel_for_something_else_is_refused_on_the_driver(shipped):
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert "was built for win_amd64, and the executors run " in shipped["unfit"]
    assert f"{platform.system()} on {MACHINE}" in shipped["unfit"]
    assert f"Python {python}" in shipped["unfit"]


def test_a_second_wheel_is_refused(shipped):
    assert shipped["another"].startswith("another wheel was shipped to this session")
