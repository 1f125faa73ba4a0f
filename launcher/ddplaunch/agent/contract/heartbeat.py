"""The heartbeat of a supervisor: what each rank of its node does, in a few words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

from ddplaunch.agent.contract.evidence import Exited, RankPace
from ddplaunch.agent.contract.words import PhaseName


@dataclass(frozen=True)
class RankBeat:
    rank: int
    local_rank: int
    pid: int
    alive: bool
    phase: PhaseName
    stuck_for: float  # seconds since it last did something
    still_for: float  # seconds since it last did something or computed
    waits: bool = False  # its main thread is in a collective or in the rendezvous
    makes_communicator: bool = False  # NCCL's first, in its first collective
    completed: int = 0  # collectives completed, all groups
    exit: Optional[Exited] = None
    timeout: Optional[float] = None  # seconds for which torch lets it wait; None: it has no group


@dataclass(frozen=True)
class Beat:
    """The heartbeat that every supervisor sends about once a second."""

    node: int
    phase: PhaseName
    at: float
    ranks: list[RankBeat] = field(default_factory=list)
    paces: list[RankPace] = field(default_factory=list)  # of living ranks; in one beat of ten or so
    attempt: int = 0  # how often the launch command has started ranks in the place of others
    least_nodes: Optional[int] = None  # with how few nodes torchrun goes on; None: it needs all of them
