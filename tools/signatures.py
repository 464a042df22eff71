# SPDX-License-Identifier: Apache-2.0
"""Writes the wait functions as editors show them: each option with type, default and sentence.

usage: python tools/signatures.py

A wait function takes its options as ``**given``, so that it passes on what was given and no more,
and `sparkawait.WaitOptions` is the one list of them. At runtime `documented` shows that list in
``help()`` and in notebooks. Editors and type checkers run nothing: for them a package has a stub
`signatures.pyi` with the same functions spelt out, and a connector one of its own name. So a call
costs what it did, no function has a list of options to forward, and no default is a sentinel.

What a function takes beside its options, what it returns and its docstring are read from its
source. The types of the options, for ``**given``, are written beside them, from what each option
says of itself: an option is said in one place.
"""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from sys import stdlib_module_names
from typing import Any

from sparkawait import options
from sparkawait._option import Option, with_entries
from sparkawait.connectors.http_options import HTTP_OPTIONS
from sparkawait.connectors.postgres_lookup import POSTGRES_OPTIONS
from sparkawait.connectors.redis_function import REDIS_OPTIONS

PYTHON = Path(__file__).resolve().parents[1] / "python"
PACKAGES = {"sparkawait.arrow": ["wait"], "sparkawait.spark": ["wait", "udf"]}
"""What has signatures, and the modules that its functions are in."""
STUBS = [f"sparkawait.connectors.{name}" for name in ("http", "postgres", "redis")]
"""Modules whose functions take options, and that define nothing else."""
OPTIONS = {
    "WaitArguments": options.OPTIONS,
    "ColumnArguments": options.COLUMN_OPTIONS,
    "HttpOptions": HTTP_OPTIONS,
    "RedisOptions": REDIS_OPTIONS,
    "PostgresOptions": POSTGRES_OPTIONS,
}
FUNCTION_OPTIONS = {it: o for it, o in options.OPTIONS.items() if o.of_function}
ARGUMENTS = {
    "sparkawait._arguments": {
        "OwnArguments": (
            options.OWN_OPTIONS,
            "The options that a function may have for itself, as keywords of its decorator.",
        ),
        "FunctionArguments": (
            FUNCTION_OPTIONS | options.OF_FUNCTION,
            "What ``with_options`` of a function takes, as keywords.",
        ),
        "ColumnArguments": (
            options.COLUMN_OPTIONS,
            "The options that column functions have, too, as keywords.",
        ),
        "WaitArguments": (
            options.OPTIONS,
            "The options of the wait functions as keywords: what `WaitOptions` takes.",
        ),
    },
    "sparkawait.connectors.arguments": {
        "HttpOptions": (
            HTTP_OPTIONS,
            "The types of the options of `sparkawait.http.get`, ``post`` and ``request``.",
        ),
        "RedisOptions": (
            REDIS_OPTIONS,
            "The types of the options of all functions of `sparkawait.redis`.",
        ),
        "PostgresOptions": (
            POSTGRES_OPTIONS,
            "The types of the options of `sparkawait.postgres.lookup`.",
        ),
    },
}
"""The classes of types by module. One inherits from the last one before it whose options it has."""
HEADER = '''# SPDX-License-Identifier: Apache-2.0
"""What editors show of `{package}`. `make signatures` writes this file; nothing runs it.

The functions themselves are in {modules}.
"""

from __future__ import annotations
'''
ARGUMENTS_HEADER = '''# SPDX-License-Identifier: Apache-2.0
"""The types of the options, as keywords. `make signatures` writes this file, from the options."""

from __future__ import annotations

'''


def path_of(module: str, suffix: str = ".py") -> Path:
    """Returns the file of a module."""
    return PYTHON.joinpath(*module.split(".")).with_suffix(suffix)


