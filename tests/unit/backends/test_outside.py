"""Jobs that ddplaunch did not start, by a process of theirs on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.busy import BUSY

from ddplaunch import api
from ddplaunch.agent.contract import Event, Frame, Group, NodeEvidence, Phase, RankEvidence, Stack
from ddplaunch.backends import foreign_jobs
from ddplaunch.backends.job import Handle, Job, State
from ddplaunch.errors import NotFoundError, UsageError
from ddplaunch.render import archive
from ddplaunch.report.diagnosis import diagnose
from ddplaunch.report.verdict import diagnosis_text

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
    [("pid:12", 12), ("pid://12", 12), ("digits", None), ("pid:", None), ("pid:x", None), ("12", None)],
)
def test_a_process_is_named_by_its_number(text: str, pid: int | None) -> None:
    """`pid:1234`, or as a handle."""
    assert pid == foreign_jobs.process_named(text)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (
            "/venv/bin/python -m torch.distributed.run src/train.py --key s3cret",
            "python train.py",
        ),
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
    """The message says how to find another."""
    with pytest.raises(NotFoundError, match="no process 4194305 on this machine") as raised:
        api.diagnose("pid:4194305")

    assert "pgrep" in raised.value.hint


def test_a_process_without_ranks() -> None:
    """Such as the one that asks."""
    with subprocess.Popen(["sleep", "100"]) as process:
        try:
            with pytest.raises(UsageError, match=rf"process {process.pid} \(sleep\) has started no rank"):
                api.diagnose(f"pid:{process.pid}")
        finally:
            process.kill()


@pytest.mark.parametrize("more", [{"attempt": 0}, {"again": True}])
@pytest.mark.parametrize("name", ["pid:1", "kubernetes://team/job/llm"])
def test_a_job_of_others_has_no_attempts(name: str, more: dict[str, object]) -> None:
    """And there is no bundle yet that could be judged again."""
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
    """Where no stack could be had, how to get one."""
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

    assert hinted == ("can be counted" in job.hint)


@pytest.mark.parametrize(
    ("ranks", "beside", "hint"),
    [
        (2, False, "a container of `--debug-image IMAGE` has, and the ranks' user where"),
        (0, False, "to see ranks of another user than their container's"),
        (2, True, "in the debug image or on a machine of the pods' kind"),
        (0, True, "started by `ddplaunch run -- COMMAND`"),
    ],
)
def test_what_would_show_more_in_pods(ranks: int, beside: bool, hint: str) -> None:
    """A debug container, where there was none."""
    seen = [RankEvidence(number, number, 10, True, stuck_for=60, still_for=60) for number in range(ranks)]
    bundle = foreign_jobs.bundle("llm", 0.0, [NodeEvidence(0, "llm-0", 0.0, Phase.RUNNING, seen)])
    job = Job(Handle("kubernetes", "team/job/llm"), State.RUNNING, 0.0, "llm")

    assert hint in foreign_jobs.explained(job, bundle, in_debug_container=beside).hint


@pytest.mark.parametrize(
    ("file", "hint"), [("/env/mpi4py/MPI.so", ""), ("/env/torch/distributed.py", "from outside no call of")]
)
def test_calls_that_are_counted_nowhere(file: str, hint: str) -> None:
    """A job that ddplaunch starts has torch's calls counted, and no MPI's."""
    frames = [Frame("Barrier", file, 1), Frame("train", "/job/train.py", 3)]
    ranks = [RankEvidence(0, 0, 10, True, stacks=[Stack("MainThread", True, frames)])]
    bundle = foreign_jobs.bundle("train.py", 0.0, [NodeEvidence(0, "n1", 0.0, Phase.RUNNING, ranks)])

    job = foreign_jobs.explained(Job(Handle("pid", "7"), State.RUNNING, 0.0, "train.py"), bundle)

    assert hint == job.hint[: len(hint) or None]


def test_ranks_that_move() -> None:
    """How many were seen is said where there is no verdict."""
    ranks = [RankEvidence(number, number, 10, True) for number in (0, 1)]
    bundle = foreign_jobs.bundle("train.py", 0.0, [NodeEvidence(0, "n1", 0.0, Phase.RUNNING, ranks)])
    job = foreign_jobs.explained(Job(Handle("pid", "7"), State.RUNNING, 0.0, "train.py"), bundle)

    assert ([], "2 ranks seen, and nothing shows that they hang") == (bundle.verdicts, job.detail)


def test_a_job_with_a_hub_is_left_as_it_is() -> None:
    """Its hub's bundle has events, and says more than a look from outside."""
    bundle = foreign_jobs.bundle("train.py", 0.0, [NodeEvidence(0, "n1", 0.0, Phase.RUNNING)])
    bundle = replace(bundle, events=[Event(0.0, "phase", "the ranks train")])
    job = Job(Handle("slurm", "7"), State.RUNNING, 0.0, "train", detail="its hub is not up yet")

    assert job == foreign_jobs.explained(job, bundle)


@pytest.mark.processes
def test_how_long_a_rank_has_slept_before_anybody_looked(rank: int) -> None:
    """The kernel's word counts, where it gives one: the watch itself is shorter."""
    time.sleep(8)

    found = api.diagnose(f"pid:{rank}")

    assert found.evidence is not None
    (each,) = found.evidence.evidence[0].ranks
    assert BUSY * 60 > each.still_for >= 10
