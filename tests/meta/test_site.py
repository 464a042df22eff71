# SPDX-License-Identifier: Apache-2.0
"""The site has what there is: an entry for every public name, a page for every document."""

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

import sparkawait as sa
from tests.meta.repository import ROOT
from tools import site_source

DIRECTIVE = re.compile(r"^::: (?P<name>\S+)$", re.MULTILINE)
MODULES = [
    "",
    ".arrow",
    ".exceptions",
    ".http",
    ".llm",
    ".postgres",
    ".redis",
    ".retry",
    ".spark",
    ".testing",
    ".typing",
]


def documented() -> list[str]:
    pages = sorted((ROOT / "docs" / "reference").glob("*.md"))
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    return [match["name"] for match in DIRECTIVE.finditer(text)]


def found(path: str) -> object:
    """Returns what the site finds under a path, as its readers would write it."""
    thing: object = sa
    for name in path.split(".")[1:]:
        thing = getattr(thing, name)
    return thing


def public() -> dict[str, object]:
    """Returns everything public by its path; what has several has each of them."""
    names: dict[str, object] = {}
    for module in MODULES:
        if module in {".arrow", ".llm", ".retry", ".spark", ".testing"}:
            importlib.import_module(f"sparkawait{module}")
        path = f"sparkawait{module}"
        names |= {f"{path}.{name}": found(f"{path}.{name}") for name in found(path).__all__}
    del names["sparkawait.__version__"]
    return {path: it for path, it in names.items() if not isinstance(it, ModuleType)}


def test_every_public_name_has_one_entry_in_the_reference():
    pytest.importorskip("pyspark")
    entries = documented()
    assert len(entries) == len(set(entries))
    shown = [found(path) for path in entries]
    assert [path for path, it in public().items() if it not in shown] == []
    assert [path for path in entries if path not in public()] == []


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    site_source.write(folder)
    return folder


def test_every_page_is_in_the_navigation(pages: Path):
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r"(\S+\.md)$", navigation, re.MULTILINE)
    written = {path.relative_to(pages).as_posix() for path in pages.rglob("*.md")}
    assert sorted(listed) == sorted(written)


def test_links_between_files_lead_to_pages(pages: Path):
    for page in pages.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        for _, _, path, _ in site_source.LINK.findall(text):
            assert (page.parent / path).exists(), f"{page.name}: {path}"
        assert "```python " not in text


def test_the_first_page_alone_has_the_room_of_the_navigation(pages: Path):
    hiding = [path for path in pages.rglob("*.md") if path.read_text().startswith("---\nhide: ")]
    assert hiding == [pages / "index.md"]


def test_a_file_that_is_no_page_is_in_the_repository_or_is_words(monkeypatch, tmp_path):
    (tmp_path / "docs").mkdir()
    text = "[a](../Cargo.toml), [b](b.md#there), ![c](c.svg), [d](#d), [e](https://e.org/x.md)\n"
    (tmp_path / "docs" / "a.md").write_text(text)
    for name in ("b.md", "c.svg"):
        (tmp_path / "docs" / name).write_text("")
    monkeypatch.setattr(site_source, "ROOT", tmp_path)
    monkeypatch.setattr(site_source, "ELSEWHERE", {})
    for urls, shown in [
        ({}, "a"),
        ({"Repository": "https://r.org/x"}, "[a](https://r.org/x/blob/main/Cargo.toml)"),
    ]:
        monkeypatch.setattr(site_source, "read_urls", lambda urls=urls: urls)
        site_source.write(tmp_path / "site")
        written = (tmp_path / "site" / "a.md").read_text()
        assert written == text.replace("[a](../Cargo.toml)", shown)
