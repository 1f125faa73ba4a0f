"""The physical machine of a node, where the node's name does not give it: a pod's name is not a machine."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ddplaunch.agent.contract import Env, NodeStatus, Verdict
from ddplaunch.agent.system import phrases

_ON = " on "
_NAME = re.compile(r"\b(\d+) \(([\w.-]+)( on [\w.-]+)?(?=[,)])")


def host() -> str:
    """'n3', and of a pod 'digits-2 on worker2', unless it has its machine's own network and name."""
    name, machine = socket.gethostname(), os.environ.get(Env.MACHINE, "")
    return f"{name}{_ON}{machine}" if machine not in ("", name) else name


def known(nodes: Iterable[NodeStatus]) -> dict[int, str]:
    """Return by node the machines of the pods, where they are known."""
    found = {each.node: each.host.partition(_ON)[2] for each in nodes}
    return {node: machine for node, machine in found.items() if machine}


def names(names: Sequence[str], machines: Mapping[int, str]) -> list[str]:
    """Return the job's names as people read them, those of pods with their machines."""
    short = [phrases.name(node, names) or name for node, name in enumerate(names)]
    return [f"{name}{_ON}{machines[node]}" if node in machines else name for node, name in enumerate(short)]


def placed(verdicts: Sequence[Verdict], machines: Mapping[int, str]) -> list[Verdict]:
    """Return the verdicts with the machines in their sentences."""
    return [replace(each, sentence=place(each.sentence, machines)) for each in verdicts]


def place(sentence: str, machines: Mapping[int, str]) -> str:
    """'node 2 (digits-2 on worker2)', where a node is named first."""
    told: set[int] = set()

    def say(match: re.Match[str]) -> str:
        node = int(match[1])
        machine = machines.get(node)
        if machine is None or node in told or not match[2].endswith(f"-{node}"):
            return match[0]
        told.add(node)
        return match[0] if match[3] else f"{match[0]}{_ON}{machine}"

    return _NAME.sub(say, sentence)


def unplaced(sentence: str) -> str:
    """Without the machines."""
    return _NAME.sub(r"\1 (\2", sentence)
