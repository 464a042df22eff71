# SPDX-License-Identifier: Apache-2.0
"""A query that needs a new checkpoint goes on where the old one ended, as its page says."""

import json
import re
from pathlib import Path

import pytest

import sparkawait as sa
from tests.meta.repository import ROOT
from tests.spark.carried import OFTEN, ROCKS, SLOW, STORE, Stream
from tests.support.sql_conf import sql_conf

pytestmark = [pytest.mark.spark, pytest.mark.newest_spark]

PAGE = ROOT / "docs" / "guides" / "operate-a-stream.md"
RECIPE = re.compile(r"^```python\n(?P<code>[^`]*?offsets[^`]*)^```", re.MULTILINE)
ROWS = 33
PARTITIONS = "spark.sql.shuffle.partitions"


def topic(spark, path: Path, starting: str | None = None):
    """Returns a stream that begins at an offset, as Kafka's does; seven rows a micro-batch."""
    from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

    class Reader(SimpleDataSourceStreamReader):
        def __init__(self, options) -> None:
            self.path = options["path"]
            self.starting = options.get("startingOffsets", '{"0": 0}')

        def initialOffset(self):  # noqa: N802 - Spark's name
            return json.loads(self.starting)

        def read(self, start):
            with open(self.path) as lines:  # noqa: PTH123
                ids = [int(line) for line in lines][start["0"] : start["0"] + 7]
            return iter([(id_, id_ % 3) for id_ in ids]), {"0": start["0"] + len(ids)}

        def readBetweenOffsets(self, start, end):  # noqa: N802 - Spark's name
            return iter([(id_, id_ % 3) for id_ in range(start["0"], end["0"])])

        def commit(self, end) -> None:
            pass

    class Topic(DataSource):
        @classmethod
        def name(cls):
            return "topic"

        def schema(self):
            return "id bigint, key bigint"

        def simpleStreamReader(self, schema):  # noqa: N802 - Spark's name
            return Reader(self.options)

    spark.dataSource.register(Topic)
    options = {"path": str(path)} | ({} if starting is None else {"startingOffsets": starting})
    return spark.readStream.format("topic").options(**options).load()


class OfTopic(Stream):
    """A query over a topic."""

    path: Path
    starting: str | None = None

    @property
    def source(self):
        return topic(self.spark, self.path, self.starting)


@pytest.mark.nightly
def test_another_vehicle_and_number_of_shards_go_on_where_the_old_query_ended(
    spark, calls, tmp_path
):
    path = tmp_path / "topic"
    path.write_text("".join(f"{id_}\n" for id_ in range(ROWS)))
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    old = OfTopic(spark, tmp_path / "old", calls)
    old.path = path
    old.start(old.carried())
    old.until_out(set(range(10)) - {SLOW})
    old.gate.touch()
    assert sa.drain(old.query)

    names = {"checkpoint": str(old.folder / "checkpoint")}
    [recipe] = RECIPE.findall(PAGE.read_text(encoding="utf-8"))
    exec(recipe, names)  # noqa: S102 - what the page says
    with path.open("a") as more:
        more.writelines(f"{id_}\n" for id_ in range(ROWS, ROWS + 13))
    with sql_conf(spark, {STORE: ROCKS, PARTITIONS: "3"}):
        new = OfTopic(spark, tmp_path / "new", calls, OFTEN)
        new.path, new.starting = path, names["ended"]
        new.gate.touch()
        new.start(new.carried())
        new.until(lambda: len(old.rows) + len(new.rows) >= ROWS + 13)
        new.stop()

    assert sorted(old.rows + new.rows) == list(range(ROWS + 13))
    assert [new.calls_of(id_) for id_ in range(ROWS + 13)] == [1] * (ROWS + 13)


@pytest.mark.parametrize("given", [13, "rows"])
def test_what_is_no_query_is_not_drained(spark, given):
    query = spark.range(13) if given == "rows" else given
    with pytest.raises(
        sa.ConfigurationError, match="`query` must be a StreamingQuery of Spark, got"
    ):
        sa.drain(query)
