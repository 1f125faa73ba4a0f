"""Runs a program of the corpus as a user's job on this machine, and tells what was said about it and when."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.agent import printed
from tests.corpus.faults import Fault, Healthy

from ddplaunch.agent.contract import (
    Bundle,
    Files,
    JobEvidence,
    JobPlan,
    Verdict,
    WatchdogPlan,
    bundle_file,
    codec,
    messages,
)
from ddplaunch.agent.contract.messages import Way
from ddplaunch.agent.transport.protocol import Channel
from ddplaunch.render import archive

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
WHOLE_JOB = 240.0
"""Seconds for a job on a busy machine; it ends by itself long before."""
KILL_AFTER = 2.0
"""Times notice_after, and the fault's patience, after which a hang is ended."""
AS_IN_LIFE = 60.0
"""Times notice_after, as by default: a healthy job that is ended before would have needed more time."""
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
"""Without both, Open MPI's mpirun starts nothing for root."""
_WITH_OWN_SHM = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size="$0" shm /dev/shm && exec "$@"')
"""Before a size in bytes and a command."""
ASKS = 8
"""How often it may: between two steps nobody waits, and nobody can be named."""
ASK_AGAIN = 1.0


@dataclass
class Outcome:
    """What became of a job. `seconds`: from the moment progress stopped to the verdict's first word."""

    verdicts: list[Verdict]
    exit_code: int
    alarms: list[str]  # every notice and verdict that was spoken
    folder: Path  # the job's
    seconds: float | None = None
    came_to_it: bool = False  # whether that moment came
    early: list[str] = field(default_factory=list)  # what was spoken before that moment
    noticed: bool = False  # the first word was a notice: nothing had died
    alarm_at: float | None = None  # when the first word was spoken
    survivors: list[int] = field(default_factory=list)  # processes of the job that outlived it
    output: str = ""
    evidence: JobEvidence | None = None

    @property
    def code(self) -> str:
        """Of the first verdict."""
        return self.verdicts[0].code if self.verdicts else "none"


def run(
    case: Fault | Healthy,
    folder: Path,
    env: Mapping[str, str] | None = None,
    watchdog: WatchdogPlan | None = None,
) -> Outcome:
    """The job from start to end, in `folder`. `env`: for its ranks; `watchdog`: instead of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / Files.AGENT).write_bytes(archive.agent_archive())
    plan = _plan(case, folder, env or {})
    codec.write(str(folder / Files.PLAN), replace(plan, watchdog=watchdog or plan.watchdog))
    words = [sys.executable, "-I", "-S", str(folder / Files.AGENT), "local", "--folder", str(folder)]
    words = [*own_shm(case), *words]
    memory = case.memory if isinstance(case, Fault) else None
    cpus = case.cpus if isinstance(case, Fault) else None
    with (
        _cpu_cgroup(cpus, folder / "cpus"),
        _memory_cgroup(memory) as enter,
        (folder / "output").open("wb") as output,
    ):
        job = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, preexec_fn=enter)
        try:
            asked = _ask(folder, job, case) if isinstance(case, Fault) and case.asked else None
            exit_code = job.wait(WHOLE_JOB)
        finally:
            if job.poll() is None:
                job.kill()
                job.wait()
    return _outcome(folder, exit_code, asked)


def own_shm(case: Fault | Healthy) -> list[str]:
    """Return what stands before a command of a job that fills /dev/shm: it gets one of its own.

    That of the machine would keep what the job leaves there, in memory, until the machine has none.
    """
    shm = case.shm if isinstance(case, Fault) else None
    return [] if shm is None else [*_WITH_OWN_SHM, str(shm)]


def _plan(case: Fault | Healthy, folder: Path, env: Mapping[str, str]) -> JobPlan:
    """As the launcher makes it."""
    mpi = [] if not case.mpi else ["mpirun", "-n", str(case.nodes * case.nproc), "{keeper}", "{python}"]
    launch = ["{python}", "-m", "torch.distributed.run", "--nnodes", str(case.nodes)]
    launch += ["--nproc-per-node", str(case.nproc), "--node-rank", "{node}"]
    launch += ["--master-addr", "{master_addr}", "--master-port", "{master_port}"]
    restarts = case.restarts if isinstance(case, Fault) else 0
    launch += [f"--max-restarts={restarts}"]
    seconds = case.seconds if isinstance(case, Healthy) else 30.0
    kill_after = AS_IN_LIFE if isinstance(case, Healthy) else KILL_AFTER * case.patience
    return JobPlan(
        job=case.name,
        nodes=case.nodes,
        nproc_per_node=None if case.plain else case.nproc,
        launch=["{python}"]
        if case.plain
        else mpi or [*launch, *(case.launch if isinstance(case, Fault) else ())],
        mpi=case.mpi,
        keepers=case.mpi or None,
        command=[case.file, *case.arguments],
        python=sys.executable,
        env={"CORPUS_SCENE": str(folder), "CORPUS_SECONDS": str(seconds), **AS_ROOT, **env},
        workdir=str(HERE / case.folder),
        watchdog=WatchdogPlan(case.notice_after, kill_after * case.notice_after),
    )


def _ask(folder: Path, job: subprocess.Popen[bytes], fault: Fault) -> Bundle:
    """What `diagnose` answers in mid-run; the job is stopped afterwards."""
    deadline = time.monotonic() + WHOLE_JOB
    while '"phase":"running"' not in _text(folder / Files.STATUS):
        assert job.poll() is None, _text(folder / "output")
        assert time.monotonic() < deadline, _text(folder / "output")
        time.sleep(0.1)
    time.sleep(fault.ask_after)
    hub = json.loads(_text(folder / Files.HUB))
    key = _text(folder / Files.KEY).encode()
    channel = Channel.connect(hub["host"], hub["port"], key, 0, time.monotonic() + 10)
    for _ in range(ASKS):
        channel.send(*messages.AskDiagnosis().pack())
        line = channel.receive(20)
        assert line is not None
        answer = messages.load(*line, Way.HUB_TO_COMMAND)
        assert isinstance(answer, messages.BundleAnswer)
        bundle = printed.bundle(answer.archive)
        if any(verdict.ranks or not fault.ranks for verdict in bundle.verdicts):
            break
        time.sleep(ASK_AGAIN)
    channel.send(*messages.Stop("the corpus has seen enough").pack())
    job.wait(WHOLE_JOB)
    channel.close()
    return bundle


def _outcome(folder: Path, exit_code: int, asked: Bundle | None) -> Outcome:
    bundle = bundle_file.read(str(folder / Files.BUNDLE))
    alarms = [event for event in bundle.events if event.kind in ("notice", "verdict")]
    stopped = [float(path.read_text()) for path in folder.glob("stopped-*")]
    after = [event.at - max(stopped) for event in alarms if event.at >= max(stopped)] if stopped else []
    return Outcome(
        verdicts=(asked or bundle).verdicts,
        exit_code=exit_code,
        alarms=[event.text for event in alarms],
        folder=folder,
        seconds=after[0] if after else None,
        came_to_it=bool(stopped),
        early=[event.text for event in alarms[: len(alarms) - len(after)]] if stopped else [],
        noticed=bool(alarms) and alarms[0].kind == "notice",
        alarm_at=alarms[0].at if alarms else None,
        survivors=sorted(living(folder)),
        output=_text(folder / "output"),
        evidence=(asked or bundle).evidence,
    )


def _text(path: Path) -> str:
    """Of a file that may not be there yet."""
    return path.read_text("utf-8", "replace") if path.exists() else ""


def living(folder: Path) -> dict[int, int | None]:
    """Processes that were given this job's scene, each with its rank; None of those that are no rank."""
    mark = f"CORPUS_SCENE={folder}".encode()
    found: dict[int, int | None] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            variables = (entry / "environ").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if mark in variables:
                rank = next((each[5:] for each in variables if each.startswith(b"RANK=")), None)
                found[int(entry.name)] = None if rank is None else int(rank)
    return found


