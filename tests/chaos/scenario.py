"""One scenario: a job, and the injuries that hit it. Drawn from one seed; pure."""

from __future__ import annotations

import random
from dataclasses import dataclass

JOBS = ("healthy", "slow", "hang", "raise", "exit", "kill", "gate")
"""Kinds of jobs; see `jobs.KINDS`."""
_JOB_WEIGHTS = (6, 2, 4, 3, 2, 2, 1)

KILL, STOP, PAUSE = "kill", "stop", "pause"
"""SIGKILL; SIGSTOP for good; SIGSTOP for a while."""
FILL, JUMP, CUT, AWAY = "fill", "jump", "cut", "away"
"""The state disk is full; our clocks jump; a node's network is cut; the scheduler does not answer."""

CLI, HOST, HUB, GATE, GUARDIAN = "cli", "host", "hub", "gate", "guardian"
SUPERVISOR, TORCHRUN, RANK, NODE = "supervisor", "torchrun", "rank", "node"
"""The targets of an injury. `node` is all of a node's processes at once, Slurm's `host` the batch script."""
SRUN, MACHINE = "srun", "machine"
"""Targets on Slurm: the steps' srun, and a whole node, its daemons included."""
DISK, CLOCK, NETWORK, SCHEDULER = "disk", "clock", "network", "scheduler"
"""Targets that are no processes."""

PHASES = {"gate": "the first gate lives", "ranks": "the first rank lives"}
"""Moments at which the delay of an injury begins."""


def _on(action: str, weights: dict[str, int]) -> dict[tuple[str, str], int]:
    return {(action, target): weight for target, weight in weights.items()}


ATTACKS = {
    "local": {
        **_on(
            KILL,
            {CLI: 1, HOST: 2, HUB: 4, GATE: 2, GUARDIAN: 3, SUPERVISOR: 3, TORCHRUN: 3, RANK: 4, NODE: 3},
        ),
        **_on(STOP, {HOST: 1, HUB: 2, GATE: 1, GUARDIAN: 1, SUPERVISOR: 2, TORCHRUN: 1, RANK: 3, NODE: 2}),
        **_on(PAUSE, {CLI: 1, HOST: 2, HUB: 3, GATE: 1, GUARDIAN: 2, SUPERVISOR: 3}),
        **_on(PAUSE, {TORCHRUN: 2, RANK: 2, NODE: 3}),
        (FILL, DISK): 3,
        (JUMP, CLOCK): 4,
        (CUT, NETWORK): 2,
    },
    "slurm": {
        **_on(KILL, {CLI: 1, HOST: 2, HUB: 4, GATE: 2, GUARDIAN: 3, SUPERVISOR: 3, SRUN: 2}),
        **_on(KILL, {TORCHRUN: 2, RANK: 3, NODE: 2, MACHINE: 3}),
        **_on(STOP, {HUB: 2, SUPERVISOR: 2, RANK: 3, MACHINE: 2}),
        **_on(PAUSE, {HOST: 2, HUB: 3, SUPERVISOR: 3, SRUN: 2, MACHINE: 3}),
        (FILL, DISK): 2,
        (CUT, NETWORK): 4,
        (AWAY, SCHEDULER): 4,
    },
    "kubernetes": {
        **_on(KILL, {CLI: 1, HUB: 4, GATE: 2, GUARDIAN: 2, SUPERVISOR: 3, TORCHRUN: 2, RANK: 3, NODE: 2}),
        **_on(STOP, {RANK: 2}),
        **_on(PAUSE, {HUB: 3, SUPERVISOR: 3, MACHINE: 3}),
        (CUT, NETWORK): 3,
        (AWAY, SCHEDULER): 4,
    },
}
"""Backend to what may be done there, with how often."""


@dataclass(frozen=True)
class Injury:
    """`seconds`: until it is healed; None: never. `jump`: of the clock, in seconds."""

    action: str
    target: str
    phase: str
    delay: float
    node: int = 0
    rank: int = 0
    seconds: float | None = None
    jump: float = 0.0

    def __str__(self) -> str:
        which = {RANK: f" {self.rank}", **dict.fromkeys(PER_NODE, f" of node {self.node}")}.get(
            self.target, ""
        )
        which = f" {self.node}" if self.target == NODE else which
        what = f"clock by {self.jump:+.0f} s" if self.target == CLOCK else f"{self.target}{which}"
        healed = "" if self.seconds is None else f" for {self.seconds:.0f} s"
        return f"{self.action} {what}{healed}, {self.delay:.1f} s after {PHASES[self.phase]}"


PER_NODE = (GATE, GUARDIAN, SUPERVISOR, TORCHRUN, NODE, MACHINE)


@dataclass(frozen=True)
class Scenario:
    """`culprit`: the rank that goes wrong or is slow. `torch`: the real one, which costs seconds."""

    seed: int
    backend: str
    job: str
    nodes: int
    nproc: int
    culprit: int
    torch: bool
    injuries: tuple[Injury, ...] = ()

    @property
    def world(self) -> int:
        return self.nodes * self.nproc

    def __str__(self) -> str:
        torch = "torch" if self.torch else "stand-in"
        shape = f"{self.nodes} x {self.nproc}, {torch}"
        rank = f" at rank {self.culprit}" if self.job not in ("healthy", "gate") else ""
        return f"{self.job}{rank} ({shape}): " + ("; ".join(map(str, self.injuries)) or "no injury")


def draw(seed: int, backend: str) -> Scenario:
    """The scenario of this seed on this backend: the same in every process."""
    chance = random.Random(f"{backend} {seed}")
    kinds = JOBS[:-1] if backend == "kubernetes" else JOBS  # its image has no torch that the gate could see
    (job,) = chance.choices(kinds, _JOB_WEIGHTS[: len(kinds)])
    nodes = chance.choice((1, 2, 2)) if backend == "local" else 2
    nproc = 2 if nodes == 1 else chance.choice((1, 1, 2))
    torch = backend == "local" and chance.random() < 0.12
    count = chance.choices((0, 1, 2), (1, 12, 6))[0]
    injuries = [_injury(chance, backend, nodes, nproc, torch) for _ in range(count)]
    culprit = chance.randrange(nodes * nproc)
    return Scenario(seed, backend, job, nodes, nproc, culprit, torch, tuple(injuries))


def _injury(chance: random.Random, backend: str, nodes: int, nproc: int, torch: bool) -> Injury:
    attacks = ATTACKS[backend]
    ((action, target),) = chance.choices(list(attacks), list(attacks.values()))
    phase = "gate" if target == GATE or chance.random() < 0.2 else "ranks"
    latest = 0.3 if target == GATE else 1.0 if phase == "gate" else 6.0
    delay = round(
        chance.triangular(0.0, latest, latest / 4) + (4.0 if torch and phase == "ranks" else 0.0), 1
    )
    rank = chance.randrange(nodes * nproc)
    seconds = round(chance.uniform(0.5, 6.0), 1) if action in (PAUSE, CUT, AWAY) else None
    if action == FILL and chance.random() < 0.5:
        seconds = round(chance.uniform(1.0, 5.0), 1)
    jump = chance.choice((-86400.0, -120.0, -5.0, 5.0, 120.0, 86400.0)) if action == JUMP else 0.0
    return Injury(action, target, phase, delay, chance.randrange(nodes), rank, seconds, jump)
