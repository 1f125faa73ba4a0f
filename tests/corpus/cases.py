"""All programs of the corpus under one name each: faults, healthy jobs, seeds with and without theirs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.corpus import families
from tests.corpus.faults import FAULTS, HEALTHY, Fault, Healthy
from tests.corpus.seed_table import MPIRUN, PYTHON, SEEDS, Said, Seed

PROGRAMS = Path(__file__).resolve().parent
PORT_TAKEN = "seed_port_taken"
FUNCTIONAL_LOGS = "functional_logs"
"""The one that finds its port held."""


@dataclass(frozen=True)
class Case:
    """A program as it is started, and what is true of it."""

    name: str
    job: Fault | Healthy

    @property
    def healthy(self) -> bool:
        """Whether no word may be said about it."""
        return isinstance(self.job, Healthy)

    @property
    def code(self) -> str:
        """That of the true cause; empty for a healthy job."""
        return self.job.code if isinstance(self.job, Fault) else ""

    @property
    def ranks(self) -> tuple[int, ...]:
        """Those at fault."""
        return self.job.ranks if isinstance(self.job, Fault) else ()

    @property
    def world(self) -> int:
        """How many ranks there are."""
        return self.job.nodes * self.job.nproc

    @property
    def notes_its_stop(self) -> bool:
        """Whether its program notes the moment of its fault."""
        return not self.healthy and any("scene.stops()" in text for text in self._texts())

    @property
    def since(self) -> tuple[int, int]:
        """The first torch with which it fails as the case says.

        Under torchrun, rank 0 opens a store at a port of its own since 2.15. FSDP2 is at its place since 2.6,
        DTensor since 2.5.
        """
        if self.name == PORT_TAKEN:
            return 2, 15
        if self.name == FUNCTIONAL_LOGS:
            return 2, 5
        return (2, 6) if any("fsdp import fully_shard" in text for text in self._texts()) else (2, 4)

    def _texts(self) -> Iterator[str]:
        """Its program's. A wrapper is started with the program's file."""
        for file in (self.job.file, *(word for word in self.job.arguments if word.endswith(".py"))):
            yield (PROGRAMS / self.job.folder / file).read_text()

    @property
    def shown(self) -> str:
        """Its name, with the words it is started with."""
        return " ".join((self.name, *self.job.arguments))


def seed_job(seed: Seed, said: Said | None) -> Fault | Healthy:
    """The seed's program as a job on one machine; with its fault where something is to be said."""
    how = {"nproc": seed.ranks, "mpi": seed.launcher == MPIRUN, "plain": seed.launcher == PYTHON}
    what = {"program": seed.name, "folder": "seeds"}
    if said is None:
        return Healthy(seed.name, **how, **what)  # type: ignore[arg-type]
    return Fault(seed.name, said.code, said.ranks, (), arguments=("fault",), **how, **what)  # type: ignore[arg-type]


def right_on_one_machine(seed: Seed) -> Healthy:
    """What is wrong on two machines only works here."""
    return Healthy(seed.name, nproc=seed.ranks, program=seed.name, folder="seeds", arguments=("fault",))


def cases() -> list[Case]:
    """Faults first."""
    faults = [Case(fault.name, fault) for fault in (*FAULTS, *families.FAULTS)]
    faults += [Case(f"seed_{seed.name}", seed_job(seed, seed.one)) for seed in SEEDS if seed.one is not None]
    healthy = [Case(f"healthy_{each.name}", each) for each in (*HEALTHY, *families.HEALTHY)]
    healthy += [Case(f"seed_{seed.name}_right", seed_job(seed, None)) for seed in SEEDS]
    healthy += [
        Case(f"seed_{seed.name}_on_one", right_on_one_machine(seed)) for seed in SEEDS if seed.one is None
    ]
    return [*faults, *healthy]
