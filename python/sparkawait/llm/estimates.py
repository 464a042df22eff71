# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""What calls would cost, before they are made."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pyarrow as pa

from sparkawait._checks import integer, refuse
from sparkawait._schema.answers import Answers
from sparkawait._worker.feeder import KNOWN, opened
from sparkawait.arrow import unordered_wait
from sparkawait.llm.account import Account
from sparkawait.llm.calls import ModelFunction
from sparkawait.llm.dialects import TOKENS

__all__ = ["Estimate", "estimate"]


@dataclass(frozen=True)
class Estimate:
    """What the calls for some rows would cost. Made by `estimate`.

    Attributes:
        rows: The rows.
        differing: Those that differ in the columns that are read.
        input_tokens: The tokens of all prompts, most likely.
        output_tokens: The tokens of all answers, at least and at most. An upper end that nobody
            knows is ``None``, here and below.
        cost: What they cost, at least and at most; ``None`` without prices.
        minutes: How long it takes at the limits that the function has, at least and at most.
        asked: How many rows were asked for, and answered.
    """

    rows: int
    differing: int
    input_tokens: int
    output_tokens: tuple[int, int | None]
    cost: tuple[float, float | None] | None
    minutes: tuple[float, float | None] | None
    asked: int = 0

    def __str__(self) -> str:
        """Tells it in a line."""
        equal = self.rows - self.differing
        parts = [f"{self.rows:,} rows" + (f", {equal:,} of them equal to others" if equal else "")]
        parts.append(f"about {self.input_tokens:,} input tokens")
        if self.output_tokens != (0, 0):
            parts.append(f"{_range(self.output_tokens, ',')} output tokens")
        if self.cost is not None:
            parts.append(f"cost {_range(self.cost, '.4g')}")
        if self.minutes is not None:
            parts.append(f"{_range(self.minutes, '.3g')} minutes at the limits")
        if self.output_tokens[1] is None:
            parts.append("`max_tokens=` or `ask=` would tell an upper end")
        return "; ".join(parts)


def _range(ends: tuple[float, float | None], form: str) -> str:
    least, most = ends
    return f"at least {least:{form}}" if most is None else f"{least:{form}} to {most:{form}}"


def estimate(
    df: Any,
    call: Any,
    *,
    price: Mapping[str, float] | None = None,
    sample: int = 100,
    ask: int = 0,
    tokenizer: Any = None,
    seed: int = 0,
) -> Estimate:
    """Returns what it would cost to call a function of `chat` or `embed` for all rows.

    Nothing is paid for unless you `ask`. Bytes are counted over all rows, and four of them are a
    token, or as many as `tokenizer` makes of a sample. Ranges hold what a text may have: a third of
    that to three times as much, with a `tokenizer` a quarter more or less, and with `ask` what the
    answers show at 95 %. An answer has a token to `max_tokens`.

    Args:
        df: A DataFrame of Spark, a table, a list of dicts, or anything else that the wait functions
            of `sparkawait.arrow` take as one part of their input.
        call: What `chat` or `embed` returned.
        price: As for `chat`, if the function has none.
        sample: Rows that `tokenizer` counts.
        ask: Rows that the model is asked for, to learn how long its answers are; 20 tell much.
        tokenizer: Counts the tokens of a text.
        seed: Draws the rows.

    Raises:
        ConfigurationError: If `call` is another function, or an argument is wrong.
    """
    function = getattr(call, "function", call)
    if not isinstance(function, ModelFunction):
        refuse("`estimate` needs what `sa.llm.chat` or `sa.llm.embed` returned")
    integer(sample, "sample", 1)
    integer(ask, "ask", 0)
    account = cast("Account", function.account)
    columns = list(function.input_columns)
    rows, differing, bytes_, some = _measured(df, columns, max(sample, ask), seed)
    calls = differing if function.once else rows
    per_byte, factor = 0.25, 3.0
    if tokenizer is not None and some.num_rows:
        texts = [" ".join(_texts(row)) for row in some.slice(0, sample).to_pylist()]
        counted = sum(len(it.encode()) for it in texts)
        per_byte, factor = sum(int(tokenizer(it)) for it in texts) / max(counted, 1), 1.25
    # What stands around the columns, and what a service adds.
    fixed = account.fixed - sum(len(it.encode()) + 2 for it in columns) + 32
    size = bytes_ / max(rows, 1)
    mean = per_byte * size + fixed * 0.25
    inputs = (mean / factor, mean * factor)
    outputs = (0.0, 0.0) if function.what == "embed" else (1.0, account.max_tokens or math.inf)
    asks = ask and rows and function.what == "chat"
    usage = _asked(some.slice(0, ask), columns, function) if asks else []
    if len(usage) > 1:
        # As many tokens a byte as the prompts that were asked for have.
        sizes = [it["bytes"] + fixed for it in usage]
        ratio = sum(it["input"] for it in usage) / sum(sizes)
        mean = ratio * (size + fixed)
        off = _off([it["input"] - ratio * at for it, at in zip(usage, sizes, strict=True)], mean)
        inputs = (max(mean - off, 0.0), mean + off)
    said = [it["output"] for it in usage if it["output"] is not None]
    if len(said) > 1:
        known = statistics.fmean(said)
        off = _off(said, known)
        outputs = (max(known - off, 0.0), min(known + off, outputs[1]))
    prices = account.prices if price is None else replace(account, price=price).prices
    into, out = (prices.get(TOKENS[it], 0.0) for it in ("input", "output"))
    ends = [(calls * a, calls * b if calls else 0.0) for a, b in zip(inputs, outputs, strict=True)]
    costs = [a * into + (b * out if out else 0.0) for a, b in ends] if prices else []
    times = [it for it in (account.minutes(calls, *end) for end in ends) if it is not None]
    (_, least), (_, most) = ends
    return Estimate(
        rows,
        differing,
        round(calls * mean),
        (round(least), None if math.isinf(most) else round(most)),
        _ends(costs),
        _ends(times),
        len(usage),
    )


