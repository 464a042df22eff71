# SPDX-License-Identifier: Apache-2.0
"""A function has its options with it: from its decorator, and by `with_options`."""

import functools

import cloudpickle
import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait._plan.called import facts_of, to_function
from sparkawait._plan.resolve import resolve_unpickled
from sparkawait.options import OF_FUNCTION, OWN_OPTIONS, asks_for_column
from tests.support import looked_up
from tests.unit.test_class_options import VALUES, in_a_folder_of_its_own  # noqa: F401 - for all

FACTS = {
    "batch": sa.Batch(max_rows=7),
    "idempotent": False,
    "threads": 13,
    "blocked_loop_timeout": "13s",
    "setup_timeout": "17s",
}
SECONDS = {"blocked_loop_timeout": 13.0, "setup_timeout": 17.0}


async def ask(row):
    return row["id"]


def block(row):
    return row["id"]


class Ask(sa.AsyncFunction):
    schema = "y int"

    def async_invoke(self, row):
        return row["id"]

    def async_invoke_batch(self, rows):
        return [row["id"] for row in rows]


def plan(function, **given):
    return resolve_unpickled("unordered", function, input_schema=None, **given)


def decorated(**given):
    return sa.async_function("y int", idempotent=True, **given)(ask)


def by_hand(function):
    """A decorator as users write them."""

    @functools.wraps(function)
    async def called(row):
        return await function(row)

    return called


WRAPPERS = {
    "itself": lambda function: function,
    "declared again": sa.async_function,
    "partial": functools.partial,
    "by hand": by_hand,
    "declared partial": lambda function: sa.async_function(functools.partial(function)),
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
@pytest.mark.parametrize("name", VALUES)
def test_each_option_means_in_a_decorator_what_it_means_in_a_call(name, wrap):
    value = VALUES[name]
    said = plan(wrap(decorated(**{name: value})))
    given = plan(decorated(), **{name: value})

    assert getattr(said.options, name) == getattr(given.options, name)
    assert said.max_concurrency == given.max_concurrency
    sent = cloudpickle.loads(cloudpickle.dumps(said))
    assert getattr(sent.options, name) == getattr(given.options, name)


@pytest.mark.parametrize("name", VALUES)
def test_a_function_that_is_sent_by_value_has_its_options(name):
    function = decorated(**{name: VALUES[name]})

    sent = plan(cloudpickle.loads(cloudpickle.dumps(function)))

    assert getattr(sent.options, name) == getattr(plan(function).options, name)


@pytest.mark.parametrize("name", VALUES)
def test_options_are_those_of_the_driver_for_a_function_that_is_sent_by_name(monkeypatch, name):
    told = sa.async_function("y int", idempotent=True, **{name: VALUES[name]})(
        looked_up.answers_when_called_again
    )
    monkeypatch.setattr(looked_up, "answers_when_called_again", told)
    made = plan(told)
    sent = cloudpickle.dumps(made)
    # As in a worker, whose module was not edited.
    monkeypatch.undo()

    assert b"DeclaredFunction" not in sent
    assert getattr(cloudpickle.loads(sent).options, name) == getattr(made.options, name)


@pytest.mark.parametrize("name", FACTS)
@pytest.mark.parametrize("form", ["class", "declared", "twice"])
def test_with_options_says_what_belongs_to_the_function(name, form):
    function = Ask() if form == "class" else sa.async_function("y int")(block)
    if name == "setup_timeout" and form != "class":
        with pytest.raises(sa.ConfigurationError, match="bounds `open` and `close`, which `block`"):
            function.with_options(setup_timeout="17s")
        return
    before = facts_of(function)

    made = function.with_options(**{name: FACTS[name]})
    if form == "twice":
        made = made.with_options(retry=3)
        assert made.options.given.keys() == {"retry"}

    called, facts = to_function(made.function)
    assert getattr(facts, name) == SECONDS.get(name, FACTS[name])
    assert getattr(plan(made).facts, name) == SECONDS.get(name, FACTS[name])
    assert facts_of(function) == before
    assert getattr(facts_of(cloudpickle.loads(cloudpickle.dumps(called))), name) == getattr(
        facts, name
    )


def test_each_of_what_belongs_to_a_function_is_tried():
    assert FACTS.keys() == OF_FUNCTION.keys()


def test_the_call_wins_over_with_options_and_those_over_the_decorator():
    function = decorated(max_concurrency=7, timeout="7s", retry=5)
    again = sa.async_function(functools.partial(function), timeout="6s")

    made = plan(again.with_options(max_concurrency=5), timeout="3s")

    assert (made.options.max_concurrency, made.options.timeout) == (5, 3.0)
    assert made.options.retry == sa.WaitOptions(retry=5).retry
    assert plan(again).options.timeout == 6.0


def test_no_more_threads_call_at_a_time_than_with_options_says():
    running, most = [], []

    @sa.async_function("y int", threads=31)
    def tells(row):
        running.append(row)
        most.append(len(running))
        running.pop()
        return 1

    rows = pa.table({"id": list(range(131))})
    out = sa.arrow.unordered_wait(
        rows, tells.with_options(threads=1), tuning=sa.Tuning(warm_up=False)
    )

    assert out.to_table().num_rows == 131
    assert max(most) == 1


class Column:
    """As an expression of PySpark looks."""

    alias = None


ASKED = {
    "a row": ([{"id": 1}], False),
    "texts": (["id", "name"], False),
    "nothing": ([], False),
    "a column": ([Column()], True),
    "a column behind a text": (["id", Column()], True),
    "a list with a column": ([[Column()]], False),
}


@pytest.mark.parametrize(("given", "is_column"), ASKED.values(), ids=ASKED)
def test_a_column_is_asked_for_by_a_column_alone(given, is_column):
    assert asks_for_column("ask", *given) is is_column


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: decorated(capacity=5), "`capacity` is not an option of one function; give it to"),
        (lambda: decorated(timeot="5s"), "unknown option `timeot`; did you mean `timeout`"),
        (lambda: decorated(timeout="soon"), "`timeout` is not a duration"),
        (lambda: decorated(max_retries=5), "unknown option `max_retries`; write retry=3"),
        (lambda: decorated(setup_timeout="5s"), "it is an attribute of an AsyncFunction"),
        (lambda: decorated(channel=Column()), "`channel` has an expression, which cannot be sent"),
        (lambda: decorated().with_options(threads=3), "`ask` is an `async def`.*no threads"),
        (lambda: Ask().with_options(threads=0), "`threads` must be an int of at least 1"),
        (lambda: Ask().with_options(batch="7"), "`batch` must be a sparkawait.Batch"),
        (lambda: plan(Ask(), threads=3), r"belongs to the function: @sa.async_function\(.., thr"),
        (
            lambda: sa.http.get("https://h/{id}", "x int").with_options(batch=5),
            "`batch` is not an option of the native function",
        ),
    ],
    ids=range(11),
)
def test_a_wrong_option_is_refused_where_it_is_given(make, words):
    with pytest.raises(sa.ConfigurationError, match=words):
        make()


def test_what_is_given_beside_the_function_counts_as_with_a_decorator():
    made = sa.async_function(block, threads=3, idempotent=False, batch=7)
    assert (made.threads, made.idempotent, made.batch) == (3, False, sa.Batch(max_rows=7))
    assert OWN_OPTIONS.keys() == VALUES.keys()
