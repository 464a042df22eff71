# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a call is said by the call, on the driver, before Spark does anything."""

import pytest

import sparkawait as sa

pytestmark = pytest.mark.spark


@sa.async_function("doubled bigint")
async def double(row):
    return {"doubled": 2 * row["id"]}


@pytest.fixture
def numbers(spark):
    return spark.range(3)
