# SPDX-License-Identifier: Apache-2.0
"""Which part of the Python package may import which."""

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

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


def test_the_spark_package_has_a_version_and_a_server_of_the_extension_module_and_no_more():
    found = importers(is_of("sparkawait._core"), lambda part: part == "spark")
    assert found == ["spark/limit_server.py", "spark/shipment.py"]


LAYERS = (
    ("exceptions", "_probe"),
    ("_checks",),
    ("_callables", "_option"),
    ("_schema",),
    ("journal", "limits", "outcomes", "rate_limit", "retry", "secrets"),
    ("_arguments",),
    ("options",),
    ("functions",),
    ("_values",),
    ("_plan",),
    ("_worker",),
    ("metrics",),
    ("arrow",),
    ("spark",),
    ("connectors",),
    ("llm",),
    ("testing", "_doctor", "typing"),
    ("", "_doctor.program"),  # the package itself, and programs that use it
)
"""Lower ones first. A file may import those of its own layer, in no circle, and of lower ones."""


def layer_of(module: str) -> int:
    """The layer with the longest name that a module of the package is, or is in."""
    named = {name: index for index, names in enumerate(LAYERS) for name in names}
    found = module.removeprefix("sparkawait").removeprefix(".")
    while found not in named:
        found = found.rpartition(".")[0]
    return named[found]


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(("sparkawait", *parts)).removesuffix(".__init__")


MODULES = {module_of(path): path for path in PACKAGE.rglob("*.py") if "_flights" not in path.parts}


def upward(modules: dict[str, Path]) -> list[str]:
    """Imports of files in higher layers, those within functions and for type checkers, too."""
    return sorted(
        f"{module} -> {name}"
        for module, path in modules.items()
        for name in of_package(path)
        if name in MODULES and layer_of(name) > layer_of(module)
    )


def of_package(path: Path) -> set[str]:
    """The modules of the package that a file names in its imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            within = {name for name in names if name in MODULES or name == "sparkawait._core"}
            found |= within | ({node.module} if within != names else set())
    return {name for name in found if is_of("sparkawait")(name)}


def test_no_import_runs_upward():
    assert len(MODULES) > 70
    assert upward(MODULES) == []


def test_an_import_that_runs_upward_is_found(tmp_path: Path):
    file = tmp_path / "ddl.py"
    file.write_text("def parse():\n    from sparkawait._plan import plan\n", encoding="utf-8")
    assert upward({"sparkawait._schema.ddl": file}) == [
        "sparkawait._schema.ddl -> sparkawait._plan.plan"
    ]


def test_one_place_names_a_higher_layer_by_a_text():
    """A function that is given a column makes one of Spark; the probe looks at an executor."""
    named = re.compile(r"import_module\(\"sparkawait")
    found = [module for module, path in MODULES.items() if named.search(path.read_text("utf-8"))]
    assert sorted(found) == ["sparkawait", "sparkawait._probe", "sparkawait.options"]


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
print(set(dir(sa)) >= {"ship", "job", "testing", "typing"})
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
