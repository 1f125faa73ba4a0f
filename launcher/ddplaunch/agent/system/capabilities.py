"""Reads what this process may do beyond its limits."""

from __future__ import annotations

IPC_LOCK = 14  # linux/capability.h
SYS_ADMIN = 21
SYS_RESOURCE = 24
_FIRST_NAMESPACE = ["0", "0", "4294967295"]


def holds(*capabilities: int) -> bool:
    """Whether it has one of them in the first user namespace: only there they lift a limit."""
    try:
        with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
            held = next(line.split()[1] for line in file if line.startswith("CapEff:"))
        return in_first_namespace() and any(int(held, 16) >> each & 1 for each in capabilities)
    except (OSError, StopIteration, ValueError):
        return False


def in_first_namespace() -> bool:
    """Whether its user namespace is the first one, as outside of containers for users who are not root."""
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:
            return file.read().split() == _FIRST_NAMESPACE
    except OSError:
        return False
