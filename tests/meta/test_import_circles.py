# SPDX-License-Identifier: Apache-2.0
"""No file of a crate, or of the package, imports, by however many others, one that imports it."""

from pathlib import Path

import pytest

from tests.meta.repository import PACKAGE, ROOT, cargo_metadata, imported_modules
from tests.meta.rust_modules import imports

CRATES = sorted(
    Path(target["src_path"]).parent
    for package in cargo_metadata("--no-deps")["packages"]
    for target in package["targets"]
    if not {"lib", "cdylib", "proc-macro"}.isdisjoint(target["kind"])
)


def circles(edges: dict[Path, set[Path]]) -> list[list[Path]]:
    """Files that reach one another; each of them once, in one list."""
    reached = {start: reachable(edges, start) for start in edges}
    found = {
        tuple(sorted(other for other in reached[start] if start in reached[other]))
        for start in edges
        if start in reached[start]
    }
    return [list(circle) for circle in sorted(found)]


def reachable(edges: dict[Path, set[Path]], start: Path) -> set[Path]:
    found: set[Path] = set()
    ahead = list(edges[start])
    while ahead:
        path = ahead.pop()
        if path not in found:
            found.add(path)
            ahead.extend(edges[path])
    return found


@pytest.mark.parametrize("crate", CRATES, ids=lambda it: it.parent.name)
def test_imports_of_a_crate_run_in_no_circle(crate: Path):
    edges = imports(crate)
    found = {
        str([path.relative_to(ROOT).as_posix() for path in circle]): sorted(
            f"{path.relative_to(crate).as_posix()} -> {other.relative_to(crate).as_posix()}"
            for path in circle
            for other in edges[path] & set(circle)
        )
        for circle in circles(edges)
    }
    assert found == {}


def test_imports_of_the_package_run_in_no_circle():
    """Those within functions and for type checkers count, too; the package itself is at the top."""
    modules = {
        ".".join(("sparkawait", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(
            ".__init__"
        ): path
        for path in PACKAGE.rglob("*.py")
        if path != PACKAGE / "__init__.py"
    }

    def imported(path: Path) -> set[Path]:
        names = {
            name if name in modules else name.rpartition(".")[0] for name in imported_modules(path)
        }
        return {modules[name] for name in names if name in modules} - {path}

    edges = {path: imported(path) for path in modules.values()}
    assert len(edges) > 70
    assert any(edges.values())
    found = [[path.relative_to(PACKAGE).as_posix() for path in it] for it in circles(edges)]
    assert found == []


def test_a_circle_is_found_where_there_is_one(tmp_path: Path):
    sources = {
        "lib.rs": "mod a;\npub mod b;\npub use b::Passed;\n",
        "a.rs": "use crate::{\n    Passed,\n    b::{self, Other as It},\n};\n",
        "b.rs": 'mod c;\npub use self::c::Passed;\nfn b() { c::call("super::d") } // crate::a\n',
        "b/c.rs": "#[cfg(test)]\nmod tests {\n    use super::super::b;\n}\n",
    }
    for name, text in sources.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    edges = imports(tmp_path)
    a, b, c = (tmp_path / name for name in ("a.rs", "b.rs", "b/c.rs"))
    assert (edges[a], edges[b], edges[c]) == ({b, c}, {c}, set())
    assert circles(edges) == []

    c.write_text("fn c() { crate::a::call() }\n", encoding="utf-8")
    assert circles(imports(tmp_path)) == [sorted([a, b, c])]
