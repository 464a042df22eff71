# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownArgumentType=false
"""One micro-batch of one shard of a stream: from the state before it to the state behind it.

```text
  state N-1 --> completed ------------------------------------> output of N   (next_batch)
            +-> task: taken here, or made of what is saved
  rows of N ---> task --> completed by now --> state N, or output of N        (at_once)
                      +-> in flight ---------> state N
```
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc

from sparkawait._core import Carried, PartEnd, RemoteTask, encode_carried, find_posted
from sparkawait._plan.plan import Chain, limits_of
from sparkawait._worker import address_space
from sparkawait._worker.feeder import Offsets
from sparkawait._worker.forms import (
    Columns,
    check_form,
    completed_in,
    moved,
    read_schema,
    schema_of,
    zone_of,
)
from sparkawait._worker.holder import HeldTask, holder
from sparkawait._worker.metrics import TaskMetrics
from sparkawait._worker.too_many import TooMany
from sparkawait.exceptions import AsyncFunctionError, ErrorKind, SnapshotError
from sparkawait.outcomes import CarryOver

# -- rows of a stream on their way to the shards: few large values instead of many rows
#
# What is between two stages of a query costs by the row, and a value that holds a thousand rows is
# one. Pure functions, for any thread.


LEAST_ROWS = 1024
"""A batch is cut into more than one bundle if each has so many rows."""

BUNDLES = pa.schema(
    [
        pa.field("shard", pa.int32(), nullable=False),
        pa.field("part", pa.int32(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)
"""The key of a shard, where a bundle comes from (partition, and place in it), how many rows it is
to have, and its rows. The numbers of a batch's bundles are together those of the batch."""


class Bundle(NamedTuple):
    """What a step gets of a bundle.

    Attributes:
        rows: How many rows came for it.
        payload: Its rows, as Arrow IPC.
    """

    rows: int
    payload: bytes


