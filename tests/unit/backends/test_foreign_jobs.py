"""The agent and py-spy run from memory on a machine that has neither."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.busy import BUSY

from ddplaunch import api
from ddplaunch.agent.contract import Env, Event, Frame, Group, NodeEvidence, Phase, RankEvidence, Stack
from ddplaunch.agent.evidence import py_spy
from ddplaunch.backends import foreign_jobs
from ddplaunch.backends.foreign_jobs import READY, WANTED, PySpy
from ddplaunch.backends.job import Handle, Job, State
from ddplaunch.errors import NotFoundError, UsageError
from ddplaunch.render import archive
from ddplaunch.report import diagnose
from ddplaunch.report.verdict import diagnosis_text

AGENT = f"""
import os, sys
sys.path.insert(0, {str(Path(py_spy.__file__).parents[3])!r})
from ddplaunch.agent.evidence import py_spy
found = py_spy.find(sys.executable)
print(sys.argv[1:], os.listdir(), found and os.popen(found + " --version").read())
""".encode()
"""Stands for the agent: it tells how it was called, and what it finds."""
SAYS = '#!/bin/sh\necho "py-spy of the launcher"\n'
WITHOUT_MEMFD = "import os; del os.memfd_create\n"


@pytest.fixture(name="machine")
def _machine(tmp_path: Path) -> tuple[str, Path]:
    """A python3 beside which no py-spy lies, and an empty folder."""
    python, empty = tmp_path / "bin" / "python3", tmp_path / "empty"
    python.parent.mkdir()
    empty.mkdir()
    python.symlink_to(os.path.realpath(sys.executable))
    return str(python), empty


def ran(machine: tuple[str, Path], program: str, *words: str, stdin: bytes, **env: str) -> str:
    """What a program in memory has printed."""
    python, empty = machine
    done = subprocess.run(
        [python, "-I", "-S", "-c", program, *words, "look", "--all"],
        cwd=empty, input=stdin, capture_output=True, check=False, env={"PATH": "/usr/bin:/bin", **env},
    )  # fmt: skip
    assert 0 == done.returncode, done.stderr.decode()
    return done.stdout.decode()


@pytest.fixture(name="spy")
def _spy(tmp_path: Path) -> PySpy:
    """A program that stands for the launcher's py-spy, on a machine of this kind."""
    return PySpy(zlib.compress(SAYS.encode()), os.uname().machine)


@pytest.mark.parametrize("before", ["", WITHOUT_MEMFD], ids=["", "without memfd_create"])
def test_the_agent_runs_and_writes_no_file(machine: tuple[str, Path], before: str) -> None:
    """On a Python that was built for an old C library, too."""
    out = ran(machine, before + foreign_jobs.AGENT, str(len(AGENT)), stdin=AGENT)

    assert f"{['look', '--all']} [] None\n" == out


@pytest.mark.parametrize("before", ["", WITHOUT_MEMFD], ids=["", "without memfd_create"])
def test_py_spy_comes_with_it(machine: tuple[str, Path], spy: PySpy, before: str) -> None:
    """To a machine that has none; the agent finds it, and may run it."""
    program = before + foreign_jobs.AGENT_WITH_PY_SPY
    out = ran(machine, program, *spy.words, str(len(AGENT)), stdin=spy.packed + AGENT)

    assert f"{READY} {WANTED}\n{['look', '--all']} [] py-spy of the launcher\n\n" == out


def test_the_launchers_own_py_spy_runs_there(machine: tuple[str, Path]) -> None:
    spy = foreign_jobs.packed_py_spy()

    out = ran(machine, foreign_jobs.AGENT_WITH_PY_SPY, *spy.words, str(len(AGENT)), stdin=spy.packed + AGENT)

    assert os.uname().machine == spy.machine
    assert "[] py-spy 0." in out


def test_a_machine_of_another_kind_wants_none(machine: tuple[str, Path], spy: PySpy) -> None:
    other = spy._replace(machine="riscv64")

    out = ran(machine, foreign_jobs.AGENT_WITH_PY_SPY, *other.words, str(len(AGENT)), stdin=AGENT)

    assert f"{READY} \n{['look', '--all']} [] None\n" == out


