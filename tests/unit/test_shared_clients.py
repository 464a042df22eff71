# SPDX-License-Identifier: Apache-2.0
"""Clients that the tasks of a process share."""

import asyncio
import os
import subprocess
import sys
import threading

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait._worker import event_loop
from sparkawait._worker.event_loop import Borrower, SharedClients, event_loop_thread
from tests.support.waiting import wait_until


class Made:
    """What factories made, and what was closed of it."""

    def __init__(self) -> None:
        self.clients: list[object] = []
        self.closed: list[object] = []
        self.closed_in: list[str] = []
        self.fails = 0

    def add(self, client):
        if self.fails:
            self.fails -= 1
            raise ConnectionError("refused")
        self.clients.append(client)
        return client

    def close(self, client):
        self.closed.append(client)
        self.closed_in.append(threading.current_thread().name.rpartition("-")[0])


@pytest.fixture
def made():
    return Made()


class Client:
    def __init__(self, made):
        self.made = made


class Closes(Client):
    def close(self):
        self.made.close(self)


class ClosesOnTheLoop(Client):
    async def close(self):
        self.made.close(self)


class ClosesByItsOtherName(Client):
    async def aclose(self):
        self.made.close(self)

    def close(self):
        raise AssertionError


CLIENTS = [Closes, ClosesOnTheLoop, ClosesByItsOtherName]


def lookup(made, kind=Closes, key="client", *, is_async=False):
    """Returns a function with a shared client, whose results name it."""

    class Lookup(sa.AsyncFunction):
        schema = "client long"

        async def open(self, context):
            async def make():
                await asyncio.sleep(0)
                return made.add(kind(made))

            if is_async:
                self.client = await context.shared(key, make)
            else:
                self.client = context.shared(key, lambda: made.add(kind(made)))

        async def async_invoke(self, row):
            return {"client": made.clients.index(self.client)}

    return Lookup()


def run(function, rows=13, **options):
    out = sa.arrow.unordered_wait(pa.table({"id": list(range(rows))}), function, **options)
    found = out.to_table().to_pylist()
    assert sorted(row["id"] for row in found) == list(range(rows))
    return {row["client"] for row in found}


@pytest.fixture(autouse=True)
def none_before():
    """Ends what tests before left behind."""
    yield
    thread = event_loop_thread()
    thread.submit(thread.clients.close()).result()


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("kind", CLIENTS)
def test_tasks_one_after_another_have_one_client(made, kind, is_async):
    assert [run(lookup(made, kind, is_async=is_async)) for _ in range(7)] == [{0}] * 7
    assert len(made.clients) == 1
    assert made.closed == []


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_client_is_closed_when_no_task_has_used_it_for_a_while(made, kind, monkeypatch):
    monkeypatch.setattr(event_loop, "IDLE_SECONDS", 0.003)
    run(lookup(made, kind))
    wait_until(lambda: made.closed == made.clients)
    # What blocks is not called on the loop.
    expected = "sparkawait-blocking" if kind is Closes else "sparkawait"
    assert made.closed_in == [expected]
    # The next task makes another.
    assert run(lookup(made, kind)) == {1}


def test_a_client_that_a_task_uses_stays_however_long_the_others_are_gone(made, monkeypatch):
    monkeypatch.setattr(event_loop, "IDLE_SECONDS", 0.0)
    function = lookup(made)
    ends = threading.Event()

    def batches():
        yield pa.record_batch({"id": [0]})
        assert run(lookup(made)) == {0}  # another task, which ends before this one
        assert run(lookup(made)) == {0}
        assert made.closed == []
        ends.set()
        yield pa.record_batch({"id": [1]})

    out = sa.arrow.ordered_wait(batches(), function).to_table()
    assert out.column("client").to_pylist() == [0, 0]
    assert ends.is_set()
    wait_until(lambda: made.closed == made.clients)


def test_functions_side_by_side_share_and_other_keys_and_factories_do_not(made):
    class Other(type(lookup(made))):
        schema = "other long"

        async def open(self, context):
            self.client = context.shared("client", lambda: made.add(Client(made)))

        async def async_invoke(self, row):
            return {"other": made.clients.index(self.client)}

    rows = pa.table({"id": [1, 2, 3]})
    out = sa.arrow.ordered_wait(rows, [lookup(made), Other()]).to_table()

    assert len(made.clients) == 2
    assert {*out.column("client").to_pylist(), *out.column("other").to_pylist()} == {0, 1}
    assert run(lookup(made, key=("client", 2))) == {2}
    assert run(lookup(made)) == {*out.column("client").to_pylist()}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_factory_that_fails_fails_its_task_and_is_asked_again_by_the_next(made, is_async):
    made.fails = 2
    for _ in range(2):
        with pytest.raises(sa.AsyncFunctionError, match="open` failed: ConnectionError: refused"):
            run(lookup(made, is_async=is_async))
    assert run(lookup(made, is_async=is_async)) == {0}


