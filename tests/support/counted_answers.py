# SPDX-License-Identifier: Apache-2.0
"""A service that counts what it is asked for each row, and answers with several statuses."""

from __future__ import annotations

import json
import threading
from collections import Counter

from tests.support.scripted_server import Answer

__all__ = ["Answers", "status_of"]


class Answers:
    """Counts the requests for each target, and refuses the first `id % 3` of them."""

    def __init__(self) -> None:
        self.calls: Counter[int] = Counter()
        self.lock = threading.Lock()

    def __call__(self, target: str, _before: int) -> Answer:
        id_ = int(target[1:])
        with self.lock:
            self.calls[id_] += 1
            calls = self.calls[id_]
        if calls <= id_ % 3:
            return 503, {}, b""
        if id_ % 5 == 4:
            return 404, {}, b""
        return 201 if id_ % 7 == 1 else 200, {}, json.dumps({"v": 2 * id_}).encode()


def status_of(id_: int) -> int:
    return 404 if id_ % 5 == 4 else 201 if id_ % 7 == 1 else 200
