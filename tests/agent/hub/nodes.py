"""Nodes that speak to a real hub."""

from __future__ import annotations

import time
from typing import Any

from tests.agent.gate.jobs import Job
from tests.busy import BUSY

from ddplaunch.agent.contract import (
    CheckIn,
    JobPlan,
    codec,
)
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

    def pass_mesh(self) -> Body:
        """Report all paths as good, give up the master port when asked, and return the release."""
        self.try_paths()
        if self.number == 0:
            self.expect("unbind")
            self.channel.send("unbound", {})
        return self.expect("release")


def nodes_of(job: Job, count: int) -> list[Node]:
    """Connected, not yet checked in."""
    return [Node(job, number) for number in range(count)]