def _ends(found: list[float]) -> tuple[float, float | None] | None:
    return (found[0], None if math.isinf(found[1]) else found[1]) if found else None


def _off(values: Sequence[float], mean: float) -> float:
    """Returns how far the mean of all may be from that of some values.

    Student's quantile of 95 % times the standard error, and a little more, as few have seen little.
    """
    more = len(values) - 1
    quantile = 2 + 2.6 / more + 8 / more**3
    return quantile * statistics.stdev(values) / math.sqrt(more + 1) + mean / (more + 1)


def _texts(row: Mapping[str, Any]) -> list[str]:
    return ["" if it is None else str(it) for it in row.values()]


def _measured(df: Any, columns: list[str], some: int, seed: int) -> tuple[int, int, int, pa.Table]:
    """Returns the rows, those that differ, the bytes of the columns, and some of the rows."""
    if hasattr(df, "sparkSession"):
        quoted = ["`" + it.replace("`", "``") + "`" for it in columns]
        own = df.selectExpr(*quoted) if quoted else df.selectExpr("1 as one")
        length = " + ".join(f"coalesce(octet_length(cast({it} as string)), 0)" for it in quoted)
        row = own.selectExpr("count(*) as n", f"coalesce(sum({length or '0'}), 0) as b").first()
        differ = own.distinct().count()
        share = min(1.0, 1.5 * some / max(row.n, 1) + 50 / max(row.n, 1))
        drawn = own.sample(fraction=share, seed=seed).limit(some)
        found = [it.asDict() for it in drawn.collect()]
        return row.n, differ, int(row.b), pa.Table.from_pylist(found)
    found = opened(df)
    if found is None:
        refuse(f"`df` must be {KNOWN}, got `{type(df).__name__}`")
    batches, schema = found
    table = pa.Table.from_batches(batches, schema).select(columns)
    texts = [_texts(row) for row in table.to_pylist()]
    bytes_ = sum(len(it.encode()) for row in texts for it in row)
    order = random.Random(seed).sample(range(len(texts)), min(some, len(texts)))  # noqa: S311 - a draw
    return len(texts), len({*map(tuple, texts)}), bytes_, table.take(pa.array(order, pa.int64()))


def _asked(some: pa.Table, columns: list[str], function: ModelFunction) -> list[dict[str, Any]]:
    """Asks for some rows here, and returns their bytes and tokens."""
    answers = cast("Answers", function.answers)
    shown_ = replace(answers, hidden=answers.hidden - {*TOKENS.values()}, again=None)
    found = unordered_wait(some.to_batches(), replace(function, answers=shown_), on_error="null")
    told: list[dict[str, Any]] = []
    for row in found.to_table().to_pylist():
        size = sum(len(it.encode()) for it in _texts({name: row[name] for name in columns}))
        told.append({"bytes": size, **{name: row[at] for name, at in TOKENS.items()}})
    return [it for it in told if it["input"] is not None]
