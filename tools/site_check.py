# SPDX-License-Identifier: Apache-2.0
"""Looks at the built site in a headless browser, as `make site-check` does.

usage: python tools/site_check.py SITE PICTURES [PAGE ..]

Each page is opened for light and for dark, on a telephone and on a desk. axe must find nothing,
no page may be wider than the window, and all that the page loads must be there.
Pictures of the first page of each kind go to a folder, for people.
"""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Response, sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# A browser that looks for updates waits for answers that a closed network never gives.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
WIDTHS = {"narrow": 390, "wide": 1280}
HEIGHT = 900
FAILED = 400
SCHEMES = ("light", "dark")
PICTURED = ("index.html", "limits.html", "options.html", "reference/types.html")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Says nothing; what is missing is found by the page that asks for it."""


@contextmanager
def _served(site: Path) -> Iterator[str]:
    """Gives the address of a folder, over loopback: a page from a file may not load its index."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def _note(failed: list[str], response: Response) -> None:
    """Notes what is not there; a site that is not published has no list of versions."""
    if response.status >= FAILED and not response.url.endswith("/versions.json"):
        failed.append(f"{response.url}: {response.status}")


def _too_wide(page: Page) -> Iterator[str]:
    """Yields what makes a reader scroll sideways."""
    width, window = page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    if width > window:
        yield f"it is {width} px wide in a window of {window} px"


def _violations(page: Page) -> Iterator[str]:
    """Yields what axe finds, with the first places."""
    for found in Axe().run(page).response["violations"]:
        places = [" ".join(node["target"]) for node in found["nodes"]]
        shown = "; ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")  # noqa: PLR2004
        yield f"{found['id']} ({found['impact']}): {found['help']}: {shown}"


def _findings(browser: Browser, url: str, name: str, pictures: Path) -> Iterator[str]:
    """Yields all that is wrong with a page, with where it was seen."""
    for scheme in SCHEMES:
        page = browser.new_page(color_scheme=scheme)
        failed: list[str] = []
        page.on("requestfailed", lambda it, failed=failed: failed.append(f"{it.url} failed"))
        page.on("response", partial(_note, failed))
        page.on("pageerror", lambda it, failed=failed: failed.append(f"script: {it}"))
        for kind, width in WIDTHS.items():
            page.set_viewport_size({"width": width, "height": HEIGHT})
            page.goto(f"{url}/{name}", wait_until="load")
            if name in PICTURED:
                picture = f"{name.replace('/', '-').removesuffix('.html')}-{kind}-{scheme}.png"
                page.screenshot(path=pictures / picture)
            found = [*failed, *_too_wide(page), *_violations(page)]
            failed.clear()
            yield from (f"{name} ({kind}, {scheme}): {it}" for it in found)
        page.close()


def main(site: Path, pictures: Path, names: list[str]) -> None:
    """Checks the pages that are named, or all, and ends with 1 if one has a finding."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        sys.exit("error: no browser; run tools/install-servers --browser")
    pictures.mkdir(parents=True, exist_ok=True)
    names = names or sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    if not names:
        sys.exit(f"error: {site} has no pages; run make site")
    count = 0
    with _served(site) as url, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=[*FLAGS])
        for name in names:
            for found in _findings(browser, url, name, pictures):
                count += 1
                sys.stdout.write(f"{found}\n")
                sys.stdout.flush()
        browser.close()
    sys.stdout.write(f"{len(names)} pages, {count} findings, pictures in {pictures}\n")
    sys.exit(1 if count else 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
