# SPDX-License-Identifier: Apache-2.0
"""The wheel that is measured: the one that `SPARKAWAIT_WHEEL` names, or the one in dist/."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["built_wheel"]


def built_wheel() -> Path:
    """Returns the path of the wheel that users would have.

    Raises:
        RuntimeError: If there is none, or more than one to choose from.
    """
    named = os.environ.get("SPARKAWAIT_WHEEL")
    found = [Path(named)] if named else list(Path("dist").glob("sparkawait-*.whl"))
    if len(found) != 1:
        msg = f"{len(found)} wheels in dist/; run `make wheel`, or name one by SPARKAWAIT_WHEEL"
        raise RuntimeError(msg)
    return found[0].resolve()
