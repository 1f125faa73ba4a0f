"""What must hold of a job that has ended, whatever hit it: facts in, complaints out. Pure.

ENDS is the table to be judged by a reader: what else than its own end each injury may bring a job to.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.chaos import scenario as names
from tests.chaos.jobs import KINDS
from tests.chaos.scenario import (
    AWAY,
    CLI,
    CLOCK,
    CUT,
    DISK,
    FILL,
    GATE,
    GUARDIAN,
    HOST,
    HUB,
    JUMP,
    KILL,
    MACHINE,
    NETWORK,
    NODE,
    PAUSE,
    RANK,
    SCHEDULER,
    SRUN,
    STOP,
    SUPERVISOR,
    TORCHRUN,
    Injury,
    Scenario,
)

SUCCEEDED, FAILED, HANG, AT_GATE = "succeeded", "failed", "hang", "gate"
STOPPED, LOST, CANCELLED = "stopped", "lost", "cancelled"
"""How a job ends. `cancelled`: it did not end by itself, and `ddplaunch cancel` ended it."""

ENDS: dict[tuple[str, str], set[str]] = {
    # Ours, and nothing depends on it: the job comes to its own end.
    (KILL, CLI): set(),
    (PAUSE, CLI): set(),
    (KILL, HUB): set(),
    (STOP, HUB): set(),
    (PAUSE, HUB): set(),
    (PAUSE, HOST): set(),
    (PAUSE, GATE): set(),
    (PAUSE, GUARDIAN): set(),
    (PAUSE, SUPERVISOR): set(),
    (FILL, DISK): {AT_GATE},  # which looks for room; later none is needed
    (JUMP, CLOCK): set(),
    (AWAY, SCHEDULER): set(),
    # Ours, and the ranks are tied to it, so that none outlives it.
    (KILL, HOST): {LOST},
    (KILL, GUARDIAN): {FAILED, AT_GATE},  # the latter where its supervisor had not joined yet
    (KILL, SUPERVISOR): {FAILED, AT_GATE},
    (KILL, GATE): {AT_GATE},
    # Ours, and it cannot let go of what it holds: a person must cancel the job.
    (STOP, HOST): {CANCELLED},
    (STOP, GUARDIAN): {FAILED, CANCELLED},
    (STOP, SUPERVISOR): {FAILED, CANCELLED},
    (STOP, GATE): {AT_GATE},
    # The user's.
    (KILL, TORCHRUN): {FAILED},
    (KILL, RANK): {FAILED},
    (KILL, NODE): {FAILED, HANG, AT_GATE},  # the latter where its supervisor had not joined yet
    (STOP, TORCHRUN): {FAILED, HANG, CANCELLED},
    (STOP, RANK): {HANG},
    (STOP, NODE): {FAILED, HANG, CANCELLED},
    (PAUSE, TORCHRUN): set(),
    (PAUSE, RANK): set(),
    (PAUSE, NODE): set(),
    (CUT, NETWORK): {FAILED, HANG},
    # On Slurm: the steps' own srun, and machines with all that runs there.
    (KILL, SRUN): {FAILED, LOST},  # the latter at the gate: then nothing is heard of the nodes
    (PAUSE, SRUN): set(),
    (KILL, MACHINE): {FAILED, AT_GATE, LOST},
    (STOP, MACHINE): {FAILED, AT_GATE, HANG, CANCELLED, LOST},  # Slurm takes it for dead
    (PAUSE, MACHINE): set(),
}
"""The ends that an injury may bring a job to, besides its own, which is always right."""
CODES = {SUCCEEDED: 0, FAILED: 100, HANG: 105, AT_GATE: 104, STOPPED: 103, CANCELLED: 103}
"""The exit code of `ddplaunch status` for each end; `lost` has 100 or 103."""
ABSTAINS = frozenset(["unknown", "node-evicted"])
"""Verdicts that accuse nobody of the job."""
_NO_BUNDLE = {(KILL, HOST), (STOP, HOST), (KILL, HUB), (STOP, HUB), (KILL, MACHINE), (STOP, MACHINE)}
"""With these, no process may be left to write it."""
_UNJUDGED = {(KILL, GATE), (KILL, GUARDIAN), (KILL, SUPERVISOR), (KILL, NODE)}
"""On Kubernetes they end a container, and with it the job, maybe before its hub can judge."""


@dataclass(frozen=True)
class Accused:
    """A verdict, as far as the oracle reads it."""

    code: str
    nodes: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Facts:
    """The job after its end.

    `landed`: numbers of the injuries that found their target. `done`: whether every rank did all its steps.
    `left`: processes, and files in /tmp and /dev/shm. `late`: it did not end in time, and was cancelled.
    """

    end: str
    status_code: int
    verdicts: tuple[Accused, ...]
    landed: tuple[int, ...]
    done: bool
    bundle: bool
    late: bool = False
    left: tuple[str, ...] = ()
    seconds: float = 0.0
    said: tuple[str, ...] = field(default=())
    """Tracebacks of ours, wherever they were printed."""


def complaints(scenario: Scenario, facts: Facts) -> list[str]:
    """All that is wrong; empty when all is as it must be."""
    landed = [scenario.injuries[number] for number in facts.landed]
    return [
        *_ends(scenario, landed, facts),
        *_accuses(scenario, landed, facts),
        *_keeps(scenario, landed, facts),
        *(f"left: {each}" for each in facts.left),
        *(f"traceback: {each}" for each in facts.said),
    ]


def expected(scenario: Scenario, landed: list[Injury]) -> set[str]:
    """How the job may end."""
    found = {KINDS[scenario.job].ends}
    without_hub = any(_kind(each) == (STOP, HUB) for each in landed)
    for each in landed:
        found |= ENDS[_kind(each)]
        if without_hub and FAILED in ENDS[_kind(each)]:
            found.add(HANG)  # another node's ranks wait for those that are gone, and nobody can tell it so
        if scenario.backend == "kubernetes" and _kind(each) in _UNJUDGED:
            found.add(LOST)
        if each.action == FILL and each.phase == "gate":
            found.add(FAILED)  # no rank has begun, and none can without its files
    return found


def right(scenario: Scenario, facts: Facts) -> bool:
    """Whether the verdicts name who is at fault; else they abstain, or complaints say otherwise."""
    allowed, _ = _guilty(scenario, [scenario.injuries[number] for number in facts.landed])
    return any(allowed & set(each.ranks) for each in facts.verdicts)


def _kind(injury: Injury) -> tuple[str, str]:
    return injury.action, injury.target


def _ends(scenario: Scenario, landed: list[Injury], facts: Facts) -> list[str]:
    wanted = expected(scenario, landed)
    found = []
    if facts.late and CANCELLED not in wanted:
        found.append("it did not end by itself")
    elif facts.end not in wanted:
        found.append(f"ended as {facts.end}, not as {' or '.join(sorted(wanted))}")
    if facts.end == SUCCEEDED and not facts.done:
        found.append("succeeded, and some rank has not done its steps")
    if facts.end in (FAILED, HANG) and facts.done and not any(_hurts(each) for each in landed):
        found.append(f"{facts.end}, and every rank has done its steps")
    codes = {CODES.get(facts.end, 100), *([103] if facts.end == LOST else [])}
    if facts.status_code not in codes:
        found.append(f"{facts.end}, and `status` ends with {facts.status_code}")
    return found


def _keeps(scenario: Scenario, landed: list[Injury], facts: Facts) -> list[str]:
    excused = any(_kind(each) in _NO_BUNDLE for each in landed)
    excused |= facts.end == LOST and LOST in expected(scenario, landed)
    if scenario.backend == "kubernetes" and (KILL, CLI) in map(_kind, landed):
        # Kubernetes deletes the hub's pod when another pod fails: only who watches can keep what it wrote.
        excused |= any(_hurts(each) for each in landed)
    return [] if facts.bundle or excused else ["no readable bundle"]


def _hurts(injury: Injury) -> bool:
    return bool(ENDS[_kind(injury)])


def _accuses(scenario: Scenario, landed: list[Injury], facts: Facts) -> list[str]:
    if facts.end == SUCCEEDED and facts.verdicts:
        return [f"succeeded, with a verdict: {each.code}" for each in facts.verdicts]
    ranks, nodes = _guilty(scenario, landed)
    found = []
    for each in facts.verdicts:
        innocent = sorted(set(each.ranks) - ranks)
        strangers = sorted(set(each.nodes) - nodes)
        if each.code not in ABSTAINS and (innocent or strangers):
            who = f"ranks {innocent}" if innocent else f"nodes {strangers}"
            found.append(f"{each.code} accuses {who}")
    return found


def _guilty(scenario: Scenario, landed: list[Injury]) -> tuple[set[int], set[int]]:
    """Ranks and nodes that a verdict may name: who goes wrong by itself, and who was hit."""
    ranks = {scenario.culprit} if KINDS[scenario.job].accused else set()
    nodes = set(range(scenario.nodes)) if scenario.job == "gate" else set()
    for each in landed:
        if each.target == RANK:
            ranks.add(each.rank)
        elif each.target == DISK or (each.target == NETWORK and scenario.backend == "local"):
            nodes |= set(range(scenario.nodes))  # one machine
        elif each.target in (NETWORK, MACHINE) and scenario.backend == "kubernetes":
            nodes |= set(range(scenario.nodes))  # the scheduler has chosen who is where
        elif each.target in (*names.PER_NODE, NETWORK):
            nodes.add(each.node)
            if each.target in (NODE, MACHINE, TORCHRUN) and each.action != PAUSE:
                ranks |= set(range(each.node * scenario.nproc, (each.node + 1) * scenario.nproc))
    return ranks, nodes | {rank // scenario.nproc for rank in ranks}
