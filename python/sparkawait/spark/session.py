# SPDX-License-Identifier: Apache-2.0
"""What a session says: the times it means, how it tells names apart, and where its tasks run.

Each thing is asked once, when it is needed: over Spark Connect every question goes to the server.
`Session` is used on the driver, from any thread; `zone_of_task` in the executor, where Spark tells
each task what the session said that runs the query.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import shutil
import struct
import subprocess
import sys
import warnings
from datetime import date, timedelta
from functools import cached_property
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from pyspark import TaskContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession
from pyspark.sql.pandas.utils import require_minimum_pandas_version, require_minimum_pyarrow_version

from sparkawait._checks import warn_once
from sparkawait._values.cells import DAY, END, EPOCH, SAMPLES, Change, fixed_zone, tzif
from sparkawait.exceptions import ConfigurationError, ErrorKind, how_to_install

__all__ = ["Session", "Times", "is_connect", "rules_of", "zone_of_task"]

# -- the rules of a time zone as Spark has them, as what Rust and Python read alike: a TZif file
#
# Java, the system and the wheel have databases of different years, in which a zone may differ by an
# hour. Those who write a text of an instant, or read one, have to have the rules of the session
# that
# runs the query. So its driver asks Spark for those of the one zone that the session has, and they
# travel with the plan.
#
# Used on the driver, from any thread.


_logger = logging.getLogger("sparkawait")


@functools.lru_cache(maxsize=64)
def _rules_here(zone: str) -> bytes | None:
    """Returns the rules of the JVM of this driver, which has one."""
    spark: Any = SparkSession.active()
    try:
        return rules_of_jvm(spark.sparkContext._jvm, zone)  # noqa: SLF001
    except Exception:  # noqa: BLE001 - some platforms let Python ask for few classes
        return _rules_there(spark, zone)


_THERE: WeakKeyDictionary[Any, dict[str, bytes | None]] = WeakKeyDictionary()


def rules_of(spark: Any, zone: str) -> bytes | None:
    """Returns the rules of a zone where a session runs, as a TZif file.

    They are asked for once in a JVM, or in a session of Spark Connect. ``None`` where the name says
    all, as ``+02:00`` does, there is no session, or nobody can say.
    """
    if spark is None or fixed_zone(zone) is not None:
        return None
    if not is_connect(spark):
        return _rules_here(zone)
    known = _THERE.setdefault(spark, {})
    if zone not in known:
        known[zone] = _rules_there(spark, zone)
    return known[zone]


def _rules_there(spark: Any, zone: str) -> bytes | None:
    try:
        return rules_of_server(spark, zone)
    except Exception:
        _logger.debug("Spark does not say the rules of %s", zone, exc_info=True)
        return None


def rules_of_jvm(jvm: Any, zone: str) -> bytes:
    """Returns the rules that the JVM of the driver has for `zone`.

    Java writes them in the form that its documentation calls the serialized form of
    ``java.time.zone``. To ask for each change would take a thousand round
    trips.
    """
    rules = jvm.java.time.ZoneId.of(zone, jvm.java.time.ZoneId.SHORT_IDS).getRules()
    out = jvm.java.io.ByteArrayOutputStream()
    stream = jvm.java.io.ObjectOutputStream(out)
    stream.writeObject(rules)
    stream.flush()
    return tzif(*_of_java(bytes(out.toByteArray())))


def rules_of_server(spark: Any, zone: str) -> bytes:
    """Returns the rules that the server of Spark Connect has for `zone`, by one query.

    It looks at the clocks now and then. Where they have changed, it halves the time until it has
    found the second.
    """
    ((first, changes),) = spark.sql(_query(zone)).collect()
    return tzif(first, [Change(*map(int, change)) for change in changes])


def _query(zone: str) -> str:
    quoted = zone.replace("\\", "\\\\").replace("'", "\\'")

    def ahead(at: str) -> str:
        return f"(unix_seconds(from_utc_timestamp(timestamp_seconds({at}), '{quoted}')) - ({at}))"

    def found(start: int, end: int, step: int) -> str:
        count = (end - start) // step
        looks = f"transform(sequence(0L, {count}L), i -> {start}L + i * {step}L)"
        middle = "((it.low + it.high) div 2)"
        half = (
            f"if({ahead(middle)} = {ahead('it.low')},"
            f" named_struct('low', {middle}, 'high', it.high),"
            f" named_struct('low', it.low, 'high', {middle}))"
        )
        return (
            f"transform(filter({looks}, at -> {ahead('at')} <> {ahead(f'(at + {step}L)')}),"
            f" at -> aggregate(sequence(1, {step.bit_length()}),"
            f" named_struct('low', at, 'high', at + {step}L), (it, i) -> {half},"
            f" it -> array(it.high, {ahead('it.low')}, {ahead('it.high')})))"
        )

    first, changes = SAMPLES[0][0], ", ".join(found(*it) for it in SAMPLES)
    columns = f"{ahead(f'{first}L')}, concat({changes})"
    return f"select {columns} from values (1)"  # noqa: S608 - the name of the zone is quoted


# -- what Java writes


class _Reader:
    """Reads numbers as Java's data streams write them."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, form: str) -> int:
        (value,) = struct.unpack_from(">" + form, self._data, self._at)
        self._at += struct.calcsize(">" + form)
        return value

    def offset(self) -> int:
        quarters = self.take("b")
        return self.take("i") if quarters == 127 else quarters * 900  # noqa: PLR2004

    def instant(self) -> int:
        high = self.take("B")
        if high == 255:  # noqa: PLR2004
            return self.take("q")
        return ((high << 16) + self.take("H")) * 900 - 4_575_744_000

    def instants(self) -> tuple[list[int], list[int]]:
        """Reads changes, and the times that hold before, between and behind them."""
        at = [self.instant() for _ in range(self.take("i"))]
        return at, [self.offset() for _ in range(len(at) + 1)]


