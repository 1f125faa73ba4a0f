"""Identifies this host, so that the hub knows which nodes share a machine."""

from __future__ import annotations

import os
import socket


def machine() -> str:
    """Return the kernel's boot id, the same in all containers of a machine, or else the host name."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return socket.gethostname()


def network() -> str:
    """Return the network namespace; "" where it cannot be read."""
    try:
        return os.readlink("/proc/self/ns/net")
    except OSError:
        return ""
