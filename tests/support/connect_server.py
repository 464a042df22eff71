# SPDX-License-Identifier: Apache-2.0
"""The local server of Spark Connect that a program of the tests starts."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["at_a_free_port"]

LOOPBACK = "127.0.0.1"

_held: list[socket.socket] = []


def at_a_free_port(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Has the server of ``remote("local[..]")`` and its client meet at a port of their own.

    All such servers take port 15002 otherwise, and tests on several versions of Spark run side by
    side. PySpark's own way, SPARK_TESTING, has Spark behave otherwise in many places.
    """
    from pyspark.sql.connect.client import core

    # Bound until the process ends, so that nobody else gets the port; the server may reuse it.
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((LOOPBACK, 0))
    _held.append(held)
    port = held.getsockname()[1]
    # Since Spark 4.0 the channel by TCP is a class of its own.
    channel = getattr(core, "DefaultChannelBuilder", core.ChannelBuilder)
    channel.default_port = staticmethod(lambda: port)
    return builder.config("spark.connect.grpc.binding.port", str(port))
