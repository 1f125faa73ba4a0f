"""Marked faults of the corpus on the machines of a scheduler, submitted and diagnosed as a user does it."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.corpus import families
from tests.corpus.faults import FAULTS, Fault

from ddplaunch.agent.contract import Files
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE

PROGRAMS = Path(__file__).resolve().parents[1] / "corpus/programs"
NOTICE_AFTER = 5.0
"""Seconds, at least: there is more going on than on one machine."""
Ddplaunch = Callable[..., tuple[int, str, str]]
"""Runs `ddplaunch` with these words; returns exit code, stdout and stderr."""


def faults() -> list[Any]:
    """Parameters of a test, all of them left to `make test-all`."""
    return [
        pytest.param(
            fault,
            marks=[pytest.mark.fault(fault.code), pytest.mark.whole],
            id=fault.name,
        )
        for fault in (*FAULTS, *families.FAULTS)
        if fault.on_clusters
    ]


def layout(fault: Fault) -> tuple[int, int]:
    """How many nodes, and ranks on each: always several nodes, with as many ranks as on one machine."""
    ranks = fault.nodes * fault.nproc
    return (2, ranks // 2) if ranks % 2 == 0 else (ranks, 1)


def write(fault: Fault, folder: Path, **keys: Any) -> None:
    """Make job.yaml, with further `keys`, the program, and what it imports."""
    for name in (fault.file, "scene.py"):
        shutil.copy(PROGRAMS / name, folder)
    nodes, nproc = layout(fault)
    notice_after = max(NOTICE_AFTER, fault.notice_after)
    spec = {
        "apiVersion": "ddplaunch/v1",
        "name": fault.name.replace("_", "-"),
        "nodes": nodes,
        "nproc_per_node": nproc,
        "source": [fault.file, "scene.py"],
        "python": sys.executable,
        "command": [fault.file, *fault.arguments],
        "gate": {"skip": ["interpreter", "versions"]},  # that import torch, which other tests have tried
        "watchdog": {
            "notice_after": f"{notice_after}s",
            "kill_after": f"{2 * fault.patience * notice_after}s",
        },
    }
    (folder / "job.yaml").write_text(yaml.safe_dump({**spec, **keys}))


def check(fault: Fault, target: str, folder: Path, ddplaunch: Ddplaunch) -> None:
    """Submit it, wait for its end, ask: the cause, the ranks at fault, where they ran, their victims."""
    code, handle, said = ddplaunch("submit", str(folder / "job.yaml"), "--to", target, "--wait")
    print(said)
    assert code in (100, 105), said
    bundle = folder / Path(Files.BUNDLE).name
    _, shown, _ = ddplaunch("diagnose", handle.strip(), "--json", "--bundle", str(bundle))
    told = json.loads(shown)

    assert ("failed", CATALOGUE[fault.code].exit_code) == (told["state"], told["exit_code"])
    found = told["verdicts"][0]
    ranks, nproc = [*fault.ranks], layout(fault)[1]
    nodes = sorted({rank // nproc for rank in ranks})
    expected = (fault.code, ranks, nodes, [*fault.victims])
    assert expected == (found["code"], found["ranks"], found["nodes"], found["victims"]), found