def test_a_launcher_without_py_spy_brings_none(machine: tuple[str, Path]) -> None:
    """No machine is of the kind "" ."""
    nothing = PySpy(b"", "")

    out = ran(machine, foreign_jobs.AGENT_WITH_PY_SPY, *nothing.words, str(len(AGENT)), stdin=AGENT)

    assert f"{READY} \n{['look', '--all']} [] None\n" == out


def test_an_image_with_py_spy_wants_none(machine: tuple[str, Path], spy: PySpy, tmp_path: Path) -> None:
    """Its own may be the one that fits its Python."""
    own = tmp_path / "own" / "py-spy"
    own.parent.mkdir()
    own.write_text(SAYS.replace("launcher", "image"))
    own.chmod(0o755)

    out = ran(
        machine, foreign_jobs.AGENT_WITH_PY_SPY, *spy.words, str(len(AGENT)), stdin=AGENT,
        PATH=f"{own.parent}:/usr/bin:/bin",
    )  # fmt: skip

    assert f"{READY} \n{['look', '--all']} [] py-spy of the image\n\n" == out


@pytest.mark.parametrize(
    ("head", "machine"),
    [
        pytest.param(b"#!/usr/bin/env python3\n", "", id="a script"),
        pytest.param(b"\xcf\xfa\xed\xfe" + bytes(20), "", id="a Mac's"),
        pytest.param(b"\x7fELF" + bytes(14) + b"\xb7\x00", "aarch64", id="Arm's"),
        pytest.param(b"\x7fELF" + bytes(14) + b"\x08\x00", "", id="another's"),
    ],
)
def test_the_kind_of_machine_is_read_from_the_program(
    head: bytes, machine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A py-spy that is no program for Linux stays at home."""
    program = tmp_path / "py-spy"
    program.write_bytes(head)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    found = foreign_jobs.packed_py_spy()

    assert (machine, bool(machine)) == (found.machine, bool(found.packed))


def test_a_path_is_told_where_the_files_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on the nodes of a Slurm; one that is not there is not used."""
    environment = foreign_jobs.environment_with_py_spy()

    assert environment[Env.PY_SPY] == foreign_jobs.own_py_spy() != ""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv(Env.PY_SPY, environment[Env.PY_SPY])
    assert environment[Env.PY_SPY] == py_spy.find("/nowhere/python3")
    monkeypatch.setenv(Env.PY_SPY, "/nowhere/py-spy")
    assert py_spy.find("/nowhere/python3") is None
    assert shutil.which(environment[Env.PY_SPY])


def test_the_end_of_the_input_is_not_waited_for() -> None:
    """The API server does not pass it on."""
    agent = archive.agent_archive()
    words = [sys.executable, "-I", "-S", "-c", foreign_jobs.AGENT, str(len(agent)), "--version"]

    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(agent)
        process.stdin.flush()
        assert sys.version.split()[0] in process.stdout.read().decode()


def test_no_rank_dies_for_it(machine: tuple[str, Path]) -> None:
    """Where memory runs out, the kernel takes the agent first."""
    agent = b"print(open('/proc/self/oom_score_adj').read())"

    assert "1000" == ran(machine, foreign_jobs.AGENT, str(len(agent)), stdin=agent).strip()


def test_a_python_that_is_too_old() -> None:
    old = "import sys; sys.version_info = (3, 8, 1)\n"

    done = subprocess.run(
        [sys.executable, "-c", old + foreign_jobs.AGENT, "1000"], capture_output=True, check=False, text=True
    )

    assert (1, "its python3 is 3.8, and the agent needs 3.9\n") == (done.returncode, done.stderr)


SLEEPER = "import time; print('up', flush=True); time.sleep(600)"
RANK = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "MASTER_ADDR": "n1", "MASTER_PORT": "29500"}


@pytest.fixture(name="rank")
def _rank() -> Iterator[int]:
    """A process that looks like a rank, and sleeps."""
    with subprocess.Popen(
        [sys.executable, "-S", "-c", SLEEPER], env={**os.environ, **RANK}, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("text", "pid"),
    [("pid:12", 12), ("pid://12", 12), ("digits", None), ("12", None)],
)
def test_a_process_is_named_by_its_number(text: str, pid: int | None) -> None:
    """`pid:1234`, or as a handle."""
    assert pid == foreign_jobs.process_named(text)


