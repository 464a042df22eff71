# SPDX-License-Identifier: Apache-2.0
"""The modules of a crate, and which of them imports which.

Read from the text, as `rustfmt` writes it: a use declaration, and every path that begins with
`crate`, `self`, `super` or a module that the file declares. Tests are left out, and so is what a
file only passes on (`pub use`): whoever imports that imports the file where it is.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# A module by its path from the root of the crate; the root itself is ().
Module = tuple[str, ...]

COMMENT_OR_TEXT = re.compile(r'//[^\n]*|"(?:\\.|[^"\\])*"', re.DOTALL)
TESTS = re.compile(
    r"#\[cfg\(test\)\]\n(?:#\[[^\n]*\n)*mod tests \{\n.*?^\}", re.DOTALL | re.MULTILINE
)
USE = re.compile(r"^[ \t]*(pub(?:\([^)]*\))?[ \t]+)?use[ \t]+([^;]+);", re.MULTILINE)
DECLARED = re.compile(r"^(?:pub(?:\([^)]*\))?[ \t]+)?mod[ \t]+(\w+);", re.MULTILINE)
PATH = re.compile(r"(?<![\w:])(\w+(?:::\w+)+)")


@dataclass
class Source:
    """What one file declares, passes on and names."""

    children: set[str] = field(default_factory=set[str])
    # Name: where it is from, as it is written.
    passed_on: dict[str, Module] = field(default_factory=dict[str, Module])
    named: list[Module] = field(default_factory=list[Module])


def imports(root: Path) -> dict[Path, set[Path]]:
    """For each file below `root`, the source folder of a crate, the files that it imports from."""
    files = {module_of(root, path): path for path in root.rglob("*.rs") if not is_test(path)}
    sources = {module: read(path.read_text(encoding="utf-8")) for module, path in files.items()}
    found: dict[Path, set[Path]] = {path: set() for path in files.values()}
    for module, source in sources.items():
        for name in source.named:
            target = resolve(sources, module, name)
            if target is not None and target != module:
                found[files[module]].add(files[target])
    return found


def is_test(path: Path) -> bool:
    return path.stem == "tests" or "tests" in path.parts[-2:-1]


def module_of(root: Path, path: Path) -> Module:
    parts = path.relative_to(root).with_suffix("").parts
    return () if parts == ("lib",) else parts


def read(text: str) -> Source:
    text = COMMENT_OR_TEXT.sub("", TESTS.sub("", text))
    source = Source(children=set(DECLARED.findall(text)))
    for is_public, tree in USE.findall(text):
        for path, name in leaves(" ".join(tree.split())):
            if is_public:
                source.passed_on[name] = path
            else:
                source.named.append(path)
    for path in PATH.findall(USE.sub("", text)):
        source.named.append(tuple(path.split("::")))
    return source


def leaves(tree: str, prefix: Module = ()) -> Iterator[tuple[Module, str]]:
    """The paths of a use declaration, each with the name that it has here."""
    tree = tree.strip()
    head, brace, rest = tree.partition("{")
    if brace:
        prefix = (*prefix, *(part.strip() for part in head.split("::") if part.strip()))
        for branch in split_at_commas(rest.rpartition("}")[0]):
            yield from leaves(branch, prefix)
        return
    path, _, name = tree.partition(" as ")
    parts = (*prefix, *path.split("::"))
    if parts[-1] == "self":
        parts = parts[:-1]
    yield parts, name or parts[-1]


def split_at_commas(branches: str) -> Iterator[str]:
    depth, start = 0, 0
    for index, character in enumerate(branches):
        depth += (character == "{") - (character == "}")
        if character == "," and depth == 0:
            yield branches[start:index]
            start = index + 1
    if branches[start:].strip():
        yield branches[start:]


def resolve(sources: dict[Module, Source], here: Module, path: Module) -> Module | None:
    """The module that the last item of `path` is in, seen from `here`; none if not of the crate."""
    at: Module = here
    rest = list(path)
    first = rest.pop(0)
    if first == "crate":
        at = ()
    elif first == "super":
        at = here[:-1]
    elif first in sources[here].children:
        at = (*here, first)
    elif first != "self":
        return None
    while rest:
        name = rest.pop(0)
        if name == "super":
            at = at[:-1]
        elif name in sources[at].passed_on:
            return resolve(sources, at, (*sources[at].passed_on[name], *rest))
        elif (*at, name) in sources:
            at = (*at, name)
        else:
            break
    return at
