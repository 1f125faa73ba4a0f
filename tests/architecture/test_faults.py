"""No verdict without a fault that is provoked for real, and no fault that the published table leaves out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.corpus.faults import FAULTS
from tests.corpus.seed_table import SEEDS
from tests.faults import table
from tests.faults.times import seconds

from ddplaunch.agent.contract import Bundle, Event, Verdict
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE

ROOT = Path(__file__).resolve().parents[2]


def provoked() -> set[tuple[str, str]]:
    """(code, backend) of all tests, those of the corpus included."""
    seeds = {(seed.one.code, "local") for seed in SEEDS if seed.one is not None}
    return table.marked() | {(fault.code, "local") for fault in FAULTS} | seeds


def test_every_code_has_a_fault() -> None:
    """One test at least provokes it, on whatever backend, where hardware need not break for it."""
    codes = {code for code, _ in provoked()}

    assert table.RECORDED == CATALOGUE.keys() - codes
    assert set() == codes - CATALOGUE.keys()


@pytest.mark.processes  # it collects all tests
def test_make_test_provokes_every_verdict(tmp_path: Path) -> None:
    """On one backend at least, by a test that is not left to `make test-all`."""
    listed = tmp_path / "faults"
    words = ["-m", "pytest", "--collect-only", "-q", "-p", "tests.faults.plugin", f"--faults={listed}"]
    done = subprocess.run(
        [sys.executable, *words, "-p", "no:cacheprovider", "-m", "not whole", "tests"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert 0 == done.returncode, done.stdout[-4000:] + done.stderr

    codes = {json.loads(line)[0] for line in listed.read_text().splitlines()}
    assert CATALOGUE.keys() - table.RECORDED == codes


def test_the_table_knows_every_fault() -> None:
    """`make faults RUNS=0` writes down what there is, without trying it."""
    measured = table.load()["faults"]

    assert set() == provoked() - {(code, backend) for code, cells in measured.items() for backend in cells}


def test_a_mark_is_found_by_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend is told by the folder."""
    for place in ("tests/cluster/slurm", "tests/agent"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "test_x.py").write_text('@pytest.mark.fault("disk-' + 'full")\n')
    monkeypatch.setattr(table, "ROOT", tmp_path)

    assert {("disk-full", "slurm"), ("disk-full", "local")} == table.marked()


def test_a_measurement_replaces_that_of_its_backend() -> None:
    """A miss counts as a try and has no time; other backends stay; what nobody provokes any more goes."""
    old: table.Measured = {
        "measured": {},
        "faults": {
            "disk-full": {"local": {"tests": 1, "runs": 5, "hits": 5, "seconds": 1.0}},
            "clock-skew": {"slurm": {"tests": 1, "runs": 5, "hits": 5, "seconds": 1.0}},
        },
    }
    lines: list[table.Line] = [
        ["disk-full", "slurm", "a", None, None],
        ["disk-full", "slurm", "a", True, 2.04],
        ["disk-full", "slurm", "a", False, 9.0],
        ["port-in-use", "slurm", "b", None, None],
    ]
    new = table.merge(old, lines, ["slurm"])

    cells = [table.shown("disk-full", backend, new) for backend in table.BACKENDS]
    assert ["5/5, 1.0 s", "1/2, 2.0 s", "-"] == cells
    assert "not run" == table.shown("port-in-use", "slurm", new)
    assert "-" == table.shown("clock-skew", "slurm", new)


def told(code: str, *nodes: int, after: float = 5.0) -> Bundle:
    """Three nodes came, one a second, and the verdict after five seconds, or another number of them."""
    events = [Event(float(node), "check-in", "", node) for node in range(3)]
    verdict = Verdict.of(code, "", "gate", nodes=list(nodes))
    return Bundle(
        "job", 0, 3, 1, 0.0, 9.0, events=[*events, Event(after, "verdict", f"{code}: ")], verdicts=[verdict]
    )


@pytest.mark.parametrize(
    ("bundle", "since"),
    [
        (told("disk-full", 0), 3.0),
        (told("disk-full", 2), 4.0),
        (told("disk-full", 0, 1, 2), 3.0),
        (told("node-missing", 2), None),
        (told("disk-full", 0, after=1.0), 0.0),
    ],
)
def test_time_counts_from_the_last_healthy_node(bundle: Bundle, since: float | None) -> None:
    """A node at fault may be late for that very reason."""
    assert since == seconds(bundle, bundle.verdicts[0].code)