class _LastRule(NamedTuple):
    """A change of each year behind those that are written out.

    Attributes:
        month: Its month.
        day: The first day of the month that it may be on; before the first, counted from the end.
        weekday: Its day of the week, Monday is 1; 0 is any.
        seconds: The time of the day.
        of: The offset from UTC in which that time is meant.
        before: How many seconds clocks were ahead of UTC.
        after: How many they are from then on.
    """

    month: int
    day: int
    weekday: int
    seconds: int
    of: int
    before: int
    after: int

    def in_year(self, year: int) -> Change:
        if self.day > 0:
            day = date(year, self.month, self.day)
            ahead = (self.weekday - day.isoweekday()) % 7
        else:
            following = date(year + self.month // 12, self.month % 12 + 1, 1)
            day = following + timedelta(days=self.day)
            ahead = -((day.isoweekday() - self.weekday) % 7)
        days = (day - EPOCH.date()).days + (ahead if self.weekday else 0)
        return Change(days * DAY + self.seconds - self.of, self.before, self.after)


def _of_java(data: bytes) -> tuple[int, list[Change]]:
    """Returns the first time of a zone and its changes, of rules that Java has serialized."""
    reader = _Reader(_block_data(data))
    reader.take("b")  # says that these are rules
    reader.instants()  # of the standard time
    instants, offsets = reader.instants()
    changes = [Change(*it) for it in zip(instants, offsets, offsets[1:], strict=False)]
    rules = [_last_rule(reader) for _ in range(reader.take("b"))]
    start = (EPOCH + timedelta(seconds=instants[-1])).year if instants else 1970
    for year in range(start, END):
        further = sorted(rule.in_year(year) for rule in rules)
        changes += [it for it in further if it.at > instants[-1]]
    return offsets[0], [it for it in changes if it.before != it.after]


def _block_data(data: bytes) -> bytes:
    """Returns what an object has written by itself, without the description of its class."""
    short, long, found = b"w"[0], b"z"[0], b""
    at = data.index(b"xp") + 2
    while data[at] in (short, long):
        form = ">B" if data[at] == short else ">i"
        (length,) = struct.unpack_from(form, data, at + 1)
        at += 1 + struct.calcsize(form)
        found += data[at : at + length]
        at += length
    return found


def _last_rule(reader: _Reader) -> _LastRule:
    packed = reader.take("I")

    def bits(at: int, count: int) -> int:
        return (packed >> at) & ((1 << count) - 1)

    hours, quarters = bits(14, 5), bits(4, 8)
    seconds = reader.take("i") if hours == 31 else hours * 3600  # noqa: PLR2004
    standard = reader.take("i") if quarters == 255 else (quarters - 128) * 900  # noqa: PLR2004
    before, after = (
        reader.take("i") if halves == 3 else standard + halves * 1800  # noqa: PLR2004
        for halves in (bits(2, 2), bits(0, 2))
    )
    of = (0, before, standard)[bits(12, 2)]
    return _LastRule(bits(28, 4), bits(22, 6) - 32, bits(19, 3), seconds, of, before, after)


# -- the session


_ZONE = "spark.sql.session.timeZone"

# Of local[N, F] the second number is how often a task may fail.
_LOCAL = re.compile(r"local\[(?P<cores>\*|\d+)(?:\s*,.*)?\]|local")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(?P<workers>\d+)\s*,\s*(?P<cores>\d+)\s*,.*\]")