@pytest.mark.parametrize("text", ["pid:", "pid:x"])
def test_a_process_without_a_number_is_no_job_either(text: str) -> None:
    with pytest.raises(UsageError, match=f"{text}: wanted the number of a process"):
        foreign_jobs.process_named(text)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/venv/bin/python -m torch.distributed.run src/train.py --key s3cret", "python train.py"),
        ("mpirun -n 4 ./solve", "mpirun"),
        ("", ""),
    ],
)
def test_the_name_of_a_job_holds_no_argument(command: str, name: str) -> None:
    """An argument may be a password, and the name goes into reports."""
    assert name == foreign_jobs.short_name(command)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("kubernetes://team/job/llm", "team/job/llm"),
        ("kubernetes://team?selector=app=llm", "team?selector=app=llm"),
        ("kubernetes://team?app=llm", "team?app=llm"),
        ("kubernetes://team/llm", None),
        ("kubernetes://llm", None),
        ("slurm://cluster/7", None),
        ("runs/job/llm/bundle.zip", None),
    ],
)
def test_pods_are_named_by_their_owner_or_their_labels(text: str, path: str | None) -> None:
    """A job of ddplaunch's own is named by its namespace and its name alone."""
    assert path == foreign_jobs.pods_named(text)


@pytest.mark.whole
@pytest.mark.processes
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a container's namespaces")
def test_all_processes_of_a_container() -> None:
    """All that is seen there are of the job. No file is written: none could be."""
    agent = archive.agent_archive()
    look = [sys.executable, "-I", "-S", "-c", foreign_jobs.AGENT, str(len(agent)), "look", "--all"]
    rank = "RANK=3 LOCAL_RANK=1 WORLD_SIZE=4 sleep 100 > /dev/null &"
    script = f'mount -o remount,bind,ro / && ! touch /file 2> /dev/null && {rank} exec "$@"'
    words = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    words += ["sh", "-ec", script, "sh"]

    done = subprocess.run([*words, *look], input=agent, capture_output=True, check=False)

    found = foreign_jobs.unpacked(done.stdout.decode(), 5)
    assert found is not None, done.stderr.decode()
    assert [(5, 3, 1, 4)] == [
        (found.node, rank.rank, rank.local_rank, rank.world_size) for rank in found.ranks
    ]


def test_a_process_that_is_gone() -> None:
    with pytest.raises(NotFoundError, match="no process 4194305 on this machine") as raised:
        api.diagnose("pid:4194305")

    assert "pgrep" in raised.value.hint


def test_a_process_without_ranks() -> None:
    with subprocess.Popen(["sleep", "100"]) as process:
        try:
            with pytest.raises(UsageError, match=rf"process {process.pid} \(sleep\) has started no rank"):
                api.diagnose(f"pid:{process.pid}")
        finally:
            process.kill()


@pytest.mark.parametrize("more", [{"attempt": 0}, {"again": True}])
@pytest.mark.parametrize("name", ["pid:1", "kubernetes://team/job/llm"])
def test_a_job_of_others_has_no_attempts(name: str, more: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="did not start has no attempts"):
        api.diagnose(name, **more)  # type: ignore[arg-type]


@pytest.mark.processes
def test_a_rank_alone_accuses_nobody(rank: int, tmp_path: Path) -> None:
    """It is seen with its number and left as it is; what others of its world do is not known."""
    found = api.diagnose(f"pid:{rank}")

    assert found.evidence is not None
    (node,) = found.evidence.evidence
    assert [(5, 1, rank, 8, "environment", True)] == [
        (each.rank, each.local_rank, each.pid, each.world_size, each.numbered_by, each.alive)
        for each in node.ranks
    ]
    assert (None, "asked") == (found.evidence.world_size, found.evidence.why)
    assert [] == [each for verdict in found.verdicts for each in verdict.victims]
    assert "S" == Path(f"/proc/{rank}/stat").read_text().rpartition(")")[2].split()[0]


def test_what_would_show_more_is_named() -> None:
    ranks = [RankEvidence(number, number, 10, True, stuck_for=60, still_for=60) for number in (0, 1)]
    node = NodeEvidence(
        0, "n1", 0.0, Phase.RUNNING, ranks, missing=["stacks of ranks 0-1: py-spy: not found"]
    )

    bundle = foreign_jobs.bundle("torchrun train.py", 0.0, [node])
    job = foreign_jobs.explained(Job(Handle("pid", "7"), State.RUNNING, 0.0, "torchrun train.py"), bundle)
    text = diagnosis_text(diagnose(job, bundle))

    assert "unseen      stacks of ranks 0-1: py-spy: not found (node 0)" in text
    assert "see more    stacks need py-spy on the machine of the ranks" in text
    assert "pid://7, started" in text
    assert "" == job.detail


