# SPDX-License-Identifier: Apache-2.0
"""Cases: rows, functions and options, all drawn from one seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import sparkawait as sa
from sparkawait.rate_limit import ALONE
from sparkawait.retry import ONLY_REFUSED

__all__ = ["Case", "Part", "Script", "draw"]

MODES = ("ordered", "unordered", "key_ordered")
LATE = "late"
"""What rows that ran out of time get of `on_timeout`."""


@dataclass(frozen=True)
class Script:
    """What calls do; the seed, the row and the number of its call say which of it a call does.

    Attributes:
        raises: Share of the calls that fail in a way that is worth a retry.
        refuses: Share of those that fail for good.
        asks: Share of those that ask to come again later.
        misses: Share of those that have no result.
        hangs: Share of those that never end.
        most: Most results of a call.
        size: Most bytes of a result, or of a message.
        millis: Longest time of a call that takes any.
        blocks: Share of those that keep the event loop for a while, when calls have limits in time.
        waits: Share of those that take time.
        slow: The key whose calls take all of the time, and no others any.
    """

    raises: float
    refuses: float
    asks: float
    misses: float
    hangs: float
    most: int
    size: int
    millis: float
    blocks: float
    waits: float = 0.3
    slow: int | None = None


@dataclass(frozen=True)
class Part:
    """A function and its options.

    Attributes:
        number: Its place among the functions of the case.
        kind: A coroutine for a row or for many, or HTTP requests.
        script: What its calls do.
        options: The options of its own.
        batch: How its rows are collected.
        idempotent: As its function declares.
        is_plain: Whether its function is a plain ``def``, which is called in threads.
    """

    number: int
    kind: Literal["row", "batch", "http"]
    script: Script
    options: dict[str, Any]
    batch: sa.Batch | None = None
    idempotent: bool | None = None
    is_plain: bool = False

    @property
    def on_error(self) -> str:
        """What happens to a row that failed, as long as the task does not."""
        given = self.options["on_error"]
        return given.action if isinstance(given, sa.OnError) else given

    @property
    def has_limits_in_time(self) -> bool:
        """Whether calls may be ended before they have an outcome."""
        return any(self.options.get(it) for it in ("attempt_timeout", "hedge", "timeout"))

    @property
    def max_attempts(self) -> int:
        """Attempts of a row at most."""
        return 1 if self.retry is None else 1 + self.retry.max_retries

    @property
    def holds(self) -> bool:
        """Whether a circuit breaker has rows wait for a destination that is down."""
        breaker = self.options.get("circuit_breaker")
        is_bounded = "timeout" in self.options or "max_wait" in self.options
        return breaker is not None and breaker.when_open == "wait" and is_bounded

    @property
    def retry(self) -> sa.AsyncRetryStrategy | None:
        """What is tried again, also if nothing was said of it."""
        retry = self.options.get("retry", ONLY_REFUSED)
        return None if retry == 0 else retry


@dataclass(frozen=True)
class Case:
    """What is called, with what, and how it ends."""

    seed: int
    mode: str
    shape: Literal["one", "chain", "joined", "beside"]
    lengths: tuple[int, ...]
    parts: tuple[Part, ...]
    common: dict[str, Any]
    """Options of all calls."""
    ends: Literal["well", "closed", "input"] = "well"
    rows: list[dict[str, Any]] = field(default_factory=list)
    tail: int = 0
    """Rows of which each call answers at once; a batch of them comes when all before have left."""

    def __str__(self) -> str:
        """Says all that was drawn."""
        said = [f"seed {self.seed}: {self.shape}, {self.mode}, {self.lengths}, ends {self.ends}"]
        said += [f"  {self.common}"]
        said += [f"  {part}" for part in self.parts]
        return "\n".join(said)


def draw(seed: int) -> Case:
    """Draws a case; the same seed gives the same one."""
    case = _draw(seed)
    # By numbers of its own, so that all else stays as it was.
    chance = random.Random(f"plain {seed}")  # noqa: S311 - no secret
    parts = [
        replace(part, is_plain=part.kind != "http" and _maybe(chance, 0.35)) for part in case.parts
    ]
    # The rows of a tail are called while nothing else holds a thread.
    if case.tail:
        return case
    parts = [_of_columns(random.Random(f"arrow {seed}"), part) for part in parts]  # noqa: S311
    parts = [_failing(random.Random(f"fail {seed}"), part) for part in parts]  # noqa: S311
    parts = [_told(random.Random(f"info {seed} {it.number}"), it) for it in parts]  # noqa: S311
    parts = [_patient(random.Random(f"wait {seed} {it.number}"), it) for it in parts]  # noqa: S311
    return replace(case, parts=tuple(parts))


def _of_columns(chance: random.Random, part: Part) -> Part:
    """Has some functions of many rows be called with record batches."""
    if part.batch is None or not _maybe(chance, 0.4):
        return part
    options, retry = {**part.options}, part.options.get("retry")
    if retry and retry.if_result is not None:
        options["retry"] = replace(retry, if_result=None)
    # Each row has one result.
    script = replace(part.script, misses=0, most=1)
    batch = replace(part.batch, arrow=True, max_bytes=None)
    return replace(part, batch=batch, script=script, options=options)


def _failing(chance: random.Random, part: Part) -> Part:
    """Has some tasks fail when too many rows have."""
    if part.on_error == "fail" or not _maybe(chance, 0.3):
        return part
    rows, ratio = chance.choice((1, 2, 5, 13)), chance.choice((None, None, 0.3))
    on_error = sa.OnError(part.on_error, stop_after=rows, stop_ratio=ratio)
    return replace(part, options={**part.options, "on_error": on_error})


def _told(chance: random.Random, part: Part) -> Part:
    """Has the calls of some functions told in a column of its own."""
    if not _maybe(chance, 0.4):
        return part
    return replace(part, options={**part.options, "info": f"i{part.number}"})


def _patient(chance: random.Random, part: Part) -> Part:
    """Has rows of some circuit breakers wait longer than any case lasts."""
    breaker = part.options.get("circuit_breaker")
    if breaker is None or breaker.when_open == "fail" or not _maybe(chance, 0.7):
        return part
    return replace(part, options={**part.options, "max_wait": "331s"})


def _draw(seed: int) -> Case:
    chance = random.Random(seed)  # noqa: S311 - no secret
    mode = chance.choice(MODES)
    shape = chance.choices(("one", "chain", "joined", "beside"), (60, 10, 15, 15))[0]
    lengths = tuple(chance.choice((0, 1, 2, 3, 5, 13, 29)) for _ in range(chance.randint(1, 4)))
    count = sum(lengths)
    keys, channels = chance.choice((1, 2, 5, 11)), chance.choice((1, 2, 3, 7))
    rows = [
        {
            "id": number,
            "k": None if chance.random() < 0.1 else chance.randrange(keys),
            "c": chance.randrange(channels),
            "w": chance.randint(1, 5),
            "t": number,
        }
        for number in range(count)
    ]
    many = 1 if shape == "one" else 2
    beside = shape == "beside"
    parts = tuple(_part(chance, number, count, beside=beside) for number in range(many))
    common = _common(chance, mode, shape)
    ends = chance.choices(("well", "closed", "input"), (90, 6, 4))[0]
    case = Case(seed, mode, shape, lengths, parts, common, ends, rows)
    if _maybe(chance, 0.04):
        return _with_tail(chance, case)
    if _maybe(chance, 0.06):
        return _with_long_errors(chance, case)
    # Drawn last, so that all other cases stay as they are.
    return _with_waiters(chance, case) if _maybe(chance, 0.04) else case


def _with_long_errors(chance: random.Random, case: Case) -> Case:
    """Has many rows fail with messages of which few fit into an output batch."""
    bound = chance.choice((1013, 5003, "20 KB"))
    common = {**case.common}
    tuning = common.get("tuning", sa.Tuning())
    common["tuning"] = replace(tuning, max_bytes=bound, max_rows=8192)
    size = chance.choice((331, 2999, 5003))
    parts = [
        replace(
            part,
            script=replace(part.script, raises=0.3, refuses=0.5, size=size),
            options={**part.options, "on_error": "capture"},
        )
        for part in case.parts
    ]
    return replace(case, parts=tuple(parts), common=common)


def _with_waiters(chance: random.Random, case: Case) -> Case:
    """Has many rows wait for a slow call of one key, behind others that earn second calls."""
    earning, waiting = chance.choice((13, 29, 61)), chance.choice((7, 31))
    script = Script(0, 0, 0, 0, 0, 1, 10, chance.choice((113, 331)), 0, slow=earning)
    calls = chance.choice((7, 17, 61))
    options: dict[str, Any] = {
        "max_concurrency": calls,
        "on_error": chance.choice(("capture", "null")),
    }
    options["hedge"] = sa.Hedge(chance.choice(("1ms", "3ms")), chance.choice((0.3, 1.0)))
    options["cache"] = sa.Cache(max_rows=1009, key="k")
    batch = sa.Batch(max_rows=1, linger=0)
    kind: Any = chance.choice(("row", "row", "batch"))
    part = Part(0, kind, script, options, batch if kind == "batch" else None, idempotent=True)
    count = earning + waiting
    rows = [{"id": it, "k": min(it, earning), "c": 0, "w": 1, "t": it} for it in range(count)]
    common = {"tuning": sa.Tuning(warm_up=False), "capacity": 61 * 3}
    # One row of a key at a time has nobody wait for its call.
    mode = "unordered" if case.mode == "key_ordered" else case.mode
    changed = {"shape": "one", "mode": mode, "ends": "well", "lengths": (earning, waiting)}
    return replace(case, parts=(part,), common=common, rows=rows, **changed)


def _with_tail(chance: random.Random, case: Case) -> Case:
    """Has rows run out of time as their calls begin, and when all have left lets more rows come.

    Whatever became of the calls before, some of these are called: they come a few at a time, and
    nothing else is there.
    """
    calls, millis = chance.choice((1, 1, 2)), chance.choice((5, 7))
    script = Script(0, 0, 0, 0, 0.01, 1, 10, millis + 1, 0, waits=1)
    options: dict[str, Any] = {"max_concurrency": calls, "timeout": f"{millis}ms"}
    options |= {"on_error": chance.choice(("capture", "null"))}
    if _maybe(chance, 0.3):
        options["channel"] = "c"
    if _maybe(chance, 0.3):
        options["hedge"] = sa.Hedge("3ms", 1.0)
    batch = sa.Batch(max_rows=chance.choice((1, 1, 2)), linger=chance.choice((0, 0, "1ms")))
    kind: Any = chance.choice(("row", "batch", "batch", "batch"))
    part = Part(0, kind, script, options, batch if kind == "batch" else None, idempotent=True)
    rows = [{"id": it, "k": it % 5, "c": it % 2, "w": 1, "t": it} for it in range(97 + 61)]
    common = {"tuning": sa.Tuning(warm_up=False), "capacity": 3 * calls}
    return replace(
        case,
        shape="one",
        parts=(part,),
        common=common,
        ends="well",
        # Those of a channel age together, so each few have a time of their own.
        lengths=(97, *[5] * 12, 1),
        rows=rows,
        tail=61,
    )


def _maybe(chance: random.Random, share: float) -> bool:
    return chance.random() < share


def _part(chance: random.Random, number: int, rows: int, *, beside: bool) -> Part:
    # What a second call of a chain is called for has no place in an address.
    kinds = ("row", "batch", "http") if number == 0 or beside else ("row", "batch")
    kind = chance.choices(kinds, (50, 35, 15)[: len(kinds)])[0]
    options = _options(chance, kind, beside=beside)
    batch, idempotent = None, chance.choice((None, True, False))
    if options.get("hedge") is not None:
        idempotent = True
    if kind == "batch":
        batch = sa.Batch(
            max_rows=chance.choice((1, 2, 7, 50)),
            max_bytes=chance.choice((None, None, 1, 100)),
            linger=chance.choice((0, "1ms", "5ms")),
            split_on_error=_maybe(chance, 0.25),
        )
    bounded = "attempt_timeout" in options or options.get("timeout") is not None
    several = kind != "http" and not beside and _maybe(chance, 0.3)
    script = Script(
        raises=chance.choice((0, 0.05, 0.3)),
        refuses=chance.choice((0, 0, 0.1)),
        asks=chance.choice((0, 0, 0.1)),
        misses=0 if beside else chance.choice((0, 0.1, 0.4)),
        hangs=chance.choice((0, 0.05, 0.2)) if bounded else 0,
        most=3 if several else 1,
        size=chance.choice((0, 10, 300, 5000)),
        millis=chance.choice((0, 0, 2, 6)),
        blocks=0.03 if bounded and kind != "http" and _maybe(chance, 0.2) else 0,
    )
    _limits(chance, options, rows)
    return Part(number, kind, script, options, batch, idempotent)


def _options(chance: random.Random, kind: str, *, beside: bool) -> dict[str, Any]:
    options: dict[str, Any] = {"max_concurrency": chance.choice((1, 2, 3, 7, 17, 61))}
    options |= _times(chance, kind)
    options["on_error"] = chance.choice(("capture", "capture", "null", "drop", "fail"))
    if beside:
        options["on_error"] = chance.choice(("capture", "null"))
    if _maybe(chance, 0.55):
        options["retry"] = _retry(chance, kind)
    elif _maybe(chance, 0.5):
        options["retry"] = 0
    if _maybe(chance, 0.25):
        after, extra = chance.choice(("1ms", "3ms", "17ms", "p90")), chance.choice((0.05, 0.3, 1.0))
        options["hedge"] = sa.Hedge(after, extra)
    if _maybe(chance, 0.2):
        most = chance.choice((1, 3, 100))
        options["cache"] = sa.Cache(max_rows=most, key="k", cache_missing=_maybe(chance, 0.5))
    options |= _spread(chance, options["max_concurrency"])
    if _maybe(chance, 0.1):
        initial, failures = chance.choice(("1ms", "7ms")), chance.choice((1, 3, 20))
        when_open = chance.choice(("wait", "fail"))
        breaker = sa.CircuitBreaker(failures, initial, "13ms", when_open=when_open)
        options["circuit_breaker"] = breaker
    if _maybe(chance, 0.1):
        options["max_concurrency"] = sa.Adaptive(1, options["max_concurrency"])
    return options


def _spread(chance: random.Random, calls: int) -> dict[str, Any]:
    if not _maybe(chance, 0.3):
        return {}
    if _maybe(chance, 0.6):
        return {"channel": _channel(chance, calls)}
    return {"channel": "c"}


def _times(chance: random.Random, kind: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if _maybe(chance, 0.12):
        options["timeout"] = chance.choice(("5ms", "37ms", "113ms"))
        if kind != "http" and _maybe(chance, 0.2):
            options["on_timeout"] = LATE
    if _maybe(chance, 0.2):
        options["attempt_timeout"] = chance.choice(
            ("3ms", "5ms") if "timeout" in options else ("7ms", "31ms")
        )
    return options


def _retry(chance: random.Random, kind: str) -> Any:
    again = chance.choice((1, 2, 3))
    given: dict[str, Any] = {}
    if kind != "http" and _maybe(chance, 0.2):
        given["if_result"] = sa.retry.if_empty
    if kind != "http" and (given or _maybe(chance, 0.2)):
        given["if_exception"] = ConnectionError
    if _maybe(chance, 0.5):
        made = sa.retry.fixed_delay(again, chance.choice((0, "1ms", "7ms")), **given)
    else:
        made = sa.retry.exponential_backoff(again, "1ms", "7ms", 3, **given)
    budget = sa.retry.Budget(ratio=0.5, min_per_second=1009) if _maybe(chance, 0.3) else None
    made = replace(made, budget=budget)
    return made.if_miss() if _maybe(chance, 0.4) else made


def _channel(chance: random.Random, calls: int) -> sa.Channel:
    most = chance.randint(1, calls)
    return sa.Channel("c", count=chance.choice((None, 3, 97)), max_per_channel=most)


def _limits(chance: random.Random, options: dict[str, Any], rows: int) -> None:
    """Adds limits in time which the calls that there may be do not wait for long."""
    if not _maybe(chance, 0.35):
        return
    limits = []
    retry = options.get("retry", ONLY_REFUSED)
    attempts = rows * (retry.max_retries + 1 if retry else 1) * 2
    rates = (("3/s", 3), ("61/3s", 20), ("333/130ms", 2561), ("1009/s", 1009), ("131/min", 2))
    for rate, per_second in (*rates, ("10/100ms", 100), ("7/50ms", 140), ("2003/s", 2003)):
        if not _maybe(chance, 0.3):
            continue
        cost = chance.choice((1, 1, 2, "w"))
        burst, per_channel = chance.choice((None, None, 5, 11)), _maybe(chance, 0.3)
        per_channel = per_channel and "channel" in options
        limit = sa.RateLimit(rate, burst=burst, cost=cost, per_channel=per_channel)
        whole, dearest = limit.terms("f", ALONE).burst, 5 if cost == "w" else cost
        seconds = (attempts * dearest - whole) / per_second
        if dearest <= whole and seconds < 0.8:
            limits.append(limit)
    found = ["adaptive"] if _maybe(chance, 0.2) else []
    if limits or found:
        options["rate_limit"] = [*limits[:2], *found]


def _common(chance: random.Random, mode: str, shape: str) -> dict[str, Any]:
    common: dict[str, Any] = {}
    tuning: dict[str, Any] = {"warm_up": _maybe(chance, 0.3)}
    if _maybe(chance, 0.5):
        tuning["buffer_timeout"] = chance.choice((0, "3ms", None))
    if _maybe(chance, 0.4):
        tuning["max_rows"] = chance.choice((1, 2, 13))
    if _maybe(chance, 0.4):
        tuning["max_bytes"] = chance.choice((1, 211, 1013, "20 KB"))
    if _maybe(chance, 0.35):
        common["capacity"] = chance.choice((61, 67, 500, "2 KB", "1 MB"))
    if _maybe(chance, 0.1):
        tuning["target_latency"] = "20ms"
    common["tuning"] = sa.Tuning(**tuning)
    if mode == "unordered" and shape == "one" and _maybe(chance, 0.3):
        of = sa.WatermarkStrategy.for_bounded_out_of_orderness
        common["watermark"] = of("t", 0, every=chance.choice((None, 1, 7)))
    return common