class HandTimedLoop(asyncio.SelectorEventLoop):
    """A loop whose timers run when the test says so."""

    def __init__(self):
        super().__init__()
        self.timers = []

    def call_later(self, delay, callback, *args, context=None):
        self.timers.append(asyncio.TimerHandle(0, callback, args, self, context))
        return self.timers[-1]

    def run_timers(self):
        timers, self.timers = self.timers, []
        for timer in timers:
            if not timer.cancelled():
                timer._run()


@pytest.mark.parametrize("second_is_there", [False, True])
def test_what_one_task_left_behind_does_not_close_the_client_of_another(made, second_is_there):
    loop = HandTimedLoop()
    may_end = [loop.create_future() for _ in range(2)]

    async def make():
        await may_end[len(made.clients)]
        return made.add(Closes(made))

    async def turns():
        for _ in range(7):
            await asyncio.sleep(0)

    async def test():
        clients = SharedClients(loop, None)
        first, second = (Borrower(clients, lambda: True) for _ in range(2))
        waits = first.take("client", make)
        await turns()
        first.give_back()  # while its client is being made
        may_end[0].set_exception(ConnectionError("refused"))
        with pytest.raises(ConnectionError):
            await waits
        may_end[0] = loop.create_future()
        waits = asyncio.ensure_future(second.take("client", make))
        await turns()
        if second_is_there:
            may_end[0].set_result(None)
            await waits
        loop.run_timers()
        await turns()
        if not second_is_there:
            may_end[0].set_result(None)
        assert await waits is made.clients[0]
        assert made.closed == []

    loop.run_until_complete(test())
    loop.close()


def test_tasks_that_ask_at_the_same_time_wait_for_one_client(made):
    together = threading.Barrier(5)

    def batches():
        together.wait(20)
        yield pa.record_batch({"id": [1]})

    def task(found):
        found.append(
            sa.arrow.ordered_wait(batches(), lookup(made, is_async=True)).to_table().num_rows
        )

    found: list[int] = []
    threads = [threading.Thread(target=task, args=(found,)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert found == [1] * 5
    assert len(made.clients) == 1


def test_a_client_that_does_not_close_is_said_in_the_log(made, monkeypatch, caplog):
    class Breaks(Client):
        def close(self):
            raise ConnectionError("gone already")

    monkeypatch.setattr(event_loop, "IDLE_SECONDS", 0.0)
    run(lookup(made, Breaks))
    wait_until(lambda: "a shared client could not be closed" in caplog.text)
    assert "gone already" in caplog.text


def test_a_plain_function_of_a_class_has_one_too(made):
    class Lookup(sa.AsyncFunction):
        schema = "client long"
        threads = 7

        def open(self, context):
            self.client = context.shared("client", lambda: made.add(Closes(made)))

        def async_invoke(self, row):
            return {"client": made.clients.index(self.client)}

    assert [run(Lookup(), 101) for _ in range(3)] == [{0}] * 3


def test_a_forked_process_makes_its_own(made):
    assert run(lookup(made)) == {0}
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            found = run(lookup(made))
            os.write(write, b"y" if found == {1} and made.closed == [] else b"n")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    assert os.read(read, 1) == b"y"
    os.close(read)
    assert run(lookup(made)) == {0}


PROGRAM = """
import pyarrow as pa
import sparkawait as sa

class Client:
    async def aclose(self):
        print("closed", flush=True)

class Lookup(sa.AsyncFunction):
    schema = "x long"
    def open(self, context):
        self.client = context.shared("client", Client)
    async def async_invoke(self, row):
        return {"x": 1}

for _ in range(3):
    print(sa.arrow.ordered_wait(pa.table({"id": [1, 2]}), Lookup()).to_table().num_rows)
"""


def test_a_client_is_closed_when_the_process_ends():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["2", "2", "2", "closed"]


@pytest.mark.parametrize(
    ("key", "factory", "words"),
    [
        (["a", "list"], Client, r"`key` of `shared` must be hashable"),
        ("client", Client(None), "`factory` of `shared` must be a function .* got `Client`"),
    ],
)
def test_a_wrong_use_says_what_to_write(key, factory, words):
    class Wrong(sa.AsyncFunction):
        schema = "x long"

        def open(self, context):
            context.shared(key, factory)

        async def async_invoke(self, row):
            return {"x": 1}

    with pytest.raises(sa.AsyncFunctionError, match=words):
        run(Wrong())


def test_it_is_refused_in_a_thread(made):
    class Late(sa.AsyncFunction):
        schema = "x long"

        def open(self, context):
            self.context = context

        def async_invoke(self, row):
            self.context.shared("client", lambda: made.add(Client(made)))

    with pytest.raises(sa.AsyncFunctionError, match="call it in `open`, and keep"):
        run(Late())
    assert made.clients == []


def test_without_a_task_it_makes_the_client():
    context = sa.typing.FunctionContext(0, "f (0)")
    assert isinstance(context.shared("client", lambda: Client(None)), Client)
