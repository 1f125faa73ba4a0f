"""Identifies this host, so that the hub knows which nodes share a machine."""

from __future__ import annotations

import os
import socket


def machine() -> str:
    """The kernel's boot id: the same for all containers of a machine. Host name where there is none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return socket.gethostname()


def network() -> str:
    """The network namespace. Empty where the kernel does not tell."""
    try:
        return os.readlink("/proc/self/ns/net")
    except OSError:
        return ""
