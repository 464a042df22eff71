# SPDX-License-Identifier: Apache-2.0
"""Says what a wheel is made of: each file, and each section of the extension module, compressed.

usage: python -m tools.wheel_parts WHEEL

Prints a table of all that is at least a hundredth of the wheel. A section is compressed by itself,
as the archive would; together that is the module to within a hundredth. Needs pyelftools where the
wheel is one for Linux, which comes with auditwheel.
"""

from __future__ import annotations

import io
import sys
import zipfile
import zlib
from collections import Counter
from pathlib import Path

from tools.shares import shares

MODULE = "_core.abi3.so"
ELF = b"\x7fELF"
WHAT = {
    ".text": "machine code",
    ".rodata": "constants: texts, tables, time zones",
    ".eh_frame": "how a panic unwinds the stack, by function",
    ".eh_frame_hdr": "the index of that",
    ".gcc_except_table": "what a panic drops on its way, by function",
    ".rela.dyn": "addresses that the loader fills in",
    ".data.rel.ro": "tables of functions, for the loader to fill in",
}


def sections(module: bytes) -> dict[str, int]:
    """Returns the compressed size of each section of a module for Linux."""
    from elftools.elf.elffile import ELFFile

    found = ELFFile(io.BytesIO(module)).iter_sections()
    return {
        it.name: len(zlib.compress(it.data()))
        for it in found
        if it.name and it["sh_type"] != "SHT_NOBITS"
    }


def parts(wheel: Path) -> Counter[str]:
    """Returns compressed bytes by what they are."""
    found: Counter[str] = Counter()
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            content = archive.read(entry)
            if entry.filename.endswith(MODULE) and content.startswith(ELF):
                for name, size in sections(content).items():
                    found[f"{name}: {WHAT.get(name, 'of the module')}"] += size
            elif entry.filename.endswith(".py"):
                found["Python code"] += entry.compress_size
            else:
                found[entry.filename.rpartition("/")[2]] += entry.compress_size
    return found


def table(wheel: Path) -> str:
    """Returns the parts as a table of Markdown, the largest first."""
    return shares(parts(wheel), wheel.stat().st_size, "part", "wheel")


if __name__ == "__main__":
    print(table(Path(sys.argv[1])))  # noqa: T201 - a program
