# SPDX-License-Identifier: Apache-2.0
"""What the driver counts of reports that are lost, told twice, late, or not at all.

Tasks make calls and tell of them as they do in workers; the network between is drawn. Some are
killed, with their last words or without; some are run again. Whatever is drawn, no call is counted
twice, and in the end all is counted that was told.
"""

import weakref
from types import SimpleNamespace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import sparkawait as sa
from sparkawait._plan.plan import Chain
from sparkawait._plan.resolve import resolve

pytest.importorskip("pyspark")
from sparkawait.spark import reports as tasks
from sparkawait.spark.messages import RefusedError
from sparkawait.spark.remote import RemoteOwner
from sparkawait.spark.reports import Reports, TaskReport
from sparkawait.spark.tally import Tally


@sa.async_function("v long")
async def call(row):
    return {"v": row.id}


CHAIN = Chain.of(resolve("unordered", call, input_schema=None))
COUNTERS = dict.fromkeys(("admitted", "emitted", "dropped", "failed"), 0)
QUERY, RUN, BATCH = "sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId"
ENDS = st.sampled_from(["succeeded", "failed", "stopped"])
NUMBER = st.integers(0, 97)
FATES = st.sampled_from(["comes", "comes", "is late", "is lost"])


class FakeSpark:
    """Of which nothing is asked here."""


class Session:
    """A session of Spark Connect, of a Spark that keeps no logs."""

    def __init__(self):
        self.conf = {}


class Task:
    """A task of Spark, and what its worker tells.

    Attributes:
        calls: How many it has made.
        heard: Those of which the driver has heard; nothing if it does not know the task.
        is_told: Whether the driver takes it for ended.
    """

    def __init__(self, machine, place, query):
        self.calls, self.heard = 0, None
        self.place, self.machine = place, weakref.proxy(machine)
        self.is_alive, self.is_told = True, False
        told = {"spark.sql.execution.id": str(place)}
        if query:
            told = {QUERY: "q", RUN: "r", BATCH: str(place)}
        context = SimpleNamespace(
            getLocalProperty=told.get,
            stageId=lambda: 10 * place,
            partitionId=lambda: 3,
            attemptNumber=lambda: 0,
        )
        accumulator = None if machine.is_remote else SimpleNamespace(add=self.add)
        self.reports = TaskReport(Reports(accumulator, "the server"), CHAIN, context)

    def add(self, reports):
        """Is told by the accumulator, at once."""
        for report in reports:
            self.machine.hear(self, report)


