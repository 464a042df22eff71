# SPDX-License-Identifier: Apache-2.0
"""Which part of the Python package may import which."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.meta.repository import PACKAGE, ROOT, imported_modules

# `_doctor` is a program that uses the package, as a user's job would; so is examples/flights, which
# is linked into it as `_flights`.
MAY_IMPORT_PYSPARK = {"spark", "_doctor", "_probe.py"}


def importers(of: Callable[[str], bool], among: Callable[[str], bool]) -> list[str]:
    """Modules of the package whose first folder passes `among` and that import what `of` names."""
    return sorted(
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if among(path.relative_to(PACKAGE).parts[0]) and any(map(of, imported_modules(path)))
    )


def is_of(package: str) -> Callable[[str], bool]:
    return lambda name: name == package or name.startswith(f"{package}.")


def test_only_the_spark_package_imports_pyspark():
    assert importers(is_of("pyspark"), lambda part: part not in MAY_IMPORT_PYSPARK) == []


def test_the_spark_package_leaves_the_extension_module_alone():
    assert importers(is_of("sparkawait._core"), lambda part: part == "spark") == []


# Which folder of the package must not know which others; a file is named where only one may.
UNKNOWN_TO = {
    "_plan": {"spark", "connectors", "testing", "_flights", "_doctor", "arrow", "_worker"},
    "_worker": {"spark", "connectors", "testing", "_flights", "_doctor", "arrow"},
    "connectors": {"spark", "_worker", "testing", "_flights", "_doctor", "arrow"},
    "spark": {"connectors", "testing", "_flights", "_doctor"},
    "testing": {"spark", "connectors", "_worker", "_flights", "_doctor"},
}
EXCEPTIONS = {
    ("_plan/plan.py", "sparkawait._values.results"),  # what a task builds results with
    ("_plan/resolve.py", "sparkawait._values.results"),
    # Makes a call, as users do.
    ("connectors/http_preview.py", "sparkawait.arrow"),
    ("connectors/http_preview.py", "sparkawait.spark"),
}


@pytest.mark.parametrize("folder", UNKNOWN_TO)
def test_a_folder_knows_only_what_lies_below_it(folder):
    known = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in (PACKAGE / folder).rglob("*.py")
        for name in imported_modules(path)
        if any(is_of(f"sparkawait.{other}")(name) for other in UNKNOWN_TO[folder])
    }
    kept = {
        (file, name) for file, name in known if (file, name.rpartition(".")[0]) not in EXCEPTIONS
    }
    assert kept - EXCEPTIONS == set()


def test_public_nouns_stand_alone_at_the_top():
    """What is at the top without an underscore is exported, or named by the types of what is."""
    top = {path.stem for path in PACKAGE.glob("[!_]*.py")}
    faces = [*imported_modules(PACKAGE / "__init__.py"), *imported_modules(PACKAGE / "typing.py")]
    assert top == {name.split(".")[1] for name in faces if name.startswith("sparkawait.")} & top


def test_the_package_does_not_import_tests():
    assert importers(is_of("tests"), lambda _: True) == []


def test_the_package_does_not_import_what_only_developers_have():
    tools = ["pytest", "hypothesis", "cloudpickle"]
    assert {tool: importers(is_of(tool), lambda _: True) for tool in tools} == {
        tool: [] for tool in tools
    }


def test_importing_the_package_imports_no_pyspark_and_starts_no_thread():
    program = """
import sys, threading
import sparkawait
heavy = {"pyspark", "pandas", "aiohttp", "uvloop"} & set(sys.modules)
print(sorted(heavy), threading.active_count())
"""
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["[]", "1"]


def test_every_public_name_of_a_module_exists():
    import sparkawait

    missing = [name for name in sparkawait.__all__ if not hasattr(sparkawait, name)]
    assert missing == []


def test_completion_finds_what_needs_no_further_import():
    program = """
import sparkawait as sa
print(set(dir(sa)) >= {"ship", "show_versions", "spark", "testing", "typing"})
print(sa.testing.simulated("7ms").name, sa.typing.Row is sa.typing.Row)
"""
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["True", "Simulated", "True"]


def test_the_demo_is_a_program_of_the_examples_that_comes_with_the_wheel():
    folder, link = ROOT / "examples" / "flights", PACKAGE / "_flights"
    assert link.is_symlink()
    assert link.resolve() == folder
    assert "python/sparkawait/_flights/*.py" in (ROOT / "pyproject.toml").read_text("utf-8")


def test_the_package_carries_its_types():
    assert Path(PACKAGE / "py.typed").is_file()
