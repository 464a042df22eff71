# SPDX-License-Identifier: Apache-2.0
"""A turn is a pass of the thread that drives a task, and nothing else.

Who waits for a limit or a credit has a place in line, and is served when its time comes.
"""

import re

from tests.meta.repository import ROOT, tracked_files

WAITING = (
    "rust/connect/src/postgres/pool.rs",
    "rust/connect/src/requests",
    "rust/connect/src/requests.rs",
    "rust/core/src/flow",
    "rust/core/src/operator",
    "rust/core/src/policy",
    "rust/runtime/src/host_limit.rs",
    "rust/runtime/src/shared_page.rs",
    "rust/simulation/src/limits.rs",
    "rust/simulation/src/rules.rs",
    "rust/simulation/src/model",
    "rust/simulation/src/world/shared_limit.rs",
    "rust/simulation/src/world/sharing.rs",
)
OF_THE_THREAD = {"rust/core/src/policy/warm_up.rs"}
TURN = re.compile(r"\b(?:\w+_)?turns?\b(?! out\b)|\w*[a-z]Turns?\b|\bTurns?\b")


def test_who_waits_has_a_place_and_not_a_turn():
    names = {str(it.relative_to(ROOT)) for it in tracked_files(*WAITING)} - OF_THE_THREAD
    found = {
        f"{name}: {match.group()}"
        for name in names
        for match in TURN.finditer((ROOT / name).read_text())
    }
    assert len(names) > len(WAITING)
    assert not found
