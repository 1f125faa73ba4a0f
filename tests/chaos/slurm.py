"""A job on a real Slurm of the tests: a cluster of its own while it runs, whose machines can be broken."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import time
import uuid

from tests.busy import BUSY
from tests.chaos import injuries, jobs
from tests.chaos.injuries import MARK, Process
from tests.chaos.oracle import Facts
from tests.chaos.play import answer, play
from tests.chaos.scenario import AWAY, CLI, CUT, FILL, KILL, MACHINE, Injury, Scenario
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.machines import ClusterError as ClusterError

from ddplaunch.agent.contract import Files, bundle_file, codec
from ddplaunch.backends.slurm import outcomes

_SCRIPT = "import sys; from ddplaunch.cli.main import main; sys.exit(main())"
_OURS = "ddplaunch-"
_STEP = "slurmstepd: "
"""How Slurm calls the daemon of a step on a node."""
_ROOM = "2G"
_idle: queue.SimpleQueue[Cluster] = queue.SimpleQueue()
"""Clusters that wait for their next job. They end with this process."""


class Slurm:
    """A `World`: the cluster is all the job's."""

    def __init__(self, cluster: Cluster, scenario: Scenario) -> None:
        self.cluster = cluster
        self.mark = uuid.uuid4().hex
        self._search = injuries.Search(lambda environ: environ.get(MARK) == self.mark)
        self.work = cluster.shared / self.mark
        self.job = jobs.write(
            scenario, self.work, python=sys.executable, resources={"memory": "300Mi", "cpus": 1}
        )
        self._dead: set[str] = set()
        self._handle = ""
        self._waiting: subprocess.Popen[bytes] | None = None

    def submit(self) -> None:
        """`submit --wait` on the login machine; returns once it has the handle, or has failed."""
        with (self.work / "handle").open("wb") as out, (self.work / "waiting").open("wb") as err:
            self._waiting = subprocess.Popen(
                self._words("submit", str(self.job), "--to", "slurm", "--wait"),
                env=self._env(marked=True),
                stdout=out,
                stderr=err,
            )
        deadline = time.monotonic() + BUSY * 20
        while not self._handle and self._waiting.poll() is None and time.monotonic() < deadline:
            self._handle = (self.work / "handle").read_text().strip()
            time.sleep(0.02)

    def processes(self) -> list[Process]:
        """Processes with the mark in their environment, which sbatch hands on."""
        return self._search()

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """To its end, within two minutes."""
        filled = [word.replace("{job}", self._handle or "slurm://0") for word in words]
        return answer(self._words(*filled), self._env())

    def over(self, living: list[Process]) -> bool:
        """Whether no process is left on machines that live, and Slurm has ended the job."""
        left = [each for each in living if each.role != CLI and not self._is_dead(each)]
        if left:
            return False
        state = self.cluster.state(self._number)
        return not state or state in outcomes.ENDED

    def strike(self, injury: Injury) -> bool:
        """Break a machine, its disk or its network, or take the controller away."""
        machine = self.cluster.nodes[injury.node]
        if injury.target == MACHINE:
            if injury.action == KILL:
                self.cluster.power_off(machine)
            else:
                self.cluster.freeze(machine)
            if injury.seconds is None:
                self._dead.add(machine)
        elif injury.action == FILL:
            disk = os.statvfs(self.cluster.path(machine, "/tmp"))
            used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
            self.cluster.run(machine, ["mount", "-o", f"remount,size={used + 4096}", "/tmp"])
        elif injury.action == CUT:
            self.cluster.nft(machine, "drop")
        elif injury.action == AWAY:
            self.cluster.stop_controller()
        return True

    def heal(self, injury: Injury) -> None:
        machine = self.cluster.nodes[injury.node]
        if injury.target == MACHINE:
            self.cluster.thaw(machine)
        elif injury.action == FILL:
            self.cluster.run(machine, ["mount", "-o", f"remount,size={_ROOM}", "/tmp"])
        elif injury.action == CUT:
            self.cluster.run(machine, ["nft", "flush", "ruleset"])
        elif injury.action == AWAY:
            self.cluster.start_controller()

    def bundle(self) -> bool:
        found = self.work.glob(f"{jobs.NAME}-*/{Files.BUNDLE}")
        try:
            return bool([bundle_file.read(str(path)) for path in found])
        except (OSError, codec.ContractError):
            return False

    def left(self) -> list[str]:
        found = []
        for node in self.cluster.nodes:
            if node not in self._dead:
                found += [
                    f"{node}: {words[:150]}"
                    for words in self.cluster.processes(node).values()
                    if not (self._dead and words.startswith(_STEP))  # it waits for the node that is gone
                ]
                found += [f"{node}: {path}" for path in self.cluster.leftovers(node) if _OURS in path]
        return found

    def output(self) -> str:
        found = [*self.work.glob(f"{jobs.NAME}-*.out"), *self.work.glob(f"{jobs.NAME}-*/{Files.HUB_LOG}")]
        return "\n".join(path.read_text(errors="replace") for path in found)

    def leave(self) -> None:
        """End what is left of the job, and remove its files; the cluster stays as it is."""
        if self._waiting is not None:
            injuries.end([each for each in self.processes() if each.role == CLI])
            self._waiting.kill()
            self._waiting.wait()
        subprocess.run(["rm", "-rf", self.work], check=True)

    def close(self) -> None:
        """Leave the cluster as new for the next job, or end it."""
        try:
            self.cluster.restore()
            self.leave()
            for node in self.cluster.nodes:
                self.cluster.run(node, ["sh", "-c", f"rm -rf /tmp/{_OURS}[0-9]*"])
        except (ClusterError, subprocess.SubprocessError):
            self.cluster.down()
        else:
            _idle.put(self.cluster)

    # --- inside

    @property
    def _number(self) -> int:
        return int(self._handle.rpartition("/")[2] or 0)

    def _is_dead(self, process: Process) -> bool:
        return process.node is not None and self.cluster.nodes[process.node] in self._dead

    def _words(self, *words: str) -> list[str]:
        return self.cluster.words("ctl", [sys.executable, "-c", _SCRIPT, *words], cwd=self.work)

    def _env(self, marked: bool = False) -> dict[str, str]:
        path = ":".join(each for each in sys.path if each)
        own = {"XDG_STATE_HOME": str(self.work / "state"), "PYTHONPATH": path, "NO_COLOR": "1"}
        return {**self.cluster.env, **own, **({MARK: self.mark} if marked else {})}


def played(scenario: Scenario) -> Facts:
    """Play it on an idle cluster, or on a new one."""
    cluster = None
    with contextlib.suppress(queue.Empty):
        cluster = _idle.get_nowait()
    world = Slurm(cluster or Cluster.up(), scenario)
    try:
        return play(world, scenario, jobs.last_line(scenario))
    finally:
        world.close()


def end() -> None:
    """End the clusters that wait."""
    with contextlib.suppress(queue.Empty):
        while True:
            _idle.get_nowait().down()
