"""Clients that know the job's key and send nonsense: the hub's desks, with a clock of our own."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
import shutil
from collections.abc import Coroutine
from pathlib import Path
from random import Random
from typing import Any, cast

from tests.agent.hub.sessions import Wire, beat
from tests.fuzz import evidence, mutate
from tests.fuzz.target import Target

from ddplaunch.agent.contract import (
    Beat,
    CheckIn,
    GatePlan,
    JobPlan,
    MeshResult,
    SmokeRank,
    Verdict,
    WatchdogPlan,
    codec,
    messages,
)
from ddplaunch.agent.contract.messages import AskStatus, Way
from ddplaunch.agent.hub.gate import GateSession
from ddplaunch.agent.hub.hub import ControlHandler
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.run import RunSession
from ddplaunch.agent.hub.server import MessageHandler, Session

_NODES = 2
_LONG = 30


class Client(Target):
    """A conversation of two nodes, some of whose messages are changed, left out, repeated or out of turn."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._whole = conversation()

    def make(self, random: Random) -> Any:
        """[node, kind, body], or a number of seconds that pass."""
        told = (
            list(self._whole) if random.random() < 0.7 else random.sample(self._whole, random.randint(1, 8))
        )
        for _ in range(random.randint(1, 3)):
            at = random.randrange(len(told))
            dice = random.randrange(6)
            if dice == 0:
                del told[at]
                told = told or [0.1]
            elif dice == 1:
                told.insert(at, random.choice((0.1, 3.0, 70.0, random.choice(self._whole))))
            elif isinstance(told[at], list):
                node, kind, body = told[at]
                told[at] = [node, kind, mutate.tree(random, body, 3)]
        return told[:_LONG]

    def feed(self, given: Any) -> None:
        shutil.rmtree(self._folder / "run", ignore_errors=True)
        with contextlib.redirect_stdout(io.StringIO()) as log:
            hub = _Hub(self._folder)
            try:
                for step in given:
                    hub.take(step)
                hub.stays_up()
            finally:
                hub.record.close()
        assert "Traceback" not in log.getvalue(), log.getvalue()[-2000:]


class _Hub:
    def __init__(self, folder: Path) -> None:
        plan = JobPlan(
            "digits", _NODES, 1, [], [], watchdog=WatchdogPlan(10.0, 60.0), gate=GatePlan(smoke_test=True)
        )
        self.record = JobRecord(plan, str(folder), 0)
        self.now = 1000.0
        gate = GateSession(plan, self.record, clock=lambda: self.now)
        run = RunSession(plan, self.record, clock=lambda: self.now)
        self.handlers = cast("list[MessageHandler]", [gate, run, ControlHandler(self.record, (gate, run))])
        self.wires: dict[int, _Wire | None] = dict.fromkeys(range(_NODES))

    def take(self, step: Any) -> None:
        """As the server does: a client whose message cannot be read is dropped."""
        if isinstance(step, int | float):
            self._pass(step)
            return
        node, kind, body = step
        try:
            message = messages.load(kind, body, Way.GATE_TO_HUB, Way.SUPERVISOR_TO_HUB, Way.COMMAND_TO_HUB)
            handler = next((each for each in self.handlers if isinstance(message, each.takes)), None)
            if message is None or handler is None:
                self._drop(node)
                return
            _do(handler.received(cast("Session", self._wire(node)), message))
        except codec.ContractError:
            self._drop(node)
        self._pass(0.1)

    def stays_up(self) -> None:
        """Whatever was said before: everybody is heard, and the bundle is written."""
        wire = _Wire()
        _do(self.handlers[2].received(cast("Session", wire), AskStatus()))
        assert wire.got("status")
        for node in range(_NODES):
            self._drop(node)
        self._pass(200.0)
        self.record.save()

    def _wire(self, node: int) -> _Wire:
        wire = self.wires[node] or _Wire()
        self.wires[node] = wire
        return wire

    def _drop(self, node: int) -> None:
        wire, self.wires[node] = self.wires[node], None
        if wire is not None:
            for handler in self.handlers:
                _do(handler.lost(cast("Session", wire)))

    def _pass(self, seconds: float) -> None:
        for part in (0.1, seconds / 2, seconds / 2):
            self.now += part
            for handler in self.handlers:
                _do(handler.tick(self.now))


def _do(work: Coroutine[Any, Any, None]) -> None:
    """Without an event loop: no desk waits for anything."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("a desk waits")


class _Wire(Wire):
    local = "127.0.0.1"
    peer = "127.0.0.1"


def conversation() -> list[Any]:
    """Of a job that passes its gate, trains, hangs and is ended."""
    said: list[Any] = []
    recorded = [each["evidence"] for each in evidence.bundles()[1:]]
    for node in range(_NODES):
        said += [
            [node, "here", {"node": node}],
            [node, "check-in", {"check_in": codec.dump(_check_in(node))}],
        ]
    paths = [MeshResult(0, 1, "127.0.0.1", 4001, "responder", "ok", "one of 3 tries failed")]
    for node in range(_NODES):
        said.append(
            [node, "mesh-results", {"results": codec.dump(paths * node), "passed": {"1": 1, "master": 2}}]
        )
    for node in range(_NODES):
        said.append([node, "smoke-ready", {"ports": {"gloo": 4005}}])
    for node in range(_NODES):
        ranks = [SmokeRank(node, node, "gloo", "done", 1024, 0.1, 1e6)]
        said.append([node, "smoke-results", {"ranks": codec.dump(ranks)}])
    said += [[0, "unbound", {}]]
    for node in range(_NODES):
        said.append([node, "join", {"node": node, "host": f"n{node}", "pid": 1, "at": 1.0}])
    for node in range(_NODES):
        rank = dataclasses.replace(beat(node, 11.0, waits=node == 1), rank=node)
        said.append([node, "beat", {"beat": codec.dump(Beat(node, "running", 1.0, [rank]))}])
    told = [each for job in recorded for each in job["evidence"]]
    for node in range(_NODES):
        said.append([node, "evidence", {"id": 1, "evidence": {**told[node], "node": node}}])
        said.append([node, "rendezvous", {"rank": told[node]["ranks"][0]}])
    dead = next(rank for node in told for rank in node["ranks"] if not rank["alive"])
    said += [
        12.0,
        [0, "diagnose", {}],
        [1, "stopping", {"why": "SIGTERM"}],
        [1, "death", {"rank": dead}],
        2.0,
    ]
    said += [[0, "ending", {"why": "SIGTERM"}], [1, "status", {}], [1, "stop", {"why": "cancel"}]]
    for node in range(_NODES):
        verdicts = [codec.dump(Verdict.of("launch-failed", "no such file", "launch", [node]))] * node
        said.append([node, "finished", {"node": node, "exit_code": 40 * node, "verdicts": verdicts}])
    return [*said, [0, "leave", {"why": "told to stop"}], math.pi]


def _check_in(node: int) -> CheckIn:
    found: CheckIn = codec.load(CheckIn, evidence.bundles()[0]["check_ins"][node])
    ports = {"responder": 4001, **({"master": 29500} if node == 0 else {})}
    passed = [each for each in found.checks if each.status != "fail"]
    facts = {"clock": {"at": 1.0}, "port": {"port": 29500}}
    return dataclasses.replace(
        found, nproc_per_node=1, ports=ports, checks=passed, machine=str(node), facts=facts
    )
