# SPDX-License-Identifier: Apache-2.0
"""Adds compiled modules to the archives in which Spark hands PySpark to its workers.

Workers import PySpark from archives of sources, which Python compiles in each process that does:
1.2 s of processor time for each daemon that forks workers, and the tests start hundreds. Python
takes a compiled module from an archive that has one. Users have the archives as they come, and so
have the environments that the tests of the installation make.

usage: python -m tools.compile_archives
"""

import importlib
import importlib.util
import py_compile
import sys
import tempfile
import zipfile
from pathlib import Path

_WORKERS = ("pyspark.daemon", "pyspark.worker", "pyspark.sql.pandas.serializers")
"""What workers import, with all that these import."""


def main() -> None:
    """Adds to the archives of the running environment, if it has PySpark."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return
    archives = sorted((Path(found.origin).parent / "python" / "lib").glob("*.zip"))
    sys.path[:0] = [str(it) for it in archives]
    for name in _WORKERS:
        importlib.import_module(name)
    specs = [getattr(it, "__spec__", None) for it in sys.modules.values()]
    files = {Path(it.origin) for it in specs if it is not None and it.origin is not None}
    for archive in archives:
        used = {it.relative_to(archive).as_posix() for it in files if it.is_relative_to(archive)}
        _add_compiled(archive, {it for it in used if it.endswith(".py")})


def _add_compiled(archive: Path, modules: set[str]) -> None:
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        written = Path(folder, archive.name)
        written.write_bytes(archive.read_bytes())
        source, compiled = Path(folder, "module.py"), Path(folder, "module.pyc")
        with zipfile.ZipFile(written, "a") as into:
            for name in sorted(modules):
                source.write_bytes(into.read(name))
                py_compile.compile(
                    str(source),
                    str(compiled),
                    dfile=str(archive / name),
                    doraise=True,
                    # The archive says when the source was written, and the copy has another time.
                    invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
                )
                into.write(compiled, f"{name}c")
        written.replace(archive)


if __name__ == "__main__":
    main()