class Times(NamedTuple):
    """What a session takes times for that do not say more.

    Attributes:
        zone: The time zone of those with a zone.
        are_naive: Whether the word ``timestamp`` in a schema is one without a zone.
    """

    zone: str = "UTC"
    are_naive: bool = False


class Session:
    """A session, or none, and what it says.

    Attributes:
        spark: The session of Spark; ``None`` where there is none yet.
        is_connect: Whether it is one of Spark Connect.
    """

    def __init__(self, spark: SparkSession | None) -> None:
        """Asks nothing yet."""
        self.spark = spark
        self.is_connect = spark is not None and is_connect(spark)

    @classmethod
    def active(cls) -> Session:
        """Returns the session of this thread, or the one that other threads began with."""
        try:
            # `getActiveSession` returns nothing in threads that did not start the session.
            return cls(SparkSession.active())
        except PySparkRuntimeError:
            return cls(None)

    @cached_property
    def times(self) -> Times:
        """What it takes times for."""
        if self.spark is None:
            return Times()
        kind = self.spark.conf.get("spark.sql.timestampType") or ""
        return Times(self.spark.conf.get(_ZONE) or "UTC", kind.upper() == "TIMESTAMP_NTZ")

    @cached_property
    def usual_zone(self) -> str:
        """The zone of a session of this application in which nobody has set one.

        Spark Connect has no way to ask for it: there it is what this session says.
        """
        if self.spark is None or self.is_connect:
            return self.times.zone
        context: Any = self.spark.sparkContext
        return str(context._jvm.java.util.TimeZone.getDefault().getID())  # noqa: SLF001

    @cached_property
    def is_case_sensitive(self) -> bool:
        """Whether it tells columns apart whose names differ in case only."""
        return self.spark is not None and self.spark.conf.get("spark.sql.caseSensitive") == "true"

    @cached_property
    def application(self) -> str:
        """Names the application, for limits that its workers share."""
        return self.asked("spark.app.id") or self.asked("spark.app.name") or "spark"

    @property
    def is_on_one_host(self) -> bool:
        """Whether all tasks run on one host, whose processes share its limits."""
        return _LOCAL.fullmatch(self._master) is not None

    @property
    def cores(self) -> int | None:
        """How many tasks may run at once, at most, if that is known."""
        return self._tasks_at_once[0]

    @property
    def executor_cores(self) -> int | None:
        """How many tasks an executor may run at once, if that is known."""
        return self._tasks_at_once[1]

    @cached_property
    def _tasks_at_once(self) -> tuple[int | None, int | None]:
        """Those of all executors, and of one."""
        of_all, of_one = self._cores
        of_task = int(self.asked("spark.task.cpus") or 1)
        return of_all and max(of_all // of_task, 1), of_one and max(of_one // of_task, 1)

    @property
    def _cores(self) -> tuple[int | None, int | None]:
        """The cores of all executors at most, and those of one, as far as they are known."""
        if cluster := _LOCAL_CLUSTER.fullmatch(self._master):
            each = int(cluster["cores"])
            return int(cluster["workers"]) * each, each
        local = _LOCAL.fullmatch(self._master)
        if local is not None and (cores := self._local_cores(local["cores"] or "1")):
            return cores, cores
        most, of_one = self.asked("spark.cores.max"), self.asked("spark.executor.cores")
        is_dynamic = self.asked("spark.dynamicAllocation.enabled") == "true"
        count = self.asked(
            "spark.dynamicAllocation.maxExecutors" if is_dynamic else "spark.executor.instances"
        )
        bounds = [int(most)] if most else []
        if of_one and count:
            bounds.append(int(of_one) * int(count))
        return min(bounds, default=None), int(of_one) if of_one else None

    def _local_cores(self, said: str) -> int | None:
        if said != "*":
            return int(said)
        # The machine of the driver runs all of it, which may be another one with Spark Connect.
        default = self.asked("spark.default.parallelism")
        context = getattr(self.spark, "_sc", None)
        found = default if context is None else context.defaultParallelism
        return None if found is None else int(found)

    @cached_property
    def _master(self) -> str:
        return (self.asked("spark.master") or "").strip()

    def asked(self, name: str) -> str | None:
        """Returns a setting, if it has one that it shows."""
        if self.spark is None:
            return None
        try:
            return self.spark.conf.get(name, None)
        except Exception:  # noqa: BLE001 - not every server shows all of its configuration
            return None


def is_connect(thing: object) -> bool:
    """Tells whether a session or DataFrame belongs to Spark Connect, without importing gRPC."""
    return type(thing).__module__.startswith("pyspark.sql.connect")


def zone_of_task(usual: str) -> str:
    """Returns the time zone of the session that runs the query, in a task of it.

    Args:
        usual: The zone where nobody has set one. Spark tells a task only what was set.
    """
    context = TaskContext.get()
    told = None if context is None else context.getLocalProperty(_ZONE)
    return told or usual


# -- what Spark's Arrow functions and the Python of Spark's workers must have, asked on the driver

_PROGRAM = "import sys; print('%d.%d' % sys.version_info[:2]); import sparkawait"
_PATIENCE_SECONDS = 60
_MAY_BRING_PACKAGES = (
    "spark.submit.pyFiles",
    "spark.files",
    "spark.archives",
    "spark.executorEnv.PYTHONPATH",
)


@functools.cache
def require_packages() -> None:
    """Checks that the driver has what Spark's Arrow functions need.

    Raises:
        ConfigurationError: If pandas or pyarrow is missing or too old for this PySpark.
    """
    try:
        with warnings.catch_warnings():  # Spark warns of new versions again, when it uses them
            warnings.simplefilter("ignore")
            require_minimum_pandas_version()
            require_minimum_pyarrow_version()
    except ImportError as error:
        msg = (
            f"Spark's Arrow functions lack a package: {error};"
            f" {how_to_install('spark')}, on the executors too"
        )
        raise ConfigurationError(msg, ErrorKind.MODULE_MISSING) from error


def check_workers(session: Session) -> None:
    """Checks that the workers' Python has sparkawait, where it is a Python of this machine.

    That is so for a local master. Elsewhere tasks report it.

    Raises:
        ConfigurationError: If it has another version than the driver's Python, or no sparkawait.
    """
    if session.spark is None or session.is_connect:
        return
    context: Any = session.spark.sparkContext
    if not context.master.startswith("local"):
        return
    python = shutil.which(str(context.pythonExec))
    is_own = python is not None and os.path.abspath(python) == os.path.abspath(sys.executable)  # noqa: PTH100 - a link of a virtual environment is not its target
    if python is None or is_own or context._python_includes:  # noqa: SLF001
        return
    # The session has those of the context, whose `getConf` copies all, in 600 messages to the JVM.
    conf = session.spark.conf
    if any([conf.get(name, None) for name in _MAY_BRING_PACKAGES]):  # noqa: C419 - none is set
        return
    problem = _problem_of(python, needs_package=not is_shipped(session.spark))
    if problem is not None:
        msg = (
            f"Spark's Python workers would run {python}, {problem}; the driver runs"
            f" {sys.executable}. Set PYSPARK_PYTHON (spark.pyspark.python for spark-submit) to it"
            ' before the session starts: os.environ["PYSPARK_PYTHON"] = sys.executable; or send'
            " sparkawait along with sparkawait.ship(spark)"
        )
        raise ConfigurationError(msg, ErrorKind.WORKERS_UNFIT)


@functools.cache
def _problem_of(python: str, *, needs_package: bool) -> str | None:
    """Asks a Python, once."""
    try:
        answer = subprocess.run(  # noqa: S603 - what Spark will run
            [python, "-c", _PROGRAM],
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    version = answer.stdout.strip()
    if version and version != own:
        return f"which is Python {version} and not {own}"
    if answer.returncode and needs_package:
        last = (answer.stderr.strip().splitlines() or ["it failed"])[-1]
        return f"which cannot import sparkawait ({last})"
    return None


# -- which Python runs the workers of a session on the driver's machine, where nobody has chosen
# one.
#
# To be used on the driver, from any thread.

_UNCHOSEN = "python3"
"""What workers run where nobody said what they should: the first on PATH, with any packages."""
_CHOICE = "PYSPARK_PYTHON"
_CHOICE_OF_SUBMIT = "spark.pyspark.python"
_CHOICE_OF_CONNECT = "spark.sql.execution.pyspark.python"
_SERVER_OF_THIS_PROCESS = "SPARK_LOCAL_REMOTE"
"""Set by PySpark when it has started a server of Spark Connect itself."""


def run_drivers_python(session: Session) -> None:
    """Has workers on this machine run the Python of the driver, where nobody chose theirs.

    So a program runs in an environment that was not activated, as those of notebooks and editors.
    Otherwise Spark takes the first `python3` on PATH, which has other packages.
    """
    spark = session.spark
    if spark is None or not sys.executable or _CHOICE in os.environ:
        return
    found = shutil.which(_UNCHOSEN)
    if session.is_connect:
        # Asked last: it takes a call to the server.
        if _SERVER_OF_THIS_PROCESS in os.environ and not spark.conf.get(_CHOICE_OF_CONNECT, None):
            spark.conf.set(_CHOICE_OF_CONNECT, sys.executable)
            _tell_of_python(found)
        return
    context: Any = spark.sparkContext
    is_chosen = context.pythonExec != _UNCHOSEN or spark.conf.get(_CHOICE_OF_SUBMIT, None)
    if context.master.startswith("local") and not is_chosen:
        context.pythonExec = sys.executable
        _tell_of_python(found)


def _tell_of_python(found: str | None) -> None:
    """Says once which Python workers run from now on, where they would have run another one."""
    if found is None or os.path.realpath(found) != os.path.realpath(sys.executable):
        warn_once(
            "the workers of this session run %s, as the driver does, and not `%s` (%s), for all"
            " Python functions from now on; set PYSPARK_PYTHON before the session starts to choose",
            sys.executable,
            _UNCHOSEN,
            found or "not found",
        )


SHIPPED: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""The digest of what was sent, by the context of a classic session, or by a session of Connect."""


def is_shipped(spark: SparkSession) -> bool:
    """Tells whether `ship` was called for a session, or another one of its application."""
    return owner_of_files(spark) in SHIPPED


def owner_of_files(spark: SparkSession) -> Any:
    """Returns what the files of a session belong to."""
    return spark if is_connect(spark) else spark.sparkContext