class Reporting(RuleBasedStateMachine):
    """Tasks, a network and a driver."""

    is_remote = False

    def __init__(self):
        super().__init__()
        self.tasks, self.ways = [], []
        # What the server has, and nobody has looked at yet.
        self.reports, self.ends = [], []
        self.places = {True: 1, False: 1}
        if self.is_remote:
            self.session = Session()
            self.tally = RemoteOwner(self.session)
            self.tally.reports = Reports(None, "the server")
        else:
            self.tally = Tally(FakeSpark(), is_on_one_host=True)
        # Nobody watches: the test does.
        self.tally.actions._is_watched = True
        # What becomes of what is said next.
        self.fate, self.speaker = "comes", None
        self.before, tasks.publish = tasks.publish, self.publish
        tasks._SILENT_UNTIL.clear()

    def teardown(self):
        tasks.publish = self.before
        tasks._SILENT_UNTIL.clear()

    # -- the network

    def publish(self, _server, channel, text, _patience):
        if self.fate == "comes":
            self.arrives(self.speaker, channel, text)
            return
        if self.fate == "is late":
            self.ways.append((self.speaker, channel, text))
        raise RefusedError

    def arrives(self, task, channel, text):
        is_last = channel == "ends" and not self.is_remote
        (self.ends if is_last else self.reports).append((task, text))

    @rule()
    def look(self):
        """The driver looks at what its server has."""
        heard = [*self.ends, *self.reports]
        self.ends, self.reports = [], []
        for task, text in heard:
            self.hear(task, tasks.read(text))

    def hear(self, task, report):
        self.tally.take(report)
        if task.is_told:
            return
        task.heard = max(task.heard or 0, report["totals"].get("attempts", 0))
        task.is_told = report["end"] is not None
        for other in self.tasks:
            is_behind = task.query and other.query and other.place < task.place
            other.is_told |= is_behind and other.heard is not None

    def say(self, task, fate, speak):
        self.fate, self.speaker = fate, task
        speak()

    @rule(fate=FATES, query=st.booleans())
    def begin(self, fate, query):
        task = Task(self, self.places[query], query)
        task.query = query
        self.tasks.append(task)
        self.say(task, fate, task.reports.begin)

    def one(self, number):
        alive = [it for it in self.tasks if it.is_alive]
        return alive[number % len(alive)] if alive else None

    @rule(
        number=NUMBER,
        calls=st.integers(0, 13),
        fate=FATES,
    )
    def make_calls(self, number, calls, fate):
        task = self.one(number)
        if task is None:
            return
        task.calls += calls
        counts = {**COUNTERS, "attempts": task.calls, "emitted": task.calls}
        self.say(task, fate, lambda: task.reports.update(counts))

    @rule(
        number=NUMBER,
        calls=st.integers(0, 13),
        how=ENDS,
        fate=FATES,
    )
    def end(self, number, calls, how, fate):
        task = self.one(number)
        if task is None:
            return
        task.calls += calls
        task.reports.totals.update({**COUNTERS, "attempts": task.calls, "emitted": task.calls})
        task.is_alive = False
        self.say(task, fate, lambda: task.reports.end(how))
        # A driver hears of each end; a client hears what reaches its Redis.
        assert self.is_remote or task.is_told or task in [it for it, _ in self.ends]

    @rule(number=NUMBER, calls=st.integers(0, 13))
    def kill(self, number, calls):
        """Its worker has no time for a word."""
        task = self.one(number)
        if task is not None:
            task.calls += calls
            task.is_alive = False

    @precondition(lambda self: self.ways)
    @rule(number=NUMBER, twice=st.booleans())
    def arrive(self, number, twice):
        """What is on its way comes, whatever was said before it or behind it."""
        at = number % len(self.ways)
        self.arrives(*self.ways[at])
        if not twice:
            del self.ways[at]

    @rule(query=st.booleans())
    def next_place(self, query):
        """The next action or micro-batch begins, as no task of this one runs any more."""
        now = self.places[query]
        if any(it.is_alive for it in self.tasks if it.query == query and it.place == now):
            return
        self.places[query] += 1
        if not query:
            self.end_action(str(now))

    def end_action(self, key):
        actions = self.tally.actions
        found = actions._actions.get(key)
        if found is None:
            return
        for task in self.tasks:
            task.is_told |= not task.query and str(task.place) == key and task.heard is not None
        actions._end(key, found, SimpleNamespace(end=lambda _: None))

    @invariant()
    def each_call_that_was_heard_of_is_counted_once(self):
        sums = self.tally.sums()
        counted = sums["attempts"] + sums["failed_tasks"]["attempts"]
        known = [it for it in self.tasks if it.heard is not None]
        assert counted == sum(it.heard for it in known) <= sum(it.calls for it in self.tasks)
        if self.is_remote and counted < sum(it.calls for it in known):
            assert sums["at_least"]

    @invariant()
    def nothing_is_kept_of_tasks_that_a_later_batch_has_left_behind(self):
        of_stream = [it for it in self.tasks if it.query and it.heard is not None]
        newest = max((it.place for it in of_stream), default=0)
        running = sum(it.place == newest and not it.is_told for it in of_stream)
        kept = [it for of in self.tally._of_streams.values() for it in of.values()]
        assert sum(map(len, kept)) <= running


class ReportingToAClient(Reporting):
    """The same to a client of Spark Connect, by a Redis."""

    is_remote = True


TestReports = Reporting.TestCase
TestReports.settings = settings(max_examples=53, stateful_step_count=37, deadline=None)
TestReportsToAClient = ReportingToAClient.TestCase
TestReportsToAClient.settings = settings(max_examples=23, stateful_step_count=37, deadline=None)
