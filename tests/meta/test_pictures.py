# SPDX-License-Identifier: Apache-2.0
"""Pictures are of what the terminal showed, and ask no other host for anything."""

import re
from io import StringIO

import pytest
from rich.console import Console
from rich.progress import Progress

from tests.meta.repository import ROOT
from tools import pictures, site_source


@pytest.fixture
def written():
    """What a bar that is drawn again and again, and then taken away, writes on a terminal."""
    file = StringIO()
    console = Console(file=file, width=80, force_terminal=True)
    console.print("before")
    for name, total in [("first", 9), ("second", 3)]:
        with Progress(
            "{task.description} {task.completed}/{task.total}",
            console=console,
            transient=True,
            auto_refresh=False,
        ) as bar:
            task = bar.add_task(name, total=total)
            for _ in range(total):
                bar.advance(task)
                bar.refresh()
        console.print(f"{name} is done")
    return file.getvalue()


def test_a_picture_is_of_one_moment(written):
    running, ended = pictures.screens(written)

    assert re.sub(r"\x1b\[\d*m", "", running).split("\n") == ["before", "first 6/9"]
    assert ended.split() == ["before", "first", "is", "done", "second", "is", "done"]


def test_a_demo_without_a_bar_is_no_picture():
    with pytest.raises(RuntimeError, match="no bar"):
        pictures.screens("Starting Spark ...\n")


def test_pictures_ask_no_other_host(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "OUT", tmp_path)
    shown = pictures.terminal()
    shown.print("what is shown")
    pictures.write("name", "title", shown)

    text = (tmp_path / "name.svg").read_text()
    assert "shown" in text
    assert re.findall(r"(?:url\(|href=|src=).?https?:.*", text) == []


@pytest.mark.parametrize("stem", [path.stem for path in pictures.NOTEBOOKS])
def test_the_page_of_a_notebook_has_its_picture(tmp_path, monkeypatch, stem):
    for folder in ("docs/pictures", "examples"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "docs" / "pictures" / f"{stem}.svg").write_text("<svg/>")
    notebook = ROOT / "examples" / f"{stem}.ipynb"
    (tmp_path / "examples" / notebook.name).write_text(notebook.read_text())
    monkeypatch.setattr(site_source, "ROOT", tmp_path)
    monkeypatch.setattr(site_source, "ELSEWHERE", {})
    site_source.write(tmp_path / "site")

    page = tmp_path / "site" / "examples" / f"{stem}.md"
    assert page.read_text().endswith(f"\n![](../pictures/{stem}.svg)")
