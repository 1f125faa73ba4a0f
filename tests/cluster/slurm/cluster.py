"""A real Slurm of several nodes on this machine: controller, authentication and node daemons in namespaces.

By hand, as root, from the repository's root (`python -m tests.cluster.slurm` says more):

    python -m tests.cluster.slurm up /tmp/lab             # three nodes, idle after two seconds
    python -m tests.cluster.slurm run /tmp/lab ctl sbatch job.sh
    python -m tests.cluster.slurm run /tmp/lab n1 ip addr
    python -m tests.cluster.slurm down /tmp/lab

Machines are `ctl`, where the controller runs and jobs are submitted, and `n1`, `n2`, …. Each has its own
network, host name, /etc/hosts and /etc/slurm; the nodes also their own processes, /tmp, /dev/shm and /sys,
while `ctl` sees this machine's. The same everywhere are this repository, its Python, and the folder of the
cluster, in which `shared` is for jobs. Clusters on one machine do not see each other.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.slurm import box, cgroups, settings
from tests.cluster.slurm.box import Box
from tests.cluster.slurm.faults import Faults
from tests.cluster.slurm.machines import CONTROLLER, ClusterError

from ddplaunch.backends.slurm import outcomes

_PREFIX = "ddplaunch-slurm-"
_PARTS = ("etc/slurm", "log", "munge", "state", "spool", "dev", "boxes")


class Cluster(Faults):
    """One that is up: made by `up`, or found again by `attach`. Waits are bounded and raise ClusterError."""

    # --------------------------------------------------------------- up and down

    @classmethod
    def up(
        cls,
        folder: Path | None = None,
        nodes: int = 3,
        conf: str = "",
        cgroup: bool | None = None,
        gpus: int = 2,
        outlive: bool = False,
    ) -> Cluster:
        """Start one and wait until its nodes are idle.

        `conf`: further lines of slurm.conf. `cgroup`: control groups track processes and limit memory (None:
        where this machine has them). `gpus`: fake ones per node. Unless it shall `outlive` this process, it
        dies with it.
        """
        sweep()
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)  # other users submit jobs, too
        if any(folder.iterdir()):
            raise ClusterError(f"{folder} is not empty; is another cluster up there?")
        cluster = cls(folder.resolve())
        try:
            cluster._start(nodes, conf, cgroups.usable() if cgroup is None else cgroup, gpus, outlive)
        except BaseException:
            cluster.down()
            raise
        return cluster

    @classmethod
    def attach(cls, folder: Path) -> Cluster:
        """The cluster that was brought up in `folder`."""
        cluster = cls(folder.resolve())
        if not _is_up(cluster.folder):
            raise ClusterError(f"no cluster is up in {folder}")
        for file in (cluster.folder / "boxes").iterdir():
            cluster._boxes[file.name] = Box(int(file.read_text()))
        return cluster

    def _start(self, nodes: int, conf: str, cgroup: bool, gpus: int, outlive: bool) -> None:
        for part in _PARTS:
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        lock = _lock(self.folder)
        try:
            self._remember("holder", box.hold(lock, outlive))
        finally:
            os.close(lock)
        self.shared.mkdir(exist_ok=True)
        self.shared.chmod(0o1777)
        names = [f"n{number}" for number in range(1, nodes + 1)]
        first_job = cgroups.first_job(_first_jobs(self.folder.parent))
        (self.folder / "nodes").write_text(" ".join(names))
        (self.folder / "first_job").write_text(str(first_job))
        for number in range(gpus):
            os.mknod(self.folder / f"dev/gpu{number}", 0o666 | 0o020000, os.makedev(1, 3))
        etc = self.folder / "etc"
        (etc / "nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files\n")
        base = settings.slurm_conf(self.folder, names, first_job, cgroup, gpus, conf)
        (self.folder / "slurm.conf").write_text(base)
        (etc / "slurm/slurm.conf").write_text(base)
        (etc / "slurm/cgroup.conf").write_text(settings.CGROUP_CONF)
        (etc / "slurm/gres.conf").write_text(settings.gres_conf(self.folder, gpus))
        for name in [CONTROLLER, *names]:
            (etc / name).mkdir(exist_ok=True)
            self.hosts(name).write_text(settings.hosts(names))
        self._start_munge()
        self._power_on(CONTROLLER)
        self.start_controller()
        for name in names:
            self._power_on(name)
            self.start_slurmd(name)
        self.idle()

    def _start_munge(self) -> None:
        place = self.folder / "munge"
        key = place / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        files = {"key-file": key, "socket": place / "socket", "pid-file": place / "pid"}
        files |= {"log-file": place / "log", "seed-file": place / "seed"}
        words = [f"--{name}={path}" for name, path in files.items()]
        holder = self._boxes["holder"].first
        # By force: it mistrusts folders such as /tmp.
        subprocess.run(["nsenter", f"--target={holder}", "--pid", "munged", "--force", *words], check=True)

    def down(self) -> None:
        """End all of it. Nothing is left, unless files of the folder that are not the cluster's."""
        if "holder" in self._boxes:
            box.kill(self._boxes["holder"].first)
        for each in self._boxes.values():
            each.bury()
        _clear(self.folder)

    @property
    def release(self) -> tuple[int, ...]:
        """Slurm's: (22, 5)."""
        said = self.login(["sinfo", "--version"]).stdout  # slurm-wlm 22.05.8
        return tuple(int(part) for part in said.split()[-1].split(".")[:2])

    # --------------------------------------------------------------- jobs

    def submit(self, script: str, *options: str, cwd: Path | None = None, user: str = "root") -> int:
        """sbatch; returns the job's id. The job's output is slurm-ID.out in `cwd`."""
        words = ["runuser", f"--user={user}", "--", "sbatch", "--parsable", *options]
        done = self.run(CONTROLLER, words, cwd, stdin=script)
        return int(done.stdout.partition(";")[0])

    def state(self, job: int) -> str:
        """PENDING, RUNNING, COMPLETED, …; empty when Slurm has forgotten it, ? when it does not answer."""
        words = ["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T"]
        done = self.login(words, check=False)
        silent = done.returncode != 0 and "Invalid job id" not in done.stderr
        return "?" if silent else done.stdout.strip()

    def running(self, job: int, seconds: float = 30.0) -> None:
        """Wait until the job runs."""
        self.until(lambda: self.state(job) == "RUNNING", f"job {job} runs", seconds, lambda: self.state(job))

    def ended(self, job: int, seconds: float = 60.0) -> str:
        """Wait until the job is over; returns its last state."""
        state = ""

        def over() -> bool:
            nonlocal state
            state = self.state(job)
            return not state or state in outcomes.ENDED

        self.until(over, f"job {job} is over", seconds, lambda: state)
        return state

    def idle(self, seconds: float = 30.0) -> None:
        """Wait until no job is left and every node is idle."""
        self.until(self._is_idle, "all nodes are idle", seconds, self._overview)

    def _is_idle(self) -> bool:
        outcomes = self.login(
            ["sinfo", "--noheader", "--Node", "--partition=all", "--format=%T"], check=False
        )
        return ["idle"] * len(self.nodes) == outcomes.stdout.split() and self._is_empty()

    def _overview(self) -> str:
        commands = (["sinfo", "--Node", "--long"], ["squeue"])
        return "\n".join(self.login(words, check=False).stdout for words in commands)

    def configure(self, *lines: str) -> None:
        """Add these lines to the slurm.conf of the start, instead of earlier ones; returns when it counts."""
        base = (self.folder / "slurm.conf").read_text()
        (self.folder / "etc/slurm/slurm.conf").write_text(base + "".join(f"{line}\n" for line in lines))
        told = {node: self._readings(node) for node in self.nodes if self._daemons(node, "slurmd")}
        self.login(["scontrol", "reconfigure"])
        for node, before in told.items():
            self.until(lambda n=node, b=before: self._readings(n) > b, f"{node} has read it", 20)  # type: ignore[misc]

    def _readings(self, node: str) -> int:
        """How often the node's daemon has read its configuration: this is the last it says of it."""
        return (self.folder / f"log/{node}.log").read_text().count("CPU frequency setting not configured")

    def restore(self) -> None:
        """No jobs, no faults, the configuration of the start, all nodes idle."""
        self.clear_faults()
        if not self._is_idle():
            jobs = self.login(["squeue", "--noheader", "--format=%A"]).stdout.split()
            if jobs:
                self.login(["scancel", *jobs], check=False)
            self.until(self._is_empty, "no job is left", 60, self._overview)
        if (self.folder / "slurm.conf").read_text() != (self.folder / "etc/slurm/slurm.conf").read_text():
            self.configure()
        if not self._is_idle():
            names = f"nodename={','.join(self.nodes)}"
            self.login(["scontrol", "update", names, "state=resume"], check=False)
        self.idle()

    def _is_empty(self) -> bool:
        jobs = self.login(["squeue", "--noheader"], check=False)
        return (0, "") == (jobs.returncode, jobs.stdout)


