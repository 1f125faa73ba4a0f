"""Identifies the machine of a node, so that the hub knows which nodes share one, and people which it is.

A pod's name is not a machine: where the node's name does not give the machine, it is added.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping, Sequence

from ddplaunch.agent.contract import Env, NodeStatus
from ddplaunch.agent.system import subjects

_ON = " on "


def host() -> str:
    """'n3', and of a pod 'digits-2 on worker2', unless it has its machine's own network and name."""
    name, machine = socket.gethostname(), os.environ.get(Env.MACHINE, "")
    return f"{name}{_ON}{machine}" if machine not in ("", name) else name


def known_machines(nodes: Iterable[NodeStatus]) -> dict[int, str]:
    """Return by node the machines of the pods, where they are known."""
    machines = {each.node: each.host.partition(_ON)[2] for each in nodes}
    return {node: machine for node, machine in machines.items() if machine}


def names_with_machines(names: Sequence[str], machines: Mapping[int, str]) -> list[str]:
    """Return the job's names as people read them, those of pods with their machines."""
    short = [subjects.name(node, names) or name for node, name in enumerate(names)]
    return [f"{name}{_ON}{machines[node]}" if node in machines else name for node, name in enumerate(short)]


def boot_id() -> str:
    """Return the kernel's boot id, the same in all containers of a machine, or else the host name."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return socket.gethostname()


def network_namespace() -> str:
    """Return the network namespace; "" where it cannot be read."""
    try:
        return os.readlink("/proc/self/ns/net")
    except OSError:
        return ""
