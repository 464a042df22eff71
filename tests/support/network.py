# SPDX-License-Identifier: Apache-2.0
"""Hosts with a network between them that is slow and loses packets, all on one machine.

```text
  namespace of host 0          this process           namespace of host 1
  +-----------------+     +--------------------+     +-----------------+
  | 10.77.0.1, tun <------> late, or not at all <------> tun, 10.77.0.2 |
  +-----------------+     +--------------------+     +-----------------+
```

Packets are carried here instead of by ``tc netem``, which many kernels are built without.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time
from collections import deque
from collections.abc import Generator
from pathlib import Path

from typing_extensions import Self

__all__ = ["Network"]

_CLONE_NEWNET = 0x40000000
_TUNSETIFF = 0x400454CA
_TUN_WITHOUT_HEADER = 0x0001 | 0x1000
_DEVICE = "host0"
_MOST_BYTES = 65536
_DESTINATION = slice(16, 20)
"""Of a packet of IP version 4."""


class Network:
    """Hosts that reach one another and nothing else, as a context manager.

    Args:
        hosts: How many.
        delay: Of each packet, in seconds.
        loss: Share of the packets that are lost.

    Attributes:
        addresses: Of the hosts.
        carried: Packets that came from each host.
        lost: How many of them were lost.
    """

    def __init__(self, hosts: int, *, delay: float, loss: float) -> None:
        self.addresses = [f"10.77.0.{number + 1}" for number in range(hosts)]
        self.carried = [0] * hosts
        self.lost = 0
        self._delay = delay
        self._loss = loss
        self._namespaces: list[int] = []
        self._devices: list[int] = []
        self._carrier: threading.Thread | None = None

    @staticmethod
    def hindrance() -> str | None:
        """Returns what is missing for it on this machine."""
        if os.geteuid() != 0:
            return "network namespaces are made by root"
        if not Path("/dev/net/tun").exists():
            return "there is no /dev/net/tun"
        if shutil.which("ip") is None:
            return "the program `ip` is not installed"
        try:
            with _own_namespace():
                _call("unshare", _CLONE_NEWNET)
        except OSError as error:
            return f"network namespaces are not allowed: {error}"
        return None

    def __enter__(self) -> Self:
        try:
            for address in self.addresses:
                self._add(address)
        except BaseException:
            self._close()
            raise
        self._stopped, self._stop = os.pipe()
        self._carrier = threading.Thread(target=self._carry, name="network", daemon=True)
        self._carrier.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the network; a namespace ends with the last process in it."""
        os.close(self._stop)
        if self._carrier is not None:
            self._carrier.join()
        os.close(self._stopped)
        self._close()

    @contextlib.contextmanager
    def inside(self, host: int) -> Generator[None]:
        """Puts the calling thread on a host: what it starts and listens on in the body is there."""
        with _own_namespace():
            _call("setns", self._namespaces[host], _CLONE_NEWNET)
            yield

    def _add(self, address: str) -> None:
        with _own_namespace():
            _call("unshare", _CLONE_NEWNET)
            self._namespaces.append(_namespace())
            device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            self._devices.append(device)
            name = _DEVICE.encode()
            fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name, _TUN_WITHOUT_HEADER))
            for command in (
                "link set lo up",
                f"addr add {address}/24 dev {_DEVICE}",
                f"link set {_DEVICE} up",
            ):
                subprocess.run(["ip", *command.split()], check=True)

    def _carry(self) -> None:
        chance = random.Random(0)  # noqa: S311 - nobody guesses at packets
        by_address = {
            bytes(map(int, address.split("."))): device
            for address, device in zip(self.addresses, self._devices, strict=True)
        }
        under_way: deque[tuple[float, int, bytes]] = deque()
        poll = select.poll()
        for descriptor in (self._stopped, *self._devices):
            poll.register(descriptor, select.POLLIN | select.POLLHUP)
        while True:
            wait = None if not under_way else 1000 * (under_way[0][0] - time.monotonic())
            ready = {descriptor for descriptor, _ in poll.poll(wait and max(0, wait))}
            if self._stopped in ready:
                return
            for host, device in enumerate(self._devices):
                if device not in ready:
                    continue
                packet = os.read(device, _MOST_BYTES)
                target = by_address.get(packet[_DESTINATION])
                if target is None:  # of IP version 6, or to nobody
                    continue
                self.carried[host] += 1
                if chance.random() < self._loss:
                    self.lost += 1
                else:
                    under_way.append((time.monotonic() + self._delay, target, packet))
            while under_way and under_way[0][0] <= time.monotonic():
                _, target, packet = under_way.popleft()
                with contextlib.suppress(BlockingIOError):  # its queue is full
                    os.write(target, packet)

    def _close(self) -> None:
        for descriptor in (*self._devices, *self._namespaces):
            os.close(descriptor)


@contextlib.contextmanager
def _own_namespace() -> Generator[None]:
    """Brings the calling thread back to where it was, after the body."""
    before = _namespace()
    try:
        yield
    finally:
        _call("setns", before, _CLONE_NEWNET)
        os.close(before)


def _namespace() -> int:
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _call(name: str, *arguments: int) -> None:
    """Calls a function of libc that Python 3.10 does not have."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
