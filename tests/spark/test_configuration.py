# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a call is said by the call, on the driver, before Spark does anything."""

import pandas as pd
import pytest

import sparkawait as sa

pytestmark = pytest.mark.spark


@sa.async_function("doubled bigint")
async def double(row):
    return {"doubled": 2 * row["id"]}


@pytest.fixture
def numbers(spark):
    return spark.range(3)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (double, "sparkawait.functions.DeclaredFunction"),
        (pd.DataFrame(), "pandas.*.DataFrame"),
    ],
    ids=["the function", "one of pandas"],
)
def test_what_is_no_dataframe_of_spark_is_named_in_full(given, name):
    with pytest.raises(sa.ConfigurationError, match=f"before the function, .* got `{name}`"):
        sa.unordered_wait(given, double)


@pytest.mark.parametrize("wait", [sa.ordered_wait, sa.unordered_wait])
def test_a_key_belongs_to_key_ordered_wait(numbers, wait):
    with pytest.raises(sa.ConfigurationError, match="`key`; it belongs to key_ordered_wait"):
        wait(numbers, double, key="id")


def test_a_job_is_that_of_a_session():
    with pytest.raises(sa.ConfigurationError, match="`spark` must be a SparkSession, got `str`"):
        sa.job("local")
