"""The programs of `seeds/`, each with its fault and without, on this machine."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.corpus import harness
from tests.corpus.cases import right_on_one_machine, seed_job
from tests.corpus.seed_table import SEEDS, Seed
from tests.ports import own_port

from ddplaunch.agent.contract import Exit

AT_CALL = ("dns-not-found", "master-is-loopback", "rendezvous-overridden", "rank-duplicate")
"""What is said of the call, which then waits for many minutes."""

pytestmark = [pytest.mark.corpus, pytest.mark.timeout(600)]


def _left_out(seed: Seed) -> list[pytest.MarkDecorator]:
    return [pytest.mark.whole] if seed.whole else []


@pytest.fixture(name="port")
def _port(request: pytest.FixtureRequest) -> Iterator[str]:
    """A port that is free, or held by this process where the program shall find it so."""
    port = own_port()
    with contextlib.ExitStack() as held:
        if (
            request.node.originalname == "test_the_fault_of_a_seed_is_told"
            and request.node.callspec.id == "port_taken"
        ):
            held.enter_context(socket.create_server(("", port)))
        yield str(port)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=[pytest.mark.fault(seed.one.code), *_left_out(seed)], id=seed.name)
        for seed in SEEDS
        if seed.one is not None
    ],
)
def test_the_fault_of_a_seed_is_told(seed: Seed, port: str, tmp_path: Path) -> None:
    """The right code and ranks, with the words that show it; a rendezvous is judged at the call."""
    said = seed.one
    assert said is not None
    outcome = harness.run(seed_job(seed, said), tmp_path / "job", {"SEED_PORT": port})

    assert outcome.verdicts, outcome.output[-4000:]
    verdict = outcome.verdicts[0]
    assert said.code == verdict.code, verdict
    if not (seed.may_abstain and verdict.confidence <= 0.5):
        assert said.words in verdict.sentence, verdict
        if seed.first_ends_others:
            assert set() < set(verdict.ranks) <= set(said.ranks), verdict
        else:
            assert list(said.ranks) == verdict.ranks, verdict
    assert [] == outcome.survivors
    if said.code in AT_CALL:
        assert outcome.noticed, outcome.alarms


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=_left_out(seed), id=seed.name) for seed in SEEDS],
)
def test_a_seed_without_its_fault_ends_well(seed: Seed, port: str, tmp_path: Path) -> None:
    """Without its fault it ends well, and not a word is said."""
    outcome = harness.run(seed_job(seed, None), tmp_path / "job", {"SEED_PORT": port})

    assert ([], [], Exit.OK) == (outcome.alarms, outcome.verdicts, outcome.exit_code), outcome.output[-4000:]


@pytest.mark.whole
@pytest.mark.parametrize("seed", [seed for seed in SEEDS if seed.one is None], ids=lambda seed: seed.name)
def test_what_works_on_one_machine_is_left_alone_there(seed: Seed, port: str, tmp_path: Path) -> None:
    """What is wrong on two machines only works here, and nothing is said."""
    outcome = harness.run(right_on_one_machine(seed), tmp_path / "job", {"SEED_PORT": port})

    assert ([], [], Exit.OK) == (outcome.alarms, outcome.verdicts, outcome.exit_code), outcome.output[-4000:]
