"""Ports for what a test starts: of the test alone, though others run beside it."""

from __future__ import annotations

import random
import socket

_PORTS = range(61_000, 65_536)
"""The kernel gives the ports below to connections, and jobs of ours take those below 32768 by themselves."""


def own_port() -> int:
    """A port on which nobody listens, and that no other test on this machine gets while this process lives.

    A port that the kernel chose, and that was closed again, may be another's before it is used.
    """
    for port in random.sample(_PORTS, len(_PORTS)):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0ddplaunch-tests-port-{port}")  # a name that ends with its process
            with socket.create_server(("", port)):
                claim.detach()  # it stays open, and no object is there that warns of it at the end
                return port
        except OSError:
            claim.close()
    raise AssertionError("no port is free")