# --- a memory cgroup around the whole job


def memory_cgroups_missing() -> str:
    """Why no memory cgroup can be made here; empty when one can."""
    try:
        with _memory_cgroup(1 << 30):
            return ""
    except OSError as error:
        return f"needs root and a memory cgroup that can be written: {error}"


@contextlib.contextmanager
def _memory_cgroup(limit: int | None) -> Iterator[Callable[[], object] | None]:
    """Yields what a child must call to enter a new memory cgroup of this limit in bytes; None without."""
    if limit is None:
        yield None
        return
    v1 = Path("/sys/fs/cgroup/memory")
    path = Path(tempfile.mkdtemp(prefix="ddplaunch-corpus-", dir=v1 if v1.is_dir() else "/sys/fs/cgroup"))
    try:
        (path / ("memory.limit_in_bytes" if v1.is_dir() else "memory.max")).write_text(str(limit))
        yield lambda: (path / "cgroup.procs").write_text(str(os.getpid()))
    finally:
        _remove(path)


def cpu_cgroups_missing() -> str:
    """Why no cgroup with a quota of CPU time can be made here; empty when one can."""
    try:
        with tempfile.TemporaryDirectory() as folder, _cpu_cgroup(1.0, Path(folder, "cpus")):
            return ""
    except OSError as error:
        return f"needs root and a cpu cgroup that can be written: {error}"


@contextlib.contextmanager
def _cpu_cgroup(limit: float | None, name: Path) -> Iterator[None]:
    """A cgroup of `limit` CPUs, to which the link `name` leads: a program enters it by itself. None: none."""
    if limit is None:
        yield
        return
    v1 = Path("/sys/fs/cgroup/cpu")
    path = Path(tempfile.mkdtemp(prefix="ddplaunch-corpus-", dir=v1 if v1.is_dir() else "/sys/fs/cgroup"))
    try:
        quota = int(limit * 100_000)
        if v1.is_dir():
            (path / "cpu.cfs_period_us").write_text("100000")
            (path / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (path / "cpu.max").write_text(f"{quota} 100000")
        name.symlink_to(path)
        yield
    finally:
        _remove(path)


def _remove(cgroup: Path) -> None:
    """The kernel needs a moment after the last process has left."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return cgroup.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
