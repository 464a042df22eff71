# SPDX-License-Identifier: Apache-2.0
"""A real Kafka broker on a free loopback port, out of the jars that `tools/kafka-jars` fetches."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from tests.support.servers import LOOPBACK, Server, free_port

__all__ = ["KafkaServer"]

_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
"""Any 16 bytes, as Kafka writes them."""

_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/logs
offsets.topic.replication.factor=1
num.partitions=3
"""


class KafkaServer(Server):
    """A broker that is its own controller, as a context manager. Topics need not be made before."""

    start_seconds = 120.0  # a JVM, on a machine that does other things

    def __init__(self, jars: Path) -> None:
        """Prepares a broker; `jars` is the folder of its jars."""
        port, folder = free_port(), Path(tempfile.mkdtemp(prefix="kafka-"))
        settings = folder / "server.properties"
        settings.write_text(
            _SETTINGS.format(host=LOOPBACK, port=port, controller=free_port(), folder=folder)
        )
        java = ["java", "-Xmx512m", "-cp", f"{jars}/*"]
        options = ["format", "--cluster-id", _CLUSTER, "--config", str(settings)]
        subprocess.run(
            [*java, "kafka.tools.StorageTool", *options], check=True, capture_output=True
        )
        super().__init__([*java, "kafka.Kafka", str(settings)], port, folder)

    @property
    def address(self) -> str:
        """Where it listens, for clients."""
        return f"{LOOPBACK}:{self.port}"
