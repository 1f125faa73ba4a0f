"""A job on a real Kubernetes of the tests: a namespace of its own, on the cluster that is up.

Its pods are processes of this machine, too: the cluster's nodes are containers here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from tests.busy import BUSY
from tests.chaos import injuries, jobs
from tests.chaos.injuries import MARK, Process
from tests.chaos.oracle import CODES, Facts
from tests.chaos.play import answer, play
from tests.chaos.scenario import AWAY, CLI, CUT, MACHINE, Injury, Scenario
from tests.cluster.kubernetes import images
from tests.cluster.kubernetes.cache import ClusterError as ClusterError
from tests.cluster.kubernetes.cluster import Cluster, default_name
from tests.cluster.kubernetes.faults import Faults
from tests.cluster.kubernetes.gates import PLAIN

_SCRIPT = "import sys; from ddplaunch.cli.main import main; sys.exit(main())"


class Kubernetes:
    """A `World`."""

    def __init__(self, cluster: Cluster, namespace: str, scenario: Scenario) -> None:
        self.cluster = cluster
        self.faults = Faults(cluster)
        self._machines = cluster.workers  # asked for now: later the API server may be away
        self.mark = uuid.uuid4().hex
        self._search = injuries.Search(self._belongs)
        self.name = f"{jobs.NAME}-{self.mark[:8]}"
        self.folder = Path(tempfile.mkdtemp(prefix="ddplaunch-chaos-", dir="/var/tmp"))
        self.job = jobs.write(
            scenario,
            self.folder,
            name=self.name,
            image=images.TRAINER,
            kubernetes={"namespace": namespace},
            python=PLAIN["python"],
            gate={"timeout": "60s", "skip": PLAIN["gate"]["skip"]},  # the image has no torch of its own
        )
        self.handle = f"kubernetes://{namespace}/{self.name}"
        self._waiting: subprocess.Popen[bytes] | None = None
        self._begun = 0.0
        self._ended = False
        self._asked = 0.0

    def submit(self) -> None:
        """`submit --wait` beside us."""
        with (self.folder / "waiting").open("wb") as output:
            self._waiting = subprocess.Popen(
                self._words("submit", str(self.job), "--to", "kubernetes", "--wait"),
                env=self._env(marked=True),
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._begun = time.monotonic()

    def processes(self) -> list[Process]:
        """Processes in the job's pods, and the `submit` that waits."""
        return self._search()

    def _belongs(self, environ: dict[str, str]) -> bool:
        pod = environ.get("HOSTNAME", "").startswith(f"{self.name}-")
        return pod or environ.get(MARK) == self.mark

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """To its end, within two minutes."""
        filled = [word.replace("{job}", self.handle) for word in words]
        return answer(self._words(*filled), self._env())

    def over(self, living: list[Process]) -> bool:
        """Whether no process is left and the cluster says that the job has ended; asked now and then."""
        if any(each.role != CLI for each in living):
            return False
        now = time.monotonic()
        if not self._ended and now - self._asked > 3.0 and now - self._begun > BUSY * 5:
            self._ended = self.call("status", "{job}").returncode in CODES.values()
            self._asked = time.monotonic()
        return self._ended

    def strike(self, injury: Injury) -> bool:
        """Pause a machine, cut its pods' network, or have the API server answer nothing."""
        if injury.action == AWAY:
            self.faults.pause_api()
            return True
        machine = self._machines[injury.node]
        if injury.target == MACHINE:
            self.faults.pause(machine)
        elif injury.action == CUT:
            self.faults.nft(machine, "drop")
        return True

    def heal(self, injury: Injury) -> None:
        machine = self._machines[injury.node]
        if injury.action == AWAY:
            self.faults.resume_api()
        elif injury.target == MACHINE:
            self.faults.unpause(machine)
        elif injury.action == CUT:
            self.faults.clear_nft(machine)

    def bundle(self) -> bool:
        """Brought home, or still in the hub's log."""
        asked = self.call("diagnose", "{job}", "--json")
        if asked.stdout.startswith("{") and json.loads(asked.stdout)["evidence"] is not None:
            return True
        pods = ["--selector", f"app.kubernetes.io/instance={self.name}", "--container=hub", "--tail=-1"]
        words = ["logs", "--namespace", self.handle.split("/")[2], *pods]
        return "-----END DDPLAUNCH BUNDLE-----" in self.cluster.kubectl(*words, check=False)

    def left(self) -> list[str]:
        return [f"{each.role} {each.words[:150]}" for each in self.processes() if each.role != CLI]

    def output(self) -> str:
        return self.call("logs", "{job}").stdout

    def close(self) -> None:
        """The cluster is whole again; the namespace goes by itself."""
        self.faults.clear()
        if self._waiting is not None:
            self._waiting.kill()
            self._waiting.wait()
        subprocess.run(["rm", "-rf", self.folder], check=True)

    # --- inside

    def _words(self, *words: str) -> list[str]:
        return [sys.executable, "-c", _SCRIPT, *words]

    def _env(self, marked: bool = False) -> dict[str, str]:
        path = os.pathsep.join(each for each in sys.path if each)
        own = {"XDG_STATE_HOME": str(self.folder / "state"), "PYTHONPATH": path, "NO_COLOR": "1"}
        return {**self.cluster.env, **own, **({MARK: self.mark} if marked else {})}


def played(scenario: Scenario) -> Facts:
    """Play it on the cluster that `python -m tests.cluster.kubernetes up` has started."""
    cluster = Cluster.up(default_name())
    with cluster.namespace("chaos") as namespace:
        world = Kubernetes(cluster, namespace, scenario)
        try:
            return play(world, scenario, jobs.last_line(scenario))
        finally:
            world.close()
