"""The states of the gate, as the hub goes through them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ddplaunch.agent.contract import JobPlan
from ddplaunch.agent.hub.gate_session import GateSession
from ddplaunch.agent.hub.gate_states import ENDS, GateState
from ddplaunch.agent.hub.job_record import JobRecord


@pytest.fixture(name="gate")
def _gate(tmp_path: Path) -> Iterator[GateSession]:
    """A gate to which nobody has come yet."""
    plan = JobPlan("digits", nodes=2, nproc_per_node=1, launch=[], command=[])
    record = JobRecord(plan, str(tmp_path), 0)
    yield GateSession(plan, record)
    record.close()


@pytest.mark.parametrize("state", [state for state in GateState if state not in ENDS])
def test_a_verdict_may_end_every_state_but_the_ends(gate: GateSession, state: GateState) -> None:
    """A node may be lost, and the job stopped, whatever the nodes are at."""
    gate.state = state
    gate._enter(GateState.JUDGED)

    assert GateState.JUDGED == gate.state


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("state", list(GateState))
def test_nothing_follows_an_end(gate: GateSession, end: GateState, state: GateState) -> None:
    """Who was let through is not judged afterwards, and a verdict is not taken back."""
    gate.state = end
    with pytest.raises(AssertionError):
        gate._enter(state)
