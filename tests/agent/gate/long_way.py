"""A long way between two hosts: a program carries their packets, each after a while."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator

from tests.agent.gate.hosts import Host, run

NAME = "far0"
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_TUNSETIFF, _TUN_WITHOUT_HEADER = 0x400454CA, 0x0001 | 0x1000


@contextlib.contextmanager
def long_way(one: Host, other: Host, seconds: float, mtu: int) -> Iterator[None]:
    """Have the packets between two hosts take so long in each direction, in pieces of `mtu` bytes."""
    command = [sys.executable, "-m", __name__, str(seconds), one.namespace, other.namespace]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as carrier:
        try:
            assert carrier.stdout is not None
            assert b"ready\n" == carrier.stdout.readline()
            for here, there in ((one, other), (other, one)):
                ip = ["ip", "-n", here.namespace]
                run(*ip, "link", "set", NAME, "mtu", str(mtu), "up")
                run(*ip, "route", "add", f"{there.address}/32", "dev", NAME, "src", here.address)
            yield
        finally:
            carrier.kill()


def _opened(namespace: str) -> int:
    """Return a new device of the namespace, as a file of IP packets."""
    with open(f"/run/netns/{namespace}") as file:
        assert 0 == ctypes.CDLL(None).setns(file.fileno(), _NEW_NETWORK)  # os.setns is of Python 3.12
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", NAME.encode(), _TUN_WITHOUT_HEADER))
    return device


def carry(seconds: float, namespaces: list[str]) -> None:
    """Carry packets until it is killed."""
    one, other = (_opened(each) for each in namespaces)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    on_way: deque[tuple[float, int, bytes]] = deque()
    while True:
        wait = max(0.0, on_way[0][0] - time.monotonic()) if on_way else None
        for device in select.select([one, other], [], [], wait)[0]:
            with contextlib.suppress(OSError):  # the device is not up yet
                packet = os.read(device, 1 << 16)
                on_way.append((time.monotonic() + seconds, other if device == one else one, packet))
        while on_way and on_way[0][0] <= time.monotonic():
            with contextlib.suppress(OSError):
                os.write(on_way[0][1], on_way[0][2])
            on_way.popleft()


if __name__ == "__main__":
    carry(float(sys.argv[1]), sys.argv[2:])
