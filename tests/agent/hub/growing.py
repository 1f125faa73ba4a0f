"""A job of four nodes of which two run, its hub's sessions, and a clock."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from tests.agent.hub.gates import Client, check_in, paths

from ddplaunch.agent.contract import (
    REGROUP,
    Beat,
    CheckResult,
    GatePlan,
    JobPlan,
    Phase,
    RankBeat,
    RendezvousSettings,
    Verdict,
)
from ddplaunch.agent.contract.messages import CheckingIn, Finished, Heartbeat, Join, Message
from ddplaunch.agent.hub import membership, recovery
from ddplaunch.agent.hub.gate import GateSession
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.membership import Newcomers
from ddplaunch.agent.hub.run import RunSession

TIMEOUT = 40.0
MISSING = [Verdict.of("node-missing", "it never came", "gate")]


class Job:
    """Four nodes of which two suffice, and run: 0 and 1. And a clock."""

    def __init__(self, folder: Path, newcomers: bool = True) -> None:
        gate = GatePlan(timeout=TIMEOUT)
        self.folder = folder
        self.plan = JobPlan(
            "job", 4, 1, [], ["train.py"], min_nodes=2, newcomers=newcomers or None, gate=gate
        )
        self.now, self.step = 1000.0, 0
        self.record = JobRecord(self.plan, str(folder), 0)
        for node in (0, 1):
            self.record.check_ins[node] = check_in(node)
        membership.leave_out(self.record, {2, 3}, MISSING)
        self.record.agreed = RendezvousSettings("10.0.0.1", 29500, nodes=2)
        self.record.gate_passed = True
        self.record.enter(Phase.RENDEZVOUS)
        self.serve()
        self.gate.resume()
        for node in (0, 1):
            self.joins(node)

    def serve(self) -> None:
        """A hub's sessions, as `hub` makes them."""
        self.run = RunSession(self.plan, self.record, clock=lambda: self.now)
        self.newcomers = Newcomers(self.record, self.run, clock=lambda: self.now)
        mine = self.newcomers if self.plan.newcomers else None
        self.gate = GateSession(self.plan, self.record, clock=lambda: self.now, newcomers=mine)
        self.gates, self.wires = [Client() for _ in range(4)], [Client() for _ in range(4)]

    def again(self) -> None:
        """The next attempt, of another hub; all supervisors have gone."""
        self.record.save()
        before = recovery.read_status(str(self.folder))
        self.record.close()
        self.record = JobRecord(self.plan, str(self.folder), 0, self.record.regroups + 1)
        recovery.restore_members(self.record, before)
        self.serve()

    def comes(self, node: int, *checks: CheckResult, **changes: Any) -> None:
        self.at_gate(node, CheckingIn(check_in(node, *checks, **{"nodes": self.plan.nodes, **changes})))

    def at_gate(self, node: int, message: Message) -> None:
        asyncio.run(self.gate.received(self.gates[node], message))  # type: ignore[arg-type]

    def says(self, node: int, message: Message) -> None:
        asyncio.run(self.run.received(self.wires[node], message))  # type: ignore[arg-type]

    def joins(self, node: int, regroups: int = 0) -> None:
        self.says(node, Join(node, f"n{node}", 1, time.time(), regroups))

    def goes(self, node: int) -> None:
        """A gate's connection is gone, and its process with it."""
        for handler in (self.newcomers, self.gate, self.run):
            asyncio.run(handler.lost(self.gates[node]))  # type: ignore[arg-type]

    def passes(self, seconds: float, but: int | None = None) -> None:
        """Time goes by, in which the ranks make progress; `but`: a node that sends nothing."""
        end = self.now + seconds
        while self.now < end:
            self.now += 0.5
            self.step += 1
            for node in {0, 1} - {but}:
                if self.wires[node].node is not None and not self.wires[node].got("end"):
                    moving = RankBeat(node, 0, 1000 + node, True, "running", 0.1, 0.1, completed=self.step)
                    self.says(node, Heartbeat(Beat(node, "running", time.time(), [moving])))
            for handler in (self.newcomers, self.gate, self.run):
                asyncio.run(handler.tick(self.now))

    def ends_attempt(self) -> None:
        for node in (0, 1):
            self.says(node, Finished(REGROUP))
        self.passes(0.5)

    def reach(self, *nodes: int, failed: tuple[int, int] | None = None) -> None:
        """All paths between these nodes are tried; one of them may be filtered."""
        for node in nodes:
            self.at_gate(node, paths(node, nodes, failed))

    @property
    def ended_by(self) -> list[int]:
        """The codes by which the supervisors of 0 and 1 were told to end."""
        return [told["exit_code"] for wire in self.wires[:2] for told in wire.got("end")]

    @property
    def events(self) -> list[str]:
        return [event.text for event in self.record.bundle().events]

    def turned_away(self, node: int) -> list[str]:
        return [each["code"] for told in self.gates[node].got("verdict") for each in told["verdicts"]]
