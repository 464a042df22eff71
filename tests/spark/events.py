# SPDX-License-Identifier: Apache-2.0
"""Events in files, a stream of them, and what is called for each."""

import asyncio
import json
import os

import sparkawait as sa


@sa.async_function("doubled bigint")
async def double(row):
    await asyncio.sleep(0.001 * (row["id"] % 3))
    return {"doubled": 2 * row["id"]}


def write(folder, number):
    """Writes ten events, one second apart, into the file of this number."""
    lines = [
        json.dumps({"id": id_, "time": f"2024-01-01T00:{id_ // 60:02}:{id_ % 60:02}"})
        for id_ in range(10 * number, 10 * number + 10)
    ]
    path = folder / f"{number}.json"
    # Seen by the stream when it is whole.
    hidden = folder / f"_{number}"
    hidden.write_text("\n".join(lines))
    os.utime(hidden, (number, number))  # files are read from the oldest to the newest
    hidden.rename(path)


def stream(spark, folder):
    """Reads the files of a folder, two a micro-batch."""
    return (
        spark.readStream.schema("id bigint, time timestamp")
        .option("maxFilesPerTrigger", 2)
        .json(str(folder))
    )
