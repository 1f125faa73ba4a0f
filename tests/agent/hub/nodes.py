"""Nodes that speak to a real hub."""

from __future__ import annotations

import time
from typing import Any

from tests.agent.gate.jobs import Job
from tests.busy import BUSY

from ddplaunch.agent.contract import CheckIn, JobPlan, codec
from ddplaunch.agent.transport.protocol import Body, Channel


class Node:
    """Speaks for one node, word by word."""

    def __init__(self, job: Job, number: int) -> None:
        self.number = number
        self.channel = Channel.connect("127.0.0.1", job.hub_port, job.key, 0, time.monotonic() + 10)
        job.on_close.append(self.channel.close)

    def check_in(self, plan: JobPlan, **changes: Any) -> None:
        plain: dict[str, Any] = {
            "node": self.number,
            "host": f"n{self.number}",
            "nodes": plan.nodes,
            "nproc_per_node": plan.nproc_per_node,
            "address": "127.0.0.1",
            "ports": {"responder": 40000, **({"master": 29500} if self.number == 0 else {})},
            "at": time.time(),
            "machine": "here",
            "netns": "net:[1]",
            "pid": 100 + self.number,
        }
        self.channel.send("check-in", {"check_in": codec.dump(CheckIn(**{**plain, **changes}))})

    def expect(self, kind: str, seconds: float = 10.0) -> Body:
        """The body of the next message of that kind; others before it are skipped."""
        deadline = time.monotonic() + BUSY * seconds
        while time.monotonic() < deadline:
            message = self.channel.receive(deadline - time.monotonic())
            if message is not None and message[0] == kind:
                return message[1]
        raise AssertionError(f"no {kind} in {BUSY * seconds} s")

    def try_paths(self) -> None:
        """Report all of them as good."""
        tasks = self.expect("mesh")["tasks"]
        results = [{"node": self.number, "outcome": "ok", **task} for task in tasks]
        self.channel.send("mesh-results", {"results": results})

    def free_port(self) -> None:
        """Give up the master port when asked."""
        self.expect("unbind")
        self.channel.send("unbound", {})


def nodes_of(job: Job, count: int) -> list[Node]:
    """Connected, not yet checked in."""
    return [Node(job, number) for number in range(count)]


def gathered(job: Job, plan: JobPlan, **hub: Any) -> list[Node]:
    """All nodes of a job, checked in at its hub."""
    job.hub(plan, **hub)
    nodes = nodes_of(job, plan.nodes)
    for node in nodes:
        node.check_in(plan)
    return nodes


def released(nodes: list[Node]) -> Body:
    """The release that all nodes get when all is well."""
    for node in nodes:
        node.try_paths()
    nodes[0].free_port()
    releases = [node.expect("release") for node in nodes]
    assert releases == releases[:1] * len(nodes)
    return releases[0]


def only_verdict(node: Node, seconds: float = 10.0) -> tuple[str, list[int]]:
    """Code and culprits of the one that the node gets."""
    (verdict,) = node.expect("verdict", seconds)["verdicts"]
    return verdict["code"], verdict["nodes"]