@pytest.mark.parametrize(("groups", "hinted"), [([], True), ([Group("0", [0], 3, 3)], False)])
def test_calls_that_were_counted_need_no_hint(groups: list[Group], hinted: bool) -> None:
    """A debug server of torch's has counted them; nobody else does from outside."""
    stack = Stack("MainThread", True, [Frame("train", "train.py", 7)])
    seen = [RankEvidence(0, 0, 10, True, stacks=[stack], groups=groups)]
    bundle = foreign_jobs.bundle("llm", 0.0, [NodeEvidence(0, "n1", 0.0, Phase.RUNNING, seen)])
    job = foreign_jobs.explained(Job(Handle("pid", "7"), State.RUNNING, 0.0, "llm"), bundle)

    assert hinted == ("cannot be counted" in job.hint)


@pytest.mark.parametrize(
    ("ranks", "beside", "hint"),
    [
        (2, False, "a container of `--debug-image IMAGE` has, and the ranks' user where"),
        (0, False, "seeing ranks that run as another user than their container"),
        (2, True, "in the debug image, or on the machine where you run this"),
        (0, True, "start the job with `ddplaunch run -- COMMAND`"),
    ],
)
def test_what_would_show_more_in_pods(ranks: int, beside: bool, hint: str) -> None:
    seen = [RankEvidence(number, number, 10, True, stuck_for=60, still_for=60) for number in range(ranks)]
    bundle = foreign_jobs.bundle("llm", 0.0, [NodeEvidence(0, "llm-0", 0.0, Phase.RUNNING, seen)])
    job = Job(Handle("kubernetes", "team/job/llm"), State.RUNNING, 0.0, "llm")

    assert hint in foreign_jobs.explained(job, bundle, in_debug_container=beside).hint


@pytest.mark.parametrize(
    ("file", "hint"),
    [
        ("/env/mpi4py/MPI.so", ""),
        ("/env/torch/distributed.py", "calls of torch.distributed cannot be counted"),
    ],
)
def test_calls_that_are_counted_nowhere(file: str, hint: str) -> None:
    """A job that ddplaunch starts has torch's calls counted, and no MPI's."""
    frames = [Frame("Barrier", file, 1), Frame("train", "/job/train.py", 3)]
    ranks = [RankEvidence(0, 0, 10, True, stacks=[Stack("MainThread", True, frames)])]
    bundle = foreign_jobs.bundle("train.py", 0.0, [NodeEvidence(0, "n1", 0.0, Phase.RUNNING, ranks)])

    job = foreign_jobs.explained(Job(Handle("pid", "7"), State.RUNNING, 0.0, "train.py"), bundle)

    assert hint == job.hint[: len(hint) or None]


def test_ranks_that_move() -> None:
    ranks = [RankEvidence(number, number, 10, True) for number in (0, 1)]
    bundle = foreign_jobs.bundle("train.py", 0.0, [NodeEvidence(0, "n1", 0.0, Phase.RUNNING, ranks)])
    job = foreign_jobs.explained(Job(Handle("pid", "7"), State.RUNNING, 0.0, "train.py"), bundle)

    assert ([], "2 ranks seen; nothing shows that they hang") == (bundle.verdicts, job.detail)


def test_a_job_with_a_hub_is_left_as_it_is() -> None:
    """Its hub's bundle has events, and says more than a look from outside."""
    bundle = foreign_jobs.bundle("train.py", 0.0, [NodeEvidence(0, "n1", 0.0, Phase.RUNNING)])
    bundle = replace(bundle, events=[Event(0.0, "phase", "the ranks train")])
    job = Job(Handle("slurm", "7"), State.RUNNING, 0.0, "train", detail="its hub is not up yet")

    assert job == foreign_jobs.explained(job, bundle)


@pytest.mark.whole
@pytest.mark.processes
def test_how_long_a_rank_has_slept_before_anybody_looked(rank: int) -> None:
    """The kernel's word counts, where it gives one: the watch itself is shorter."""
    time.sleep(8)

    found = api.diagnose(f"pid:{rank}")

    assert found.evidence is not None
    (each,) = found.evidence.evidence[0].ranks
    assert BUSY * 60 > each.still_for >= 10