def stub(module: str) -> str:
    """Returns the text of the stub of a connector: its functions, and what else it exports."""
    known = _types() | _origins(module)
    functions = [_shown(function, types) for function, types in _functions(module)]
    defined = {function.name for function, _ in _functions(module)}
    exported = sorted(_exported(module))
    passed_on = {it: known[it] for it in exported if it not in defined}
    shown = {it: (origin, f"{name} as {it}") for it, (origin, name) in passed_on.items()}
    used = {it: known[it] for it in _used(functions, known) if it not in shown}
    header = HEADER.format(package=module, modules=f"`{path_of(module).name}`")
    imports = _imports(used | shown)
    return "\n\n".join([f"{header}\n{imports}\n\n__all__ = {json.dumps(exported)}\n", *functions])


def _exported(module: str) -> list[str]:
    for node in ast.parse(path_of(module).read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return list(ast.literal_eval(value))
            case _:
                pass
    return []


def _used(functions: list[str], known: dict[str, tuple[str, str]]) -> set[str]:
    """Returns the names of `known` that the functions are written with."""
    return {
        it.id
        for text in functions
        for it in ast.walk(ast.parse(text))
        if isinstance(it, ast.Name) and it.id in known
    }


def signatures(package: str) -> str:
    """Returns the text of the module `signatures` of a package."""
    modules = [f"{package}.{name}" for name in PACKAGES[package]]
    known = _types() | {"WaitOptions": (options.__name__, "WaitOptions")}
    functions: list[str] = []
    names: set[str] = set()
    for module in modules:
        known |= _origins(module)
        for function, types in _functions(module):
            functions.append(_shown(function, types))
            names.add(function.name)
    used = _used(functions, known)
    header = HEADER.format(package=package, modules=" and ".join(f"`{it}`" for it in modules))
    exported = json.dumps(sorted(names))
    imports = _imports({name: known[name] for name in used})
    return "\n\n".join([f"{header}\n{imports}\n\n__all__ = {exported}\n", *functions])


def arguments(module: str) -> str:
    """Returns the text of a module with the types of options."""
    known, names = _types(), {"TypedDict"}
    classes: list[str] = []
    before: dict[str, dict[str, Option[Any]]] = {"TypedDict": {}}
    for name, (each, meaning) in ARGUMENTS[module].items():
        base = next(it for it in reversed(before) if before[it].keys() <= each.keys())
        inherited = before[base]
        own = {it: option for it, option in each.items() if it not in inherited}
        lines = [f"    {it}: {option.type}" for it, option in own.items()]
        head = f"class {name}({base}, total=False):"
        classes.append("\n".join([head, f'    """{meaning}"""', "", *lines]))
        names |= {name for option in own.values() for name in _named(option)}
        before[name] = each
    imports = _imports({name: known[name] for name in names if name in known})
    exported = json.dumps(sorted(ARGUMENTS[module]))
    top = f"{ARGUMENTS_HEADER}{imports}\n\n__all__ = {exported}\n\n\n"
    return top + "\n\n\n".join(classes) + "\n"


def _types() -> dict[str, tuple[str, str]]:
    """Returns where the names come from that types of options are made of."""
    found = {"TypedDict": ("typing", "TypedDict")}
    package = PYTHON / "sparkawait"
    for path in sorted([*package.glob("*.py"), *package.glob("connectors/*.py")]):
        module = ".".join(path.relative_to(PYTHON).with_suffix("").parts)
        if module not in {options.__name__, "sparkawait.__init__"}:
            for name, origin in _origins(module).items():
                if name not in found or origin[0] == module:
                    found[name] = origin
    # Of the extension module, which packages below do not know.
    return found | {"Row": ("sparkawait._schema.types", "Row")}


def _named(option: Option[Any]) -> Iterator[str]:
    yield from (it.id for it in ast.walk(ast.parse(option.type)) if isinstance(it, ast.Name))


def _functions(module: str) -> Iterator[tuple[ast.FunctionDef, str]]:
    """Yields the functions with ``**given: Unpack[..]``, and the types that stands for."""
    for node in ast.parse(path_of(module).read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef(
                args=ast.arguments(
                    kwarg=ast.arg(annotation=ast.Subscript(slice=ast.Name(id=types)))
                )
            ):
                yield node, types
            case _:
                pass


def _shown(function: ast.FunctionDef, types: str) -> str:
    """Returns a function with each option instead of ``**given``, and without its body."""
    options = OPTIONS[types]
    given = function.args
    lines = _positional(given)
    for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        value = "" if default is None else f" = {ast.unparse(default)}"
        lines.append(ast.unparse(argument) + value)
    for name, option in options.items():
        lines.append(f"{name}: {option.type} = {_default(option)}")
    parameters = "".join(f"    {line},\n" for line in lines)
    is_overload = any(ast.unparse(it) == "overload" for it in function.decorator_list)
    head = "@overload\n" * is_overload + f"def {function.name}(\n{parameters})"
    returned = "" if function.returns is None else f" -> {ast.unparse(function.returns)}"
    match function.body[0]:
        case ast.Expr(value=ast.Constant(value=str(doc))):
            return f'{head}{returned}:\n    """{with_entries(doc, options)}"""\n    ...\n'
        case _:
            return f"{head}{returned}: ...\n"


def _positional(given: ast.arguments) -> list[str]:
    """Returns the parameters in front of the keywords, and the marks between them."""
    arguments = [*given.posonlyargs, *given.args]
    without = len(arguments) - len(given.defaults)
    lines = [ast.unparse(it) for it in arguments[:without]]
    for argument, default in zip(arguments[without:], given.defaults, strict=True):
        lines.append(f"{ast.unparse(argument)} = {ast.unparse(default)}")
    if given.posonlyargs:
        lines.insert(len(given.posonlyargs), "/")
    return [*lines, "*" if given.vararg is None else f"*{ast.unparse(given.vararg)}"]


def _default(option: Option[Any]) -> str:
    value = option.default
    if value is None and not {"None", "Any"} & set(re.findall(r"\w+", option.type)):
        return "..."  # what it is otherwise stands in its sentence
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _origins(module: str) -> dict[str, tuple[str, str]]:
    """Returns where the names of a module come from: the import of each, and its section."""
    found: dict[str, tuple[str, str]] = {}
    for node in ast.walk(ast.parse(path_of(module).read_text(encoding="utf-8"))):
        match node:
            case ast.ImportFrom(module=str(origin), names=names):
                found |= {it.asname or it.name: (origin, ast.unparse(it)) for it in names}
            case ast.Import(names=names):
                found |= {it.asname or it.name: (ast.unparse(it), "") for it in names}
            case (
                ast.ClassDef(name=name)
                | ast.Assign(targets=[ast.Name(id=name)])
                | ast.AnnAssign(target=ast.Name(id=name))
            ):
                found.setdefault(name, (module, name))
            case _:
                pass
    return found


def _imports(used: dict[str, tuple[str, str]]) -> str:
    """Returns the imports as ruff orders them."""
    modules: dict[str, list[str]] = {}
    for origin, name in used.values():
        modules.setdefault(origin, []).append(name)

    def order(origin: str) -> tuple[int, bool, str]:
        first = re.split(r"\W", origin, maxsplit=1)[0]
        section = 0 if first in stdlib_module_names else 2 if first == "sparkawait" else 1
        return section, modules[origin] != [""], origin

    lines: list[str] = []
    before = None
    for origin in sorted(modules, key=order):
        names = ", ".join(sorted(modules[origin]))
        lines += [""] * (before not in {None, order(origin)[0]})
        lines.append(f"from {origin} import {names}" if names else f"import {origin}")
        before = order(origin)[0]
    return "\n".join(lines)


def main() -> None:
    """Writes the files."""
    for module in ARGUMENTS:
        path_of(module).write_text(arguments(module), encoding="utf-8")
    for package in PACKAGES:
        path_of(f"{package}.signatures", ".pyi").write_text(signatures(package), encoding="utf-8")
    for module in STUBS:
        path_of(module, ".pyi").write_text(stub(module), encoding="utf-8")


if __name__ == "__main__":
    main()