def missing() -> str:
    """Why there can be no cluster here; empty when there can."""
    if os.geteuid() != 0:
        return "needs root, to make namespaces"
    tools = ("slurmctld", "slurmd", "sbatch", "munged", "ip", "nft", "nsenter", "unshare", "setpriv")
    absent = [tool for tool in tools if shutil.which(tool, path="/usr/sbin:/usr/bin:/sbin:/bin") is None]
    return f"needs {', '.join(absent)} (scripts/system-packages installs them)" if absent else ""


def sweep() -> None:
    """Remove what clusters left whose test run was killed: processes died with it, files did not."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            young = time.time() - folder.stat().st_mtime < 60
            # In this order: a cluster that is being started has its lock between two looks.
            begun = (folder / "lock").exists() or not young
            if begun and not _is_up(folder):
                _clear(folder)


def remove(folder: Path) -> None:
    """End the cluster in `folder`, or clear away what a dead one left there. Raises ClusterError."""
    if _is_up(folder):
        Cluster.attach(folder).down()
    elif (folder / "lock").exists():
        _clear(folder)
    else:
        raise ClusterError(f"{folder} has never been a cluster's")


def _lock(folder: Path) -> int:
    """A descriptor with the folder's lock; whoever inherits it holds the lock, until the last one ends."""
    fresh = folder / f"lock.{os.getpid()}"
    lock = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    fresh.rename(folder / "lock")  # only now: a lock that nobody holds is a dead cluster's
    return lock


def _first_jobs(parent: Path) -> Iterator[int]:
    """Where the ids of jobs begin in the clusters of this folder. One that is just made has no number yet."""
    for file in parent.glob("*/first_job"):
        with contextlib.suppress(OSError, ValueError):
            yield int(file.read_text())


def _is_up(folder: Path) -> bool:
    try:
        with (folder / "lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _clear(folder: Path) -> None:
    """What a dead cluster leaves behind."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        cgroups.remove(int((folder / "first_job").read_text()))
    shutil.rmtree(folder)
