# SPDX-License-Identifier: Apache-2.0
"""Each page about a platform says what was tried there and where the logs are, and is listed."""

import re

from tests.meta.repository import ROOT

DEPLOY = ROOT / "docs" / "deploy"
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in DEPLOY.glob("*.md")}


def test_each_page_says_what_was_tried_and_where_the_logs_are():
    assert PAGES
    wanted = {"Logs", "Tried"}
    headings = {
        name: set(re.findall(r"^## (.*)$", text, re.MULTILINE)) for name, text in PAGES.items()
    }
    assert {name for name, found in headings.items() if not wanted <= found} == set()


def test_each_page_is_listed():
    listed = re.findall(
        r"\(deploy/(\w+)\.md\)", (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    )
    assert sorted(listed) == sorted(PAGES)


def test_each_page_names_the_setting_for_more_lines():
    assert [name for name, text in PAGES.items() if "SPARKAWAIT_LOG=INFO" not in text] == []
