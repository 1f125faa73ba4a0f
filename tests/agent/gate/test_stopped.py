"""Gates that a signal stops, before their verdict and after it."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from tests.agent.gate.jobs import Job, make_plan

from ddplaunch.agent.contract import Env, Exit


def test_a_gate_that_is_told_to_stop_after_its_verdict(job: Job, tmp_path: Path) -> None:
    """In a pod it stays for node 0's to end first; then Kubernetes deletes it. The verdict's code remains."""
    plan, end = make_plan(master_addr="x" * 64 + ".invalid"), tmp_path / "end"
    hub = job.hub(plan)
    gates = [job.gate(plan, node, env={Env.TERMINATION: str(end)} if node else {}) for node in range(2)]
    assert Exit.NODE_AT_FAULT == gates[0].wait(15)
    hub.wait(15)  # it leaves after all gates have the verdict
    assert gates[1].process.poll() is None
    gates[1].process.send_signal(signal.SIGTERM)

    assert Exit.NODE_AT_FAULT == gates[1].wait(3)
    last = json.loads(end.read_text())
    assert (Exit.NODE_AT_FAULT, "dns-not-found") == (last["exit_code"], last["verdicts"][0]["code"])


def test_a_gate_that_is_told_to_stop(job: Job) -> None:
    """SIGTERM ends a waiting gate with its own code, and the job with it: nobody was at fault."""
    hub, gate = job.waiting(0)
    gate.process.send_signal(signal.SIGTERM)

    assert gate.wait(5) == Exit.STOPPED
    assert hub.wait(5) == Exit.STOPPED
    assert job.bundle.verdicts == []
