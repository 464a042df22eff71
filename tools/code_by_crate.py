# SPDX-License-Identifier: Apache-2.0
"""Says which crate the machine code of the extension module is of, where its symbols were kept.

usage: cargo build --release --locked --package sparkawait-python
       target/wheel/bin/python -m tools.code_by_crate target/release/lib_core.so

Prints a table of all crates that have at least a hundredth of the code, not compressed. Code is
counted where it ended up: what was inlined is of the function that it was inlined into, and what
the standard library has for a type of a crate is of that crate where the symbol names the type.
Needs pyelftools, which comes with auditwheel.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tools.shares import shares

STANDARD = frozenset({"alloc", "core", "hashbrown", "std"})
LIBRARY = "standard library"
OTHER = "C and assembly"

_ESCAPES = {
    "$LT$": "<",
    "$GT$": ">",
    "$RF$": "&",
    "$BP$": "*",
    "$LP$": "(",
    "$RP$": ")",
    "$C$": ",",
    "$u20$": " ",
    "$u7b$": "{",
    "$u7d$": "}",
    "$u5b$": "[",
    "$u5d$": "]",
    "$u27$": "'",
    "$u3b$": ";",
    "$u2b$": "+",
    "$u22$": '"',
    "..": "::",
}
_ESCAPE = re.compile("|".join(map(re.escape, _ESCAPES)))
_ROOT = re.compile(r"(?<![\w:])(?:r#)?([a-z_][a-z0-9_]*)::")
_ROOT_OF_V0 = re.compile(r"Cs[0-9A-Za-z]*_(\d+)_?([a-z_][a-z0-9_]*)")


def path_of(symbol: str) -> str | None:
    """Returns the path that a symbol stands for, None where it is not of the older form of Rust."""
    if not (symbol.startswith("_ZN") and re.search(r"17h[0-9a-f]{16}E", symbol)):
        return None
    parts, rest = [], symbol[3:]
    while (length := re.match(r"\d+", rest)) is not None:
        start, end = length.end(), length.end() + int(length[0])
        parts.append(rest[start:end])
        rest = rest[end:]
    names = (_ESCAPE.sub(lambda it: _ESCAPES[it[0]], part) for part in parts[:-1])
    return "::".join(name.removeprefix("_") if "<" in name else name for name in names)


def crates_in(symbol: str) -> list[str] | None:
    """Returns the crates that a symbol of Rust names, and None for those of other languages."""
    if symbol.startswith("_R"):
        return [name[: int(length)] for length, name in _ROOT_OF_V0.findall(symbol)]
    path = path_of(symbol)
    return None if path is None else _ROOT.findall(path)


def crate_of(symbol: str) -> str:
    """Returns the first crate that a symbol names, or what it is of where it names none."""
    if (crates := crates_in(symbol)) is None:
        return OTHER
    return next((name for name in crates if name not in STANDARD), LIBRARY)


def by_crate(functions: Iterable[tuple[str, int]]) -> Counter[str]:
    """Returns the bytes of each crate out of symbols and their sizes."""
    found: Counter[str] = Counter()
    for symbol, size in functions:
        found[crate_of(symbol)] += size
    return found


def functions_of(module: Path) -> tuple[list[tuple[str, int]], int]:
    """Returns the functions of a module, each address once, and the bytes of all of its code."""
    from elftools.elf.elffile import ELFFile

    with module.open("rb") as file:
        elf = ELFFile(file)
        symbols, text = elf.get_section_by_name(".symtab"), elf.get_section_by_name(".text")
        if symbols is None:
            message = f"{module} has no symbols; build it by `cargo build`, as maturin leaves none"
            raise SystemExit(message)
        start, end = text["sh_addr"], text["sh_addr"] + text["sh_size"]
        found = {
            it["st_value"]: (it.name, it["st_size"])
            for it in symbols.iter_symbols()
            if it["st_info"]["type"] == "STT_FUNC" and start <= it["st_value"] < end
        }
        return list(found.values()), text["sh_size"]


if __name__ == "__main__":
    functions, text_size = functions_of(Path(sys.argv[1]))
    print(shares(by_crate(functions), text_size, "crate", "code"))  # noqa: T201 - a program
