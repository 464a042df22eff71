# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""What calls would cost, before they are made."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
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
        input_tokens: The tokens of all prompts.
        output_tokens: The tokens of all answers, at least and at most.
        cost: What they cost, at least and at most; ``None`` without prices.
        minutes: How long it takes at the limits that the function has, at least and at most.
        asked: How many rows were asked for.
    """

    rows: int
    differing: int
    input_tokens: int
    output_tokens: tuple[int, int]
    cost: tuple[float, float] | None
    minutes: tuple[float, float] | None
    asked: int = 0

    def __str__(self) -> str:
        """Tells it in a line."""
        equal = self.rows - self.differing
        parts = [f"{self.rows:,} rows" + (f", {equal:,} of them equal to others" if equal else "")]
        parts.append(f"{self.input_tokens:,} input tokens")
        parts.append("{:,} to {:,} output tokens".format(*self.output_tokens))
        if self.cost is not None:
            parts.append("cost {:.4g} to {:.4g}".format(*self.cost))
        if self.minutes is not None:
            parts.append("{:.3g} to {:.3g} minutes at the limits".format(*self.minutes))
        return "; ".join(parts)


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
    token, or as many as `tokenizer` makes of a sample.

    Args:
        df: A DataFrame of Spark, a table, a list of dicts, or anything else that the wait functions
            of `sparkawait.arrow` take as one part of their input.
        call: What `chat` or `embed` returned.
        price: As for `chat`, if the function has none.
        sample: Rows that `tokenizer` counts.
        ask: Rows that the model is asked for, to learn how long its answers are.
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
    per_byte = 0.25
    if tokenizer is not None and some.num_rows:
        texts = [" ".join(_texts(row)) for row in some.slice(0, sample).to_pylist()]
        counted = sum(len(it.encode()) for it in texts)
        per_byte = sum(int(tokenizer(it)) for it in texts) / max(counted, 1)
    fixed = account.fixed - sum(len(it.encode()) + 2 for it in columns)
    tokens = per_byte * bytes_ * calls / max(rows, 1) + (fixed * 0.25 + 8) * calls
    least, most = (0.0, 0.0) if function.what == "embed" else (8.0, account.max_tokens or 1_000.0)
    usage = _asked(some.slice(0, ask), function) if ask and rows and function.what == "chat" else []
    if usage:
        said = [it["output"] or 0 for it in usage]
        mean = sum(said) / len(said)
        spread = math.sqrt(sum((it - mean) ** 2 for it in said) / max(len(said) - 1, 1))
        # Two standard errors, and a little more, as a small sample has seen little.
        off = 2.1 * spread / math.sqrt(len(said))
        least, most = max(mean - off, 0.0), mean + off
        if tokenizer is None:
            tokens = sum(it["input"] or 0 for it in usage) / len(usage) * calls
    prices = account.prices if price is None else replace(account, price=price).prices
    into, out = (prices.get(TOKENS[it], 0.0) for it in ("input", "output"))
    cost = (tokens * into + least * calls * out, tokens * into + most * calls * out)
    times = [account.minutes(calls, tokens, it * calls) for it in (least, most)]
    return Estimate(
        rows,
        differing,
        round(tokens),
        (round(least * calls), round(most * calls)),
        cost if prices else None,
        None if times[0] is None or times[1] is None else (times[0], times[1]),
        len(usage),
    )


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


def _asked(some: pa.Table, function: ModelFunction) -> list[dict[str, Any]]:
    """Asks for some rows here, and returns their tokens."""
    answers = cast("Answers", function.answers)
    shown_ = replace(answers, hidden=answers.hidden - {*TOKENS.values()}, again=None)
    found = unordered_wait(some.to_batches(), replace(function, answers=shown_), on_error="null")
    rows = found.to_table().select(list(TOKENS.values())).to_pylist()
    told = [{name: row[at] for name, at in TOKENS.items()} for row in rows]
    return [it for it in told if it["input"] is not None]
