"""Many nodes at one hub, in one process: each with a connection of its own, and the words of a gate.

Run as `crowd.py HUB_PORT KEY FIRST LAST CHECK_IN [CUT]`: for nodes FIRST to LAST - 1, each of whose check-in
is that of the file CHECK_IN under its own name and address. With CUT, nodes from there on and those before do
not reach each other. Prints when each stage was over, in seconds since its beginning.
"""

from __future__ import annotations

import json
import select
import sys
import time
from dataclasses import replace
from typing import Any

from ddplaunch.agent.contract import CheckIn, MeshResult, MeshTask, Outcome, codec
from ddplaunch.agent.diagnosis.gate import paths
from ddplaunch.agent.transport.protocol import Channel

PATIENCE = 120.0
"""Seconds for each stage."""


class Crowd:
    """Nodes by the file descriptors of their channels."""

    def __init__(self, port: int, key: bytes, nodes: range, check_in: CheckIn, cut: int) -> None:
        self.port, self.key, self.nodes, self.check_in, self.cut = port, key, nodes, check_in, cut
        self.channels: dict[int, tuple[int, Channel]] = {}
        self.ended: dict[str, int] = {}
        self.longest = 0  # bytes of the largest message
        self.started = time.monotonic()
        self.stages: dict[str, float] = {}

    def run(self) -> dict[str, Any]:
        poll = select.poll()
        for node in self.nodes:
            deadline = time.monotonic() + PATIENCE
            channel = Channel.connect("127.0.0.1", self.port, self.key, 0, deadline)
            self.channels[channel.fileno()] = node, channel
            poll.register(channel, select.POLLIN)
            self._check_in(node, channel)
        self.stages["check-ins"] = self._now()
        while len(self.nodes) > sum(self.ended.values()):
            ready = poll.poll(PATIENCE * 1000)
            if not ready:
                raise SystemExit(f"nothing was said for {PATIENCE} s: {self.stages} {self.ended}")
            for number, _ in ready:
                node, channel = self.channels[number]
                message = channel.receive(0)
                while message is not None and not self._heard(node, channel, *message):
                    message = channel.receive(0)
                if message is not None:
                    poll.unregister(channel)
        self.stages["ended"] = self._now()
        for _, channel in self.channels.values():
            channel.close()
        return {"stages": self.stages, "ended": self.ended, "longest": self.longest}

    def _now(self) -> float:
        return round(time.monotonic() - self.started, 3)

    def _check_in(self, node: int, channel: Channel) -> None:
        ports = {"responder": 30000 + node % 30000, **({"master": 29500} if node == 0 else {})}
        address = f"10.{node >> 16}.{node >> 8 & 255}.{node & 255}"
        mine = replace(
            self.check_in,
            node=node,
            host=f"n{node}",
            address=address,
            ports=ports,
            machine=f"machine {node}",
            at=time.time(),
            facts={**self.check_in.facts, **self._network(node, address)},
        )
        channel.send("here", {"node": node})
        channel.send("check-in", {"check_in": codec.dump(mine)}, PATIENCE)

    def _network(self, node: int, address: str) -> dict[str, Any]:
        """As of a machine of its own."""
        names = {**self.check_in.facts.get("names", {}), "own": f"n{node}", "interfaces": [["eth0", address]]}
        names["addresses"] = {f"n{node}": [address]}
        taken = self.check_in.facts.get("interfaces") or {}
        return {"names": names, "interfaces": {**taken, "takes": [["eth0", address]]} if taken else {}}

    def _heard(self, node: int, channel: Channel, kind: str, body: dict[str, Any]) -> bool:
        """Answer; whether this is over for the node."""
        self.longest = max(self.longest, len(json.dumps(body)))
        if kind == "mesh":
            self.stages.setdefault("mesh", self._now())
            tasks = codec.load(list[MeshTask], body["tasks"])
            told, passed, links = paths.parted([self._tried(node, task) for task in tasks])
            channel.send(
                "mesh-results", {"results": codec.dump(told), "passed": passed, "links": links}, PATIENCE
            )
        elif kind == "unbind":
            channel.send("unbound", {})
        elif kind in ("release", "verdict"):
            self.ended[kind] = self.ended.get(kind, 0) + 1
            return True
        return False

    def _tried(self, node: int, task: MeshTask) -> MeshResult:
        parted = self.cut and (node < self.cut) != (task.peer < self.cut)
        outcome: Outcome = "timeout" if parted else "ok"
        return MeshResult(node, task.peer, task.address, task.port, task.what, outcome, seconds=0.01)


def main() -> None:
    """Be the nodes that the command line names."""
    port, key, first, last, file = sys.argv[1:6]
    cut = int(sys.argv[6]) if len(sys.argv) > 6 else 0
    nodes = range(int(first), int(last))
    crowd = Crowd(int(port), key.encode(), nodes, codec.read(CheckIn, file), cut)
    print(json.dumps(crowd.run()))


if __name__ == "__main__":
    main()
