"""A run desk with its record and two nodes, for tests: time and connections are theirs."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from tests.agent import printed
from tests.agent.diagnosis.build import NOW, rank

from ddplaunch.agent.contract import (
    Beat,
    Bundle,
    Files,
    JobPlan,
    NodeEvidence,
    RankBeat,
    RankEvidence,
    RendezvousSettings,
    WatchdogPlan,
    codec,
    messages,
)
from ddplaunch.agent.contract.messages import Message, Way
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.run import RunSession


class Wire:
    """One session, as far as a desk sees it: what was sent to it is kept."""

    def __init__(self) -> None:
        self.node: int | None = None
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.silent_for = 0.0

    def unconfirmed(self) -> float:
        return self.silent_for

    def send(self, message: Message) -> None:
        kind, body = message.pack()
        self.sent.append((kind, json.loads(json.dumps(body))))

    def send_encoded(self, text: bytes) -> None:
        told = json.loads(text)
        self.sent.append((told["kind"], told["body"]))

    def got(self, kind: str) -> list[dict[str, Any]]:
        """Bodies of this kind, oldest first."""
        return [body for sent, body in self.sent if sent == kind]

    def bundles(self) -> list[Bundle]:
        """In the answers to who has asked for one."""
        return [printed.bundle(answer["archive"]) for answer in self.got("bundle")]


class Hub:
    """A desk with its record, two nodes of two ranks that have joined, and a clock."""

    def __init__(self, folder: Path, **plan: Any) -> None:
        values = {"nodes": 2, "nproc_per_node": 2, "watchdog": WatchdogPlan(10.0, 60.0), **plan}
        self.plan = JobPlan("digits", launch=[], command=[], **values)
        self.record = JobRecord(self.plan, str(folder), 0)
        self.record.agreed = RendezvousSettings("127.0.0.1", 29400)
        self.now = 1000.0
        self.handler = RunSession(self.plan, self.record, clock=lambda: self.now)
        self.wires = [Wire() for _ in range(self.plan.nodes)]
        for node in range(self.plan.nodes):
            self.says(node, "join", {"node": node, "host": f"n{node}", "pid": 1})

    def says(self, node: int, kind: str, body: dict[str, Any]) -> None:
        if kind == "join":
            body = {"at": time.time(), **body}
        message = messages.load(kind, body, Way.SUPERVISOR_TO_HUB, Way.COMMAND_TO_HUB)
        assert message is not None, kind
        asyncio.run(self.handler.received(self.wires[node], message))  # type: ignore[arg-type]

    def ticks(self, seconds: float) -> None:
        """Time passes, and nobody says anything."""
        for _ in range(int(seconds * 10)):
            self.now += 0.1
            asyncio.run(self.handler.tick(self.now))

    def beats(self, *ranks: RankBeat) -> None:
        """Both nodes tell of their ranks."""
        for node in range(self.plan.nodes):
            mine = [each for each in ranks if each.rank // 2 == node]
            self.says(node, "beat", {"beat": codec.dump(Beat(node, "running", NOW, mine))})
        self.ticks(0.1)

    def answers(self, node: int, *ranks: RankEvidence, kind: str = "collect", **more: Any) -> None:
        """The node's evidence for the last request that it got."""
        evidence = NodeEvidence(node, f"n{node}", NOW, "running", list(ranks), **more)
        body = {"id": self.wires[node].got(kind)[-1]["id"], "evidence": codec.dump(evidence)}
        self.says(node, "evidence", body)

    def both_answer(self, first: RankEvidence | None = None) -> None:
        """All ranks stand in a collective, but for the `first` where it does not."""
        self.answers(0, first or rank(0), rank(1))
        self.answers(1, rank(2), rank(3))

    def death(self, node: int, evidence: RankEvidence) -> None:
        self.says(node, "death", {"node": node, "rank": codec.dump(evidence)})

    def finish(self, *codes: int) -> None:
        """Each node says how it ended."""
        for node, code in enumerate(codes):
            self.says(node, "finished", {"node": node, "exit_code": code})
        self.ticks(0.2)

    def fails(self, node: int) -> None:
        """The node's launch command has ended with a failure."""
        self.says(node, "finished", {"node": node, "exit_code": 40})
        self.ticks(0.2)

    def agents_decide(self, least: int) -> None:
        """torchrun's agents go on with so few nodes."""
        for node in range(self.plan.nodes):
            told = Beat(node, "running", NOW, [BUSY[2 * node]], least_nodes=least)
            self.says(node, "beat", {"beat": codec.dump(told)})

    def starts_again(self, node: int, attempt: int, *ranks: RankBeat) -> None:
        """The node's launch command has started these ranks in the place of others."""
        self.says(
            node, "beat", {"beat": codec.dump(Beat(node, "running", NOW, list(ranks), attempt=attempt))}
        )
        self.ticks(0.1)

    @property
    def events(self) -> list[str]:
        path = Path(self.record.path(Files.EVENTS))
        lines = path.read_text("utf-8").splitlines() if path.exists() else []  # else nothing has happened
        return [json.loads(line)["text"] for line in lines]


def beat(number: int, stuck: float, waits: bool = True) -> RankBeat:
    """A rank that stands still and, mostly, waits."""
    return RankBeat(number, number % 2, 1000 + number, True, "running", stuck, stuck, waits, completed=16)


HUNG = [beat(0, 11, waits=False), beat(1, 11), beat(2, 11), beat(3, 11)]
BUSY = [beat(number, 0, waits=False) for number in range(4)]
