"""The machines of a cluster: started, connected, entered, looked at. They know nothing of Slurm."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.busy import BUSY
from tests.cluster.slurm import box, settings
from tests.cluster.slurm.box import Box

ROOT = Path(__file__).resolve().parents[3]
CONTROLLER = settings.CONTROLLER


class ClusterError(Exception):
    """The cluster is not as it should be; the message shows what it says itself."""


class Machines:
    """`ctl` and n1, n2, … of the cluster in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shared = folder / "shared"
        self._boxes: dict[str, Box] = {}

    @property
    def nodes(self) -> list[str]:
        """n1, n2, …"""
        return (self.folder / "nodes").read_text().split()

    @property
    def machines(self) -> list[str]:
        """The controller, then the nodes."""
        return [CONTROLLER, *self.nodes]

    @staticmethod
    def address(machine: str) -> str:
        """Its address in the cluster's network."""
        return settings.CONTROLLER_ADDRESS if machine == CONTROLLER else settings.address(machine)

    def hosts(self, machine: str) -> Path:
        """Its own /etc/hosts. Write to it, do not replace it: it is mounted."""
        return self.folder / "etc" / machine / "hosts"

    def path(self, machine: str, inside: str) -> Path:
        """Where this machine finds the file that `machine` calls `inside`."""
        return Path(f"/proc/{self._first(machine)}/root") / inside.lstrip("/")

    def _power_on(self, machine: str) -> None:
        kept = None if machine == CONTROLLER else _seen_everywhere(self.folder)
        log = self.folder / f"log/{machine}.out"
        started = box.start(self._boxes["holder"].first, machine, self.folder / "etc", kept, log)
        self._remember(machine, started)
        self._connect(machine)

    def _connect(self, machine: str) -> None:
        target = self._first(machine)
        if machine == CONTROLLER:
            lines = ["link add switch type bridge", f"addr add {self.address(machine)}/24 dev switch"]
            self._ip(CONTROLLER, *lines, "link set lo up", "link set switch up")
            return
        end = f"veth-{machine}"
        # The kernel takes its time to remove what a powered-off node had.
        with contextlib.suppress(ClusterError):
            self._ip(CONTROLLER, f"link del {end}")
        # A machine keeps its card: others remember the address of the card for half a minute.
        card = "02:00:" + ":".join(f"{int(part):02x}" for part in self.address(machine).split("."))
        make = f"link add {end} type veth peer name eth0 address {card} netns {target}"
        self._ip(CONTROLLER, make, f"link set {end} master switch up")
        up = [f"addr add {self.address(machine)}/24 dev eth0", "link set lo up", "link set eth0 up"]
        self._ip(machine, *up)

    def _ip(self, machine: str, *lines: str) -> None:
        words = ["nsenter", f"--target={self._first(machine)}", "--net", "ip", "-batch", "-"]
        done = subprocess.run(words, input="\n".join(lines), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ClusterError(f"ip on {machine}: {'; '.join(lines)}: {done.stderr.strip()}")

    def _first(self, machine: str) -> int:
        try:
            return self._boxes[machine].first
        except KeyError:
            raise ClusterError(f"{machine} is powered off, or is none of {self.machines}") from None

    def _remember(self, name: str, started: Box) -> None:
        self._boxes[name] = started
        (self.folder / "boxes" / name).write_text(str(started.first))

    def _forget(self, name: str) -> Box:
        (self.folder / "boxes" / name).unlink()
        return self._boxes.pop(name)

    # --------------------------------------------------------------- commands

    @property
    def env(self) -> dict[str, str]:
        """An environment for commands on any machine: this process's, without what is only its own."""
        own = ("SLURM_", "DDPLAUNCH_", "PYTEST_", "SRUN_", "SBATCH_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
        places = [
            str(Path(sys.executable).parent),
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        ]
        return {**kept, "PATH": ":".join(places)}

    def words(self, machine: str, command: Sequence[str | Path], cwd: Path | str | None = None) -> list[str]:
        """The command line that runs `command` on `machine`; by default in the shared folder."""
        start = box.enter(self._first(machine), machine != CONTROLLER, str(cwd or self.shared))
        return [*start, *map(str, command)]

    def run(
        self,
        machine: str,
        command: Sequence[str | Path],
        cwd: Path | str | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
        timeout: float = 60.0,
        stdin: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Run a command there and wait for it. With `check`, one that fails raises with what it said."""
        done = subprocess.run(
            self.words(machine, command, cwd),
            env={**self.env, **(env or {})},
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=BUSY * timeout,
            check=False,
        )
        if check and done.returncode != 0:
            said = f"{done.stdout}{done.stderr}".strip()
            raise ClusterError(f"{machine}: {' '.join(map(str, command))}: exit {done.returncode}: {said}")
        return done

    def _start_daemon(self, machine: str, *command: str) -> None:
        """It goes to the background by itself, and dies with the machine."""
        words = [*box.enter(self._first(machine), True, "/"), *command]
        done = subprocess.run(
            words, env=self.env, capture_output=True, text=True, timeout=BUSY * 30, check=False
        )
        if done.returncode != 0:
            raise ClusterError(f"{machine}: {' '.join(command)}: {done.stdout}{done.stderr}{self.logs()}")

    def start(
        self, machine: str, command: Sequence[str | Path], cwd: Path | str | None = None
    ) -> subprocess.Popen[str]:
        """Start a command there, its output in one pipe. On `ctl` signals reach the command itself."""
        return subprocess.Popen(
            self.words(machine, command, cwd),
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def login(
        self,
        command: Sequence[str | Path],
        cwd: Path | str | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
        timeout: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command where users log in: sbatch, squeue, ddplaunch."""
        return self.run(CONTROLLER, command, cwd, env, check, timeout)

    def until(
        self, happened: Callable[[], bool], what: str, seconds: float, found: Callable[[], str] = str
    ) -> None:
        """Wait for a condition; past the deadline raise with what was `found` instead and the last logs.

        `seconds` are those of a machine that has little else to do.
        """
        deadline = time.monotonic() + BUSY * seconds
        while not happened():
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"not within {BUSY * seconds:.0f} s: {what}. Found: {found()}\n{self.logs()}"
                )
            time.sleep(0.2)  # a look often starts squeue or scontrol, which costs the tests their CPU

    def logs(self, lines: int = 15) -> str:
        """The last lines of what every daemon wrote."""
        ends = []
        for file in sorted((self.folder / "log").glob("*.*")):
            last = file.read_text(errors="replace").splitlines()[-lines:]
            ends.append("\n".join([f"-- {file.name}", *last]))
        return "\n".join(ends)

    # --------------------------------------------------------------- what is there

    def processes(self, node: str) -> dict[int, str]:
        """What runs on a node besides Slurm's own daemon: this machine's process ids, and command lines."""
        found = box.processes(self._first(node))
        return {pid: words for pid, words in found.items() if words and not words.startswith("slurmd -N")}

    def leftovers(self, node: str) -> list[str]:
        """Files in the node's /tmp and /dev/shm, in order."""
        kept = {str(path) for path in _seen_everywhere(self.folder)}
        found: list[str] = []
        for top in ("/tmp", "/dev/shm"):
            root = self.path(node, top)
            for where, folders, files in os.walk(root):
                inside = top + where.removeprefix(str(root))
                folders[:] = [name for name in folders if f"{inside}/{name}" not in kept]
                found += [f"{inside}/{name}" for name in files]
                found += [f"{inside}/{name}" for name in folders if not any(Path(where, name).iterdir())]
        parents = {str(parent) for path in kept for parent in Path(path).parents}
        return sorted(path for path in found if path not in parents)


def _seen_everywhere(folder: Path) -> list[Path]:
    """Folders below /tmp that the nodes, which have a /tmp of their own, must see nevertheless."""
    wanted = {folder, ROOT, Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
    below = {path for path in wanted if path.is_relative_to("/tmp")}
    return sorted(path for path in below if not any(other in path.parents for other in below))
