# SPDX-License-Identifier: Apache-2.0
"""Functions and classes of a script, which Spark sends by value and not by the name of a module."""

import pytest

from tests.support.spark_program import run_spark_program

pytestmark = pytest.mark.spark

DATACLASSES = """
import dataclasses
from dataclasses import InitVar, dataclass, field
from typing import ClassVar

@dataclass
class Place:
    town: str

@dataclass
class Price:
    currency: ClassVar[str] = "EUR"
    scale: InitVar[int]
    product: str
    places: "list[Place]" = field(default_factory=list)

    def __post_init__(self, scale):
        self.product *= scale

@sa.async_function
async def price(row) -> Price:
    return Price(2, f"p{row.id}", [Place(f"t{row.id}")])

captured = Price(1, "captured")

@sa.async_function
async def kept(row) -> Price:
    return captured

made = dataclasses.make_dataclass("Made", [("word", str)])

def rows(function):
    return [(it.product, [place.town for place in it.places])
            for it in sa.ordered_wait(spark.range(3), function).collect()]

print(rows(price))
print(rows(kept))
column = sa.async_udf("word string")
made_of = column(lambda id: made(f"w{id}"))
print([it[0].word for it in spark.range(2).select(made_of("id")).collect()])
"""


@pytest.mark.timeout(240)
def test_dataclasses_of_a_script_are_results():
    done = run_spark_program(DATACLASSES)

    assert done.stdout.splitlines() == [
        "[('p0p0', ['t0']), ('p1p1', ['t1']), ('p2p2', ['t2'])]",
        "[('captured', []), ('captured', []), ('captured', [])]",
        "['w0', 'w1']",
    ], done.stderr[-3000:]