def pack(
    batches: Iterable[pa.RecordBatch],
    shards: Sequence[int],
    *,
    partition: int,
    turn: int,
    is_keyed: bool,
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of `batches` as bundles, see `BUNDLES`.

    The same rows of the same partition in the same micro-batch give the same bundles.

    Args:
        batches: The rows; with `is_keyed` their last column is the hash of their key.
        shards: The keys of the shards.
        partition: Number of the partition.
        turn: Number of the micro-batch, so that each begins with another shard.
        is_keyed: Whether all rows of a key go to one shard.
    """
    seq = 0
    offsets: Offsets | None = None
    for batch in batches:
        if offsets is None:
            offsets = Offsets(batch.schema)
        repaired = offsets.repaired(batch)
        if is_keyed:
            pieces = _sorted(repaired, len(shards))
        else:
            pieces = _dealt(repaired, len(shards), partition + turn + seq)
        # The first one tells of rows that got lost on the way here, too.
        astray = batch.num_rows - sum(it.num_rows for _, it in pieces)
        bundles = [
            (shards[shard], partition, seq + n, it.num_rows + (0 if n else astray), _ipc(it))
            for n, (shard, it) in enumerate(pieces)
        ]
        seq += len(bundles)
        if bundles:
            columns = [pa.array(column) for column in zip(*bundles, strict=True)]
            arrays = [it.cast(field.type) for it, field in zip(columns, BUNDLES, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=BUNDLES)


def count_rows(payload: bytes) -> int:
    """Returns how many rows a bundle has."""
    return sum(batch.num_rows for batch in unpack([payload]))


def unpack(payloads: Iterable[bytes | pa.Buffer]) -> Iterator[pa.RecordBatch]:
    """Yields the rows of bundles."""
    for payload in payloads:
        with pa.ipc.open_stream(pa.py_buffer(payload)) as stream:
            yield from stream


def _dealt(batch: pa.RecordBatch, shards: int, first: int) -> list[tuple[int, pa.RecordBatch]]:
    """Cuts `batch` into pieces of equal length, for one shard after the other."""
    rows = batch.num_rows
    pieces = min(shards, -(-rows // LEAST_ROWS))
    bounds = [rows * n // pieces for n in range(pieces + 1)] if pieces else [0]
    return [
        ((first + n) % shards, batch.slice(bounds[n], bounds[n + 1] - bounds[n]))
        for n in range(pieces)
    ]


def _sorted(batch: pa.RecordBatch, shards: int) -> list[tuple[int, pa.RecordBatch]]:
    """Puts the rows of each shard together, in their order."""
    *columns, hashes = batch.columns
    index = _modulo(hashes, shards)
    names = batch.schema.names[:-1]
    rows = pa.RecordBatch.from_arrays(
        columns, schema=pa.schema([batch.schema.field(n) for n in range(len(names))])
    )
    found = sorted(cast("list[int]", pc.unique(index).to_pylist()))
    if len(found) == 1:
        return [(found[0], rows)]
    return [(shard, rows.filter(pc.equal(index, pa.scalar(shard, index.type)))) for shard in found]


def _modulo(numbers: Any, divisor: int) -> Any:
    """Returns what is left of each number, never less than zero, as Spark's ``pmod``."""
    by = pa.scalar(divisor, numbers.type)
    # Arrow divides towards zero.
    rest = pc.subtract(numbers, pc.multiply(pc.divide(numbers, by), by))
    return pc.if_else(pc.less(rest, pa.scalar(0, numbers.type)), pc.add(rest, by), rest)


def _ipc(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


# -- how long a step may wait for its calls without holding up its query
#
# ```text
#   batch N      |-- work --|-- waits --|                 |-- N + 1
#                ^ trigger              |<--- idle ------>|
# ```
#
# Between two micro-batches a query is idle until its trigger comes. A step may wait for half of
# what
# the last step waited and was idle for together, less what Spark needs. A query that is never idle
# waits no longer than it has to. To be used from any thread of a worker.


LEAST = 0.05
"""Seconds that a step waits in any case: quick calls need not be carried over."""
_MOST = 30.0
"""Workers that are idle for a minute are ended, and tasks are killed that do not seem to go on."""
_SPARKS = 1.0
"""Seconds that Spark may take between two steps of a query that is not idle."""
_MOST_RUNS = 64


@dataclass
class _Run:
    """The last step of a run of a query in this process.

    Attributes:
        batch: The number of its micro-batch.
        begun: When it began, in seconds.
        ended: When it ended.
        allowed: For how long it might wait.
    """

    batch: int
    begun: float
    ended: float
    allowed: float


class Pace:
    """When steps of this process began and ended, by the runs of queries that they are of."""

    def __init__(self) -> None:
        """Knows of none yet."""
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, _Run] = OrderedDict()

    def begin(self, run: str, batch: int, now: float) -> float:
        """Notes that a step begins; returns for how many seconds it may wait for its calls.

        Args:
            run: The run of the query.
            batch: The number of its micro-batch.
            now: The time in seconds.
        """
        with self._lock:
            last = self._runs.get(run)
            if last is not None and batch <= last.batch:
                # Another shard of the micro-batch, or a step that is carried out again.
                return last.allowed
            allowed = LEAST if last is None else _allowed(last, batch, now)
            self._runs[run] = _Run(batch, now, now, allowed)
            self._runs.move_to_end(run)
            while len(self._runs) > _MOST_RUNS:
                self._runs.popitem(last=False)
            return allowed

    def end(self, run: str, batch: int, now: float) -> None:
        """Notes that a step has ended."""
        with self._lock:
            last = self._runs.get(run)
            if last is not None and last.batch == batch:
                last.ended = now


def _allowed(last: _Run, batch: int, now: float) -> float:
    waited = min(last.ended - last.begun, last.allowed)
    # Micro-batches in between had no rows here.
    spare = (now - last.ended + waited) / (batch - last.batch)
    return min(max((spare - _SPARKS) / 2, LEAST), _MOST)


PACE = Pace()
"""That of this process."""


# -- the step of a shard


_logger = logging.getLogger("sparkawait")

COUNTS = (
    "admitted",
    "emitted",
    "dropped",
    "failed",
    "attempts",
    "retries",
    "timeouts",
    "cancelled",
)
"""What `PartEnd.counts` has of each operator first; the permits of its limits follow."""


@dataclass(frozen=True)
class StepEnd:
    """What a step came to.

    Attributes:
        outputs: The rows that leave, as Arrow IPC.
        state: What the stream is to keep.
        waits: Whether there is something in it that a later micro-batch emits.
        carried: Rows in flight.
        held: Rows that are completed and have not left.
        adopted: Rows that were in flight before, and whose calls went on.
        redone: Calls that were in flight before, and are made again.
        redone_total: The same, in all micro-batches that the shard has had.
        oldest: How long the oldest row was in tasks, in seconds.
        told: How many rows the tasks say that leave.
        accounts: Whether each row that came, or was there before, has left the calls or is there.
        counts: What each operator did.
    """

    outputs: list[bytes]
    state: bytes
    waits: bool
    carried: int = 0
    held: int = 0
    adopted: int = 0
    redone: int = 0
    redone_total: int = 0
    oldest: float = 0.0
    told: int = 0
    accounts: bool = True
    counts: Sequence[TaskMetrics] = ()


@dataclass(frozen=True)
class Shard:
    """The shard and the step that a micro-batch belongs to.

    Attributes:
        key: Its key among the shards of the step; a partition may have several shards.
        count: Over how many of them the rows are spread by their keys; 0: any row may go to any.
        by: The columns of the keys, for people.
        step: Tells the steps of a query apart: the same in all of its runs.
        partition: Number of the partition.
        query: The query, in all its runs.
        calls: What is called, and how: the same for steps that call alike.
        run: The run of the query.
        batch: Number of the micro-batch; ``None`` if it has none, so that nobody finds a task that
            is made in it before the state tells of it.
    """

    key: int
    count: int
    by: str
    step: str
    partition: int
    query: str
    calls: str
    run: str
    batch: int | None

    @property
    def owner(self) -> str:
        """Whose a task is, in all micro-batches of a query, over its restarts.

        Its steps may have the same one. Which task is theirs is in their state.
        """
        return f"{self.query} {self.calls} {self.key}"

    @property
    def notice(self) -> str | None:
        """What a task is found by that no state tells of."""
        return None if self.batch is None else f"{self.owner} {self.step} {self.batch}"


@address_space.fitted()
def run_step(
    chain: Chain,
    carry_over: CarryOver,
    before: bytes | None,
    bundles: Iterator[Bundle],
    *,
    columns: Columns,
    shard: Shard,
    is_broken_off: Callable[[], bool] = lambda: False,
) -> StepEnd | None:
    """Carries out one step, which waits for its calls as long as its query can spare.

    Args:
        chain: The calls.
        carry_over: How rows outlive a step.
        before: What the stream has kept; ``None`` for a shard that is new.
        bundles: The rows that came.
        columns: The columns of the rows, as `forms_of` gives them.
        shard: Whose rows they are.
        is_broken_off: Tells whether nobody waits for the step any more. Its calls go on then, and
            one that is carried out in its place takes them up.

    Returns:
        What it came to; ``None`` if there is nothing to keep.

    Raises:
        AsyncIOError: If a row fails the task, or the state cannot be read.
    """
    batch = -1 if shard.batch is None else shard.batch
    allowed = PACE.begin(shard.run, batch, time.monotonic())
    patience = allowed if carry_over.patience is None else carry_over.patience
    step = _Step(chain, shard, carry_over, patience, is_broken_off)
    try:
        return _run(step, before, bundles, columns)
    finally:
        PACE.end(shard.run, batch, time.monotonic())


@dataclass(frozen=True)
class _Step:
    """A step that is carried out.

    Attributes:
        chain: The calls.
        shard: Whose rows it has.
        carry_over: How they outlive it.
        patience: Seconds that it waits for its calls.
        is_broken_off: Tells whether nobody waits for it.
    """

    chain: Chain
    shard: Shard
    carry_over: CarryOver
    patience: float
    is_broken_off: Callable[[], bool]

    def judge(self, end: PartEnd) -> None:
        """Looks at the rows that have ended.

        Raises:
            AsyncFunctionError: If too many have failed.
        """
        TooMany(self.chain, "this micro-batch").judge_all(
            unpack(end.outputs), _named(self.chain, end)
        )


def _run(
    step: _Step, before: bytes | None, bundles: Iterator[Bundle], columns: Columns
) -> StepEnd | None:
    chain, shard = step.chain, step.shard
    carried = None if before is None else Carried.decode(before)
    completed: list[bytes] = []
    if carried is not None:
        _check_shard(shard, carried)
        check_form(chain, columns, carried)
        completed = completed_in(chain, carried)
    first = next(bundles, None)
    came_as = b"" if first is None else schema_of(first.payload)
    has_rows = carried is not None and sum(carried.rows) > 0
    rows = _Rows(bundles if first is None else itertools.chain([first], bundles))
    came = _Came(rows, carried, completed)
    zone = None if carried is None or first is None else _new_zone(came_as, carried)
    # A task shows its functions one time zone: one with another is ended, as if it was not theirs.
    owner = shard.owner if zone is None else ""
    adopted = None if carried is None else _adopted(carried, step, rows, owner)
    if carried is not None and adopted is not None:
        return _end(step, came, adopted, carried, adopted=carried.rows[0])
    if first is None and not has_rows:
        return None if carried is None else _emptied(shard, carried, completed)
    if carried is not None and zone is not None and has_rows:
        carried = moved(zone, carried)
    # Nothing binds a shard without rows to the columns that the query had before.
    is_bound = carried is not None and (has_rows or first is None)
    schema = carried.schema if carried is not None and is_bound else came_as
    redone = 0 if carried is None else carried.called
    name = shard.notice
    posted = None if name is None else _posted(name, schema)
    if posted is not None:
        # An earlier attempt of this step has made a task, which no state tells of.
        adopted = _adopted(posted, step, rows, shard.owner)
        if adopted is not None:
            return _end(step, came, adopted, posted, redone=redone)
    input_schema = read_schema(schema)
    gap = 0.0 if carried is None else max(0.0, time.time() - carried.written_at / 1e6)
    task = HeldTask(
        chain, input_schema, carried, partition=shard.partition, owner=shard.owner, gap=gap
    )
    holder().keep(task)
    task.begin(shard.owner, 0)
    if name is not None:
        holder().post(task, name)
    part_end = _worked_off(task, rows, step)
    address, token = holder().address
    place = _Place(task.id, address, token, schema, part=0)
    return _end(step, came, part_end, place, redone=redone)


def _new_zone(came_as: bytes, carried: Carried) -> str | None:
    """Returns the time zone of the rows that come, if those carried over have another one."""
    before, now = zone_of(read_schema(carried.schema)), zone_of(read_schema(came_as))
    return None if before == now else now


def _check_shard(shard: Shard, carried: Carried) -> None:
    """Checks that what is carried over is of this shard, with the rows of the same keys."""
    if carried.shard != shard.key:
        msg = f"the state of shard {carried.shard} has come to shard {shard.key} of the query"
        raise SnapshotError(msg, ErrorKind.SNAPSHOT_DAMAGED)
    is_waiting = sum(carried.rows) > 0 or carried.completed_rows > 0
    if not is_waiting or shard.count == 0:
        return
    if carried.shards and carried.by != shard.by:
        msg = (
            f"rows in flight keep their order by {carried.by}, and the query keeps that by"
            f" {shard.by} now. Start the query as it was, end it with sa.drain(query), then start"
            " the new one"
        )
        raise SnapshotError(msg, ErrorKind.SNAPSHOT_SCHEMA_MISMATCH)
    if shard.count == carried.shards:
        return
    before = f"spread over {carried.shards} shards" if carried.shards else "in no order"
    way_out = "Start the query as it was"
    if carried.shards:
        setting = f"spark.sql.shuffle.partitions to {carried.shards}"
        way_out = f"Set {setting} before the call"
    msg = (
        f"rows in flight are {before}, and the query has {shard.count} shards now, so rows of a"
        f" key would lose their order. {way_out}, and end it with sa.drain(query) to change it"
    )
    raise SnapshotError(msg, ErrorKind.SNAPSHOT_SCHEMA_MISMATCH)


class _Rows:
    """The rows of a step, from the first one on for each task that gets them."""

    def __init__(self, bundles: Iterator[Bundle]) -> None:
        self._bundles = bundles
        self._seen: list[Bundle] = []

    def __iter__(self) -> Iterator[bytes]:
        yield from (bundle.payload for bundle in self._seen)
        for bundle in self._bundles:
            self._seen.append(bundle)
            yield bundle.payload

    @property
    def count(self) -> int:
        """How many there are, as those say who have sent them, once a task has got all."""
        return sum(bundle.rows for bundle in self._seen)


@dataclass(frozen=True)
class _Came:
    """What comes to a step.

    Attributes:
        rows: Those of the micro-batch.
        carried: What the stream has kept.
        completed: What has not left of that, as it is to leave.
    """

    rows: _Rows
    carried: Carried | None
    completed: list[bytes]

    @property
    def completed_rows(self) -> int:
        """How many rows have not left, as the task has said."""
        return 0 if self.carried is None else self.carried.completed_rows

    def accounts_for(self, end: PartEnd) -> bool:
        """Tells whether each row that came, or was held, has left the first call, or is held.

        What came says `Pack`, and what was held says the state. What has left and what is held
        says the task, which checks for itself that this is what it got.
        """
        before = 0 if self.carried is None else self.carried.input
        left = end.counts[0][COUNTS.index("emitted")]
        return self.rows.count + before == left + end.input


@dataclass(frozen=True)
class _Place:
    """Where a task is that was made in this step, or an earlier attempt of it.

    A part of what `Carried` has of others.
    """

    task: bytes
    address: str
    token: bytes
    schema: bytes
    part: int


def _posted(step: str, schema: bytes) -> _Place | None:
    found = find_posted(step)
    if found is None:
        return None
    address, token, task = found
    return _Place(task, address, token, schema, part=0)


def _adopted(carried: Carried | _Place, step: _Step, rows: _Rows, owner: str) -> PartEnd | None:
    """Returns what the rows come to in the task that is still there, in whichever process.

    It is ended if it is not that of `owner`.
    """
    held = holder().begin(carried.task, owner, carried.part)
    address, token = holder().address
    is_here = not carried.address or (carried.address, carried.token) == (address, token)
    if held is None and is_here:
        return None
    try:
        if held is not None:
            return _worked_off(held, rows, step)
        remote = RemoteTask.begin(carried.address, carried.token, carried.task, owner, carried.part)
        if remote is None:
            return None
        for bundle in rows:
            remote.put(bundle)
        end = remote.end_part(step.patience)
        try:
            step.judge(end)
        except AsyncFunctionError:
            # To ask for it as another owner ends it: the query calls again when it goes on.
            RemoteTask.begin(carried.address, carried.token, carried.task, "", carried.part)
            raise
    except ConnectionError as error:
        _logger.info("rows are called again: %s", error)
        return None
    return end


def _worked_off(task: HeldTask, rows: _Rows, step: _Step) -> PartEnd:
    try:
        for bundle in rows:
            if not task.put(bundle):
                break
        end = task.end_part(step.patience)
        step.judge(end)
    except BaseException:
        if step.is_broken_off():
            task.leave()
        else:
            holder().drop(task)
        raise
    return end


def _end(
    step: _Step,
    came: _Came,
    end: PartEnd,
    place: Carried | _Place,
    *,
    adopted: int = 0,
    redone: int = 0,
) -> StepEnd:
    outputs, told = came.completed, came.completed_rows
    kept, kept_rows = end.outputs, end.output_rows
    if step.carry_over.emit == "at_once":
        outputs, told, kept, kept_rows = [*outputs, *kept], told + kept_rows, [], 0
    redone_total = redone + (0 if came.carried is None else came.carried.redone)
    state = _state(
        step.shard,
        place,
        part=place.part + 1,
        redone=redone_total,
        address=place.address,
        completed=kept,
        completed_rows=kept_rows,
        operators=end.operators,
    )
    return StepEnd(
        outputs=outputs,
        state=state,
        # A total is of all shards, so one that has a part of it comes in each micro-batch.
        waits=bool(end.carried or end.held or kept or redone_total),
        carried=end.carried,
        held=end.held + kept_rows,
        adopted=adopted,
        redone=redone,
        redone_total=redone_total,
        oldest=end.oldest,
        told=told,
        accounts=came.accounts_for(end),
        counts=_named(step.chain, end),
    )


def _named(chain: Chain, end: PartEnd) -> list[TaskMetrics]:
    found: list[TaskMetrics] = []
    for plan, numbers in zip(chain.plans, end.counts, strict=True):
        counts: TaskMetrics = dict(zip(COUNTS, numbers, strict=False))
        # A task counts all rows that left.
        counts["emitted"] -= counts["dropped"] + counts["failed"]
        limits = limits_of(plan.options)
        if limits:
            counts["rate_limits"] = {
                limit.label: {
                    "permits": permits if limit.scale == 1 else permits / limit.scale,
                    "parts": limit.terms(plan.function_name, plan.sharing).parts,
                }
                for limit, permits in zip(limits, numbers[len(COUNTS) :], strict=False)
            }
        found.append(counts)
    return found


def _emptied(shard: Shard, carried: Carried, completed: list[bytes]) -> StepEnd:
    """Emits what is left of a task that is gone and had nothing in flight."""
    nothing: dict[str, Any] = {"completed": [], "completed_rows": 0, "operators": []}
    redone = carried.redone
    state = _state(shard, carried, part=carried.part, redone=redone, address="", **nothing)
    return StepEnd(
        completed,
        state,
        waits=redone > 0,
        redone_total=redone,
        told=carried.completed_rows,
    )


def _state(shard: Shard, place: Carried | _Place, **told: Any) -> bytes:
    """Returns what Spark keeps of a shard whose task is, or was, at a place."""
    told |= {"written_at": time.time_ns() // 1000, "by": shard.by}
    told |= {"shard": shard.key, "shards": shard.count}
    told |= {"task": place.task, "token": place.token, "schema": place.schema}
    return encode_carried(**told)
