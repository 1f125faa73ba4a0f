"""Network devices for the namespaces of a test."""

from __future__ import annotations

from tests.agent.gate.hosts import Host, run


def add(host: Host, name: str, address: str) -> None:
    """An interface that runs, and leads nowhere."""
    there = ["ip", "-n", host.namespace]
    run(*there, "link", "add", name, "type", "veth", "peer", "name", f"{name}p")
    run(*there, "addr", "add", address, "dev", name)
    for end in (name, f"{name}p"):
        run(*there, "link", "set", end, "up")
