# SPDX-License-Identifier: Apache-2.0
"""What Spark tells apart has other keys, and what it sends twice has the same ones."""

from collections import defaultdict

import pyspark
import pytest

from tests.types.cases import cases_of

pytestmark = pytest.mark.spark

VERSION = tuple(map(int, pyspark.__version__.split(".")[:2]))
UNSENT = "interval year to month"


def _keys_of_columns(batches):
    import pyarrow as pa

    from sparkawait._core import content_keys
    from sparkawait._worker.feeder import Offsets

    for it in batches:
        # Spark 3.5 leaves offsets out.
        batch = Offsets(it.schema).repaired(it)
        keys = []
        for column, field in zip(batch.columns, batch.schema, strict=True):
            # Alone, and all under one name.
            one = pa.record_batch([column], pa.schema([field.with_name("v")]))
            keys.append([it.hex() for it in content_keys(one, b"f").to_pylist()])
        yield pa.record_batch(
            [pa.array(list(zip(*keys, strict=True)), pa.list_(pa.string()))], ["k"]
        )


def test_each_value_of_each_type_has_a_key_in_all_zones_and_partitions(spark, in_zone):
    cases = [case for case in cases_of(VERSION) if case.type != UNSENT]
    columns = [f"{case.sql} as c{index}" for index, case in enumerate(cases)]
    found = set()
    for zone in ("America/New_York", "Asia/Kathmandu"):
        in_zone(zone)
        df = spark.range(0, 3, 1, 2).selectExpr(*columns)
        rows = df.mapInArrow(_keys_of_columns, "k array<string>").collect()
        assert len(rows) == 3
        found |= {tuple(row.k) for row in rows}
    (keys,) = found
    of_type = defaultdict(list)
    for case, key in zip(cases, keys, strict=True):
        of_type[case.type].append((key, case.name))
    alike = [it for it in of_type.values() if len(dict(it)) < len(it)]
    assert alike == []
