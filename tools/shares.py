# SPDX-License-Identifier: Apache-2.0
"""A table of what something is made of."""

from collections import Counter

LEAST = 0.01


def shares(found: Counter[str], size: int, part: str, whole: str) -> str:
    """Returns a table of Markdown of all that is at least a hundredth, the largest first.

    Args:
        found: Bytes by name.
        size: Bytes of the whole.
        part: What the names are of.
        whole: What they are parts of.
    """
    lines = [f"| {part} | kB | of the {whole} |", "|---|---:|---:|"]
    rest = size
    for name, taken in found.most_common():
        if taken >= LEAST * size:
            lines.append(f"| {name} | {taken // 1000} | {taken / size:.1%} |")
            rest -= taken
    return "\n".join([*lines, f"| all else | {rest // 1000} | {rest / size:.1%} |"])
