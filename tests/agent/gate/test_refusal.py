"""A job file that cannot be: each gate ends by itself, and so does the hub, and both say the same."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest
from tests.agent.gate.jobs import Agent, wait_for
from tests.agent.job_file.jobs import text

from ddplaunch.agent.contract import Env, Exit, Files

SENTENCE = (
    'the job file cannot be used: command[0]: found "torchrun", wanted the script and its arguments only'
)


@pytest.fixture(name="start")
def _start(agent_file: Path, tmp_path: Path) -> Iterator[Callable[[str, int], Agent]]:
    """Start an agent as in a pod; what still runs in the end is killed."""
    started: list[Agent] = []

    def start(verb: str, node: int) -> Agent:
        end = tmp_path / f"{verb}-{node}"
        env = {Env.KEY: "key", Env.NODE: str(node), Env.HUB: "nowhere.invalid:1", Env.NAMES: "a,b"}
        words = [sys.executable, "-I", "-S", str(agent_file), verb, "--folder", str(tmp_path)]
        log = tmp_path / f"{verb}-{node}.log"
        started.append(Agent(words, {**env, Env.TERMINATION: str(end)}, tmp_path, log))
        return started[-1]

    yield start
    for agent in started:
        agent.process.kill()
        agent.process.wait(10)


@pytest.mark.fault("job-file-wrong")
def test_every_gate_refuses_it_without_a_hub(start: Callable[[str, int], Agent], tmp_path: Path) -> None:
    """Nothing is skipped, nobody is awaited, and whoever reads the pods finds the verdict in each of them."""
    (tmp_path / Files.JOB).write_text(text(command=["torchrun"], gate={"enabled": False}))
    gates = [start("gate", node) for node in (0, 1)]
    hub = start("hub", 0)

    assert [Exit.MISCONFIGURED] * 2 == [gate.wait() for gate in gates]
    assert f"job-file-wrong: {SENTENCE[:40]}" in gates[0].output
    wait_for(lambda: "END DDPLAUNCH BUNDLE" in hub.output)
    hub.process.terminate()
    assert Exit.OK == hub.wait()
    for name in ("hub-0", "gate-0", "gate-1"):
        words = json.loads((tmp_path / name).read_text())
        assert (Exit.MISCONFIGURED, [SENTENCE]) == (
            words["exit_code"],
            [each["sentence"] for each in words["verdicts"]],
        )
