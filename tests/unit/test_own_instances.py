# SPDX-License-Identifier: Apache-2.0
"""One instance of a function in several outputs at once: each has what its own `open` made."""

import asyncio
import threading

import pytest

import sparkawait as sa
import sparkawait.arrow


class Client:
    """What cannot be pickled, and is of no use once it is closed."""

    def __init__(self):
        self.lock = threading.Lock()
        self.is_open = True

    async def double(self, number):
        await asyncio.sleep(0)
        assert self.is_open, "closed"
        return 2 * number


class Lookup(sa.AsyncFunction):
    schema = "doubled long"

    def __init__(self, kept=None):
        self.kept, self.client, self.made = kept, None, []

    async def open(self, context):
        assert self.client is None, "what another task made"
        self.client = Client()
        self.made.append(self.client)

    async def async_invoke(self, row):
        return [await self.client.double(row.id)]

    async def close(self):
        self.client.is_open = False


class Plain(Lookup):
    """Its calls are made in threads."""

    def async_invoke(self, row):
        assert self.client.is_open, "closed"
        return [2 * row.id]


class Many(Lookup):
    batch = 7

    async def async_invoke_batch(self, rows):
        return [await self.async_invoke(row) for row in rows]


def numbers(rows, start=0):
    return ({"id": [it]} for it in range(start, rows))


def rows_of(batches):
    return [row for batch in batches for row in batch.to_pylist()]


FEW = {"max_concurrency": 3, "tuning": sa.Tuning(max_rows=5)}


@pytest.mark.parametrize("kind", [Lookup, Plain, Many])
def test_an_output_that_ends_does_not_close_what_another_one_calls(kind):
    lookup = kind(kept=threading.Lock())
    slow = iter(sa.arrow.ordered_wait(numbers(1013), lookup, **FEW))
    first = next(slow)
    fast = sa.arrow.ordered_wait(numbers(7), lookup, **FEW)

    assert rows_of(fast) == [{"id": it, "doubled": 2 * it} for it in range(7)]
    found = [*rows_of([first]), *rows_of(slow)]
    assert found == [{"id": it, "doubled": 2 * it} for it in range(1013)]

    one, other = lookup.made
    assert lookup.client is one, "the first output calls the instance itself"
    assert not one.is_open
    assert not other.is_open


def test_one_call_behind_another_has_an_instance_of_its_own():
    lookup = Lookup()
    before = sa.arrow.unordered_wait(numbers(211), lookup, **FEW)
    rows = rows_of(sa.arrow.ordered_wait(before, lookup, schema="again long", **FEW))
    assert sorted(it["doubled"] for it in rows) == [2 * it for it in range(211)]
    assert [it.is_open for it in lookup.made] == [False, False]


def test_functions_side_by_side_have_instances_of_their_own():
    lookup = Lookup()
    slow = iter(sa.arrow.ordered_wait(numbers(1013), lookup, **FEW))
    first = next(slow)

    @sa.async_function("tripled long")
    async def triple(row):
        return {"tripled": 3 * row.id}

    both = rows_of(sa.arrow.ordered_wait(numbers(7), [lookup, triple], **FEW))
    assert both == [{"id": it, "doubled": 2 * it, "tripled": 3 * it} for it in range(7)]
    assert len([*rows_of([first]), *rows_of(slow)]) == 1013
    assert len(lookup.made) == 2


def test_outputs_one_after_the_other_call_the_instance_itself():
    lookup = Lookup()
    for rows in (3, 5):
        lookup.client = None
        rows_of(sa.arrow.ordered_wait(numbers(rows), lookup))
        assert lookup.client is lookup.made[-1]
    assert len(lookup.made) == 2


def test_an_output_that_is_closed_gives_the_instance_back():
    lookup = Lookup()
    out = sa.arrow.ordered_wait(numbers(1013), lookup, **FEW)
    next(iter(out))
    out.close()
    lookup.client = None

    rows_of(sa.arrow.ordered_wait(numbers(3), lookup))

    assert lookup.client is lookup.made[-1]


def test_what_cannot_be_copied_is_refused_where_it_is_open():
    class Single(Lookup):
        def __copy__(self):
            raise TypeError("there is one")

    lookup = Single()
    slow = iter(sa.arrow.ordered_wait(numbers(1013), lookup, **FEW))
    first = next(slow)
    told = "`.*Single` is open in another output, and cannot be copied for this one: .*there is one"
    with pytest.raises(sa.ConfigurationError, match=told) as raised:
        rows_of(sa.arrow.ordered_wait(numbers(7), lookup, **FEW))
    assert raised.value.kind == "function-invalid"
    assert len([*rows_of([first]), *rows_of(slow)]) == 1013
