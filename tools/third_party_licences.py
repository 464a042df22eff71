# SPDX-License-Identifier: Apache-2.0
"""Writes the licences of all crates that are compiled into the extension module, with their texts.

usage: python tools/third_party_licences.py FILE [TARGET]

TARGET is that of the wheel, such as `aarch64-unknown-linux-gnu`; by default the machine's own. The
file goes into wheels (`license-files` in pyproject.toml), next to the list of components that
maturin writes. A crate without a text has that of a crate of the same repository and licence.
Without one it is taken under Apache-2.0 where it offers that, and is an error elsewhere.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MODULE = "sparkawait-python"
APACHE = "Apache-2.0"
NAMES = re.compile(r"(?i)(?:.*[-_.])?(licen[cs]e|copying|copyright|notice|unlicense)(?:[-_.].*)?")


def cargo_metadata(target: str) -> Any:
    """Asks Cargo for the locked graph of one target."""
    command = [
        "cargo",
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--filter-platform",
        target,
    ]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603
    return json.loads(told.stdout)


def host() -> str:
    """Returns the target of this machine."""
    told = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True)  # noqa: S607
    found = re.search(r"^host: (.*)$", told.stdout, re.MULTILINE)
    if found is None:
        raise SystemExit("error: rustc does not name its host")
    return found[1]


def compiled_in(metadata: Any) -> list[dict[str, Any]]:
    """Returns the packages that are linked into the module, those of this repository left out."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    waiting = [it["id"] for it in packages.values() if it["name"] == MODULE]
    seen: set[str] = set()
    while waiting:
        found = waiting.pop()
        if found in seen:
            continue
        seen.add(found)
        for dependency in nodes[found]["deps"]:
            is_linked = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            waiting.extend([dependency["pkg"]] if is_linked else [])
    kept = (packages[it] for it in seen if packages[it]["source"] is not None)
    return sorted(kept, key=lambda it: (it["name"], it["version"]))


def texts_of(package: dict[str, Any]) -> list[str]:
    """Returns the texts that a crate brings."""
    folder = Path(package["manifest_path"]).parent
    files = [path for path in sorted(folder.iterdir()) if NAMES.fullmatch(path.name)]
    named = package.get("license_file")
    if named and folder / named not in files:
        files.append(folder / named)
    found: list[str] = []
    for path in files:
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace").strip()
            # Some archives have a link where the text should be, which is then a path.
            if len(text) > len(path.name) * 4:
                found.append(text)
    return found


def origin_of(package: dict[str, Any]) -> tuple[str, str]:
    """Returns what two crates have in common whose authors publish them together."""
    return package.get("repository") or package["name"], package["license"] or ""


def document(packages: list[dict[str, Any]]) -> str:
    """Returns the file: a list of crates, then each text once with the crates that have it."""
    having: dict[str, list[str]] = defaultdict(list)
    spelt: dict[str, str] = {}
    lacking: list[str] = []
    lines = ["Licences of the crates that are compiled into sparkawait", ""]
    together: dict[tuple[str, str], list[str]] = {}
    for package in packages:
        if texts := texts_of(package):
            together.setdefault(origin_of(package), texts)
    for package in packages:
        name = f"{package['name']} {package['version']}"
        lines.append(f"  {name}: {package['license']}")
        texts = texts_of(package) or together.get(origin_of(package), [])
        for text in texts:
            # Copies differ in their line breaks.
            words = " ".join(text.split())
            spelt.setdefault(words, text)
            having[words].append(name)
        if not texts and APACHE in re.split(r"\s+OR\s+|/", package["license"] or ""):
            spelt.setdefault(APACHE, (ROOT / "LICENSE").read_text(encoding="utf-8").strip())
            having[APACHE].append(f"{name} (taken under {APACHE})")
        elif not texts:
            lacking.append(name)
    if lacking:
        raise SystemExit(
            f"error: these crates bring no text of their licence: {', '.join(lacking)}"
        )
    for words, names in having.items():
        lines += ["", "=" * 80, ", ".join(names), "-" * 80, spelt[words]]
    return "\n".join(lines) + "\n"


def main(file: Path, target: str) -> None:
    """Writes the file."""
    packages = compiled_in(cargo_metadata(target))
    file.write_text(document(packages), encoding="utf-8")
    print(f"{file.name}: {len(packages)} crates for {target}")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else host())  # noqa: PLR2004
