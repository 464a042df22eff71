# SPDX-License-Identifier: Apache-2.0
"""Which part of the Python package may import which."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.meta.repository import PACKAGE, ROOT, imported_modules

# `demo` is a program that uses the package, as a user's job would.
MAY_IMPORT_PYSPARK = {"spark", "demo"}


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


def test_the_package_carries_its_types():
    assert Path(PACKAGE / "py.typed").is_file()
