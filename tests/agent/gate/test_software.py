"""What nodes are started with, for real: another Python, another torch, no torch, no script."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest
from tests.agent.gate.jobs import Agent, Job, make_plan, wait_for
from tests.agent.gate.torches import TORCHRUN, make_torch
from tests.agent.job_file.jobs import text

from ddplaunch.agent.contract import Env, Exit, Files


def other_python() -> str | None:
    """An interpreter of another minor version than ours, from this repository or from PATH."""
    root = Path(__file__).parents[3]
    names = [f"python3.{minor}" for minor in range(9, 16)]
    found = [str(root / venv / "bin" / "python") for venv in (".venv39", ".venv")]
    found += [path for path in map(shutil.which, names) if path]
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    for path in filter(os.path.exists, found):
        said = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False).stdout.strip()
        if said and said != ours and tuple(map(int, said.split("."))) >= (3, 9):
            return path
    return None


@pytest.mark.fault("version-differs")
def test_the_node_with_another_python_is_named_with_both_versions(job: Job, tmp_path: Path) -> None:
    other = other_python()
    if other is None:
        pytest.skip("needs a second Python of another minor version >= 3.9")
    for name, target in (("ours", sys.executable), ("other", other)):
        (tmp_path / name).mkdir()
        script = f'#!/bin/sh\nexec "{target}" "$@"\n'
        (tmp_path / name / "python3").write_text(script)
        (tmp_path / name / "python3").chmod(0o755)
    plan = make_plan(nodes=3)
    job.hub(plan)
    path = {node: str(tmp_path / ("other" if node == 2 else "ours")) for node in range(3)}
    gates = [
        job.gate(plan, node, env={"PATH": f"{path[node]}{os.pathsep}{os.environ['PATH']}"})
        for node in range(3)
    ]

    assert [Exit.MISCONFIGURED] * 3 == [gate.wait() for gate in gates]
    assert (job.verdict.code, job.verdict.nodes) == ("version-differs", [2])
    assert f"the others Python {sys.version_info[0]}.{sys.version_info[1]}" in job.verdict.sentence


@pytest.mark.fault("version-differs")
def test_the_node_with_another_torch_is_named_without_imports(job: Job, tmp_path: Path) -> None:
    old, new = (
        make_torch(tmp_path / "old", "2.13.0", "2.27.5"),
        make_torch(tmp_path / "new", "2.15.0", "2.30.7"),
    )
    plan = make_plan(launch=TORCHRUN)
    job.hub(plan)
    gates = [job.gate(plan, 0, env=new), job.gate(plan, 1, env=old)]

    assert [Exit.MISCONFIGURED] * 2 == [gate.wait() for gate in gates]
    assert (job.verdict.code, job.verdict.nodes) == ("version-differs", [1])
    assert job.verdict.sentence == "node 1 has torch 2.13.0 / NCCL 2.27.5, node 0 torch 2.15.0 / NCCL 2.30.7"


@pytest.mark.fault("torch-untested")
def test_a_torch_older_than_any_that_was_tried_is_told_and_refused_nowhere(job: Job, tmp_path: Path) -> None:
    old = make_torch(tmp_path / "old", "2.1.0", "2.18.1")
    plan = make_plan(launch=TORCHRUN)
    hub = job.hub(plan)
    gates = [job.gate(plan, node, env=old) for node in range(2)]

    assert [Exit.OK] * 2 == [gate.wait() for gate in gates]
    hub.says("note: torch-untested: node 0: Python ")
    hub.says("ddplaunch was never tried with a torch before 2.4")


@pytest.fixture(name="bare", scope="module")
def _bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A real Python that has nothing installed."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return str(folder / "bin" / "python")


@pytest.mark.fault("image-lacks")
def test_a_python_without_torch_is_named_before_torchrun_fails(job: Job, bare: str) -> None:
    plan = make_plan(nodes=1, launch=TORCHRUN, python=bare)
    job.hub(plan)

    assert job.gate(plan, 0).wait() == Exit.MISCONFIGURED
    assert job.verdict.code == "image-lacks"
    assert f"{bare} has no torch" in job.verdict.sentence


@pytest.mark.fault("image-lacks")
@pytest.mark.parametrize(
    ("changes", "lacks"),
    [({"command": ["nosuch.py"]}, "no nosuch.py"), ({"python": "python2.8"}, "no python2.8 on PATH")],
)
def test_what_the_image_lacks_is_named(job: Job, changes: dict[str, object], lacks: str) -> None:
    plan = make_plan(nodes=1, **changes)
    job.hub(plan)

    assert job.gate(plan, 0).wait() == Exit.MISCONFIGURED
    assert job.verdict.code == "image-lacks"
    assert lacks in job.verdict.sentence


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
def test_each_gate_refuses_a_wrong_job_file_alone(start: Callable[[str, int], Agent], tmp_path: Path) -> None:
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
        seen = words["exit_code"], [each["sentence"] for each in words["verdicts"]]
        assert (Exit.MISCONFIGURED, [SENTENCE]) == seen
