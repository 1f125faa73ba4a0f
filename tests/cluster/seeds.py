"""The corpus' seed programs as jobs on two machines of a scheduler, and how each is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.corpus.seed_table import MPIRUN, SEEDS, Said, Seed

from ddplaunch.agent.contract import Verdict

PROGRAMS = Path(__file__).resolve().parents[1] / "corpus/seeds"
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
"""Without both, Open MPI's mpirun starts nothing for root."""
PORT = "12355"
"""Free on machines of a cluster of our own."""


def faults(mpi: bool) -> list[Any]:
    """Parameters: each program that runs on two machines, all but a few of them left to `make test-all`."""
    return [
        pytest.param(
            seed,
            marks=[pytest.mark.fault(seed.two.code), *([pytest.mark.whole] if seed.whole else [])],
            id=seed.name,
        )
        for seed in SEEDS
        if seed.two is not None and seed.two_machines and (mpi or seed.launcher != MPIRUN)
    ]


def keys(seed: Seed, fault: bool) -> dict[str, Any]:
    """Keys of its job file, one half of its ranks on each node."""
    mpi = {"launch": "mpi"} if seed.launcher == MPIRUN else {}
    return {
        "command": ["program.py", *(["fault"] if fault else [])],
        "nproc_per_node": seed.ranks // 2,
        "env": {"SEED_PORT": PORT, **AS_ROOT},
        "watchdog": {"notice_after": "5s", "kill_after": "12s"},
        **mpi,
    }


def program(seed: Seed) -> str:
    """Its text."""
    return (PROGRAMS / f"{seed.name}.py").read_text()


def check(said: Said, verdict: Verdict) -> None:
    """The code, the ranks, and the words that show it."""
    assert (said.code, list(said.ranks)) == (verdict.code, verdict.ranks), verdict
    assert said.words in verdict.sentence, verdict
