"""A job on this machine, in namespaces of its own: processes, network, /tmp and /dev/shm are its alone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from tests.busy import BUSY
from tests.chaos import injuries, jobs
from tests.chaos.injuries import MARK, Process
from tests.chaos.oracle import Facts
from tests.chaos.play import answer, play
from tests.chaos.scenario import CLI, CUT, FILL, JUMP, Injury, Scenario

from ddplaunch.agent.contract import Files, bundle_file, codec

ROOM = 24 << 20
"""Bytes of the state disk: the source, the agent, some logs."""
ROOT = Path(__file__).resolve().parents[2]
"""The checkout; a job must find it though it may lie in the /tmp that is hidden from the job."""
_SCRIPT = "import sys; from ddplaunch.cli.main import main; sys.exit(main())"
_BOX = """
set -eu
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs -o size="$2" tmpfs "$1/state"
mkdir "$1/checkout"
mount --bind "$3" "$1/checkout"
mount -t tmpfs tmpfs /tmp
case $3 in
/tmp/*) mkdir -p "$3" && mount --move "$1/checkout" "$3" ;;
esac
mount --bind "$1/hosts" /etc/hosts
mount --bind "$1/nsswitch.conf" /etc/nsswitch.conf
ip link set lo up
echo ready
trap '' CHLD
exec sleep infinity
"""


class Local:
    """A `World`. Leaves nothing: its first process ends all others."""

    def __init__(self, scenario: Scenario) -> None:
        self.mark = uuid.uuid4().hex
        self._search = injuries.Search(lambda environ: environ.get(MARK) == self.mark)
        self.folder = Path(tempfile.mkdtemp(prefix="ddplaunch-chaos-", dir="/var/tmp"))
        self.clock = self.folder / "clock"
        self.clock.write_text("+0")
        self._jumps = any(injury.action == JUMP for injury in scenario.injuries)
        if self._jumps:
            library = self.folder / "clock.so"
            subprocess.run(["cc", "-shared", "-fPIC", "-o", library, jobs.PROGRAMS / "clock.c"], check=True)
        (self.folder / "state").mkdir()
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost {socket.gethostname()}\n")
        (self.folder / "nsswitch.conf").write_text("hosts: files\n")  # else names wait for a server
        self.job = jobs.write(scenario, self.folder, python=sys.executable)
        words = ["unshare", "--mount", "--net", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc"]
        self._box = subprocess.Popen(
            [*words, "bash", "-c", _BOX, "bash", self.folder, str(ROOM), ROOT],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._box.stdout is not None
        with self._box.stdout:
            if self._box.stdout.readline() != b"ready\n":
                raise RuntimeError("no namespaces could be made: chaos on this machine takes root")
        (self._first,) = _children(self._box.pid)
        self._waiting: subprocess.Popen[bytes] | None = None

    def submit(self) -> None:
        """`submit --wait`, and the host that carries the job beside it."""
        with (self.folder / "waiting").open("wb") as output:
            self._waiting = subprocess.Popen(
                self._words("submit", str(self.job), "--wait"),
                env=self._env(),
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + BUSY * 20
        while not self.processes() and self._waiting.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)

    def processes(self) -> list[Process]:
        """Processes with the mark in their environment, without nsenter, which is the harness' own."""
        return [each for each in self._search() if not each.words.startswith("nsenter ")]

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """To its end, within two minutes."""
        filled = [word.replace("{job}", f"local://{jobs.NAME}") for word in words]
        return answer(self._words(*filled), self._env(marked=False))

    def over(self, living: list[Process]) -> bool:
        """Whether no process is left, but for a `submit --wait` that is stopped."""
        return all(each.role == CLI and _state(each.pid) == "T" for each in living)

    def strike(self, injury: Injury) -> bool:
        """Fill the disk, set the clock, or cut the way to the hub."""
        if injury.action == FILL:
            return _fill(self._inside(self.folder / "state" / "filler"))
        if injury.action == JUMP:
            _replace(self.clock, f"{injury.jump:+.0f}")
            return True
        if injury.action == CUT:
            return self._cut()
        raise ValueError(f"{injury.action} is not done on this machine")

    def heal(self, injury: Injury) -> None:
        if injury.action == FILL:
            self._inside(self.folder / "state" / "filler").unlink(missing_ok=True)
        elif injury.action == CUT:
            self._in_box("nft", "flush", "ruleset")

    def bundle(self) -> bool:
        try:
            bundle_file.read(str(self._run() / Path(Files.BUNDLE).name))
        except (OSError, codec.ContractError) as error:
            print(f"no readable bundle: {error}\n{self.output()}")
            return False
        return True

    def left(self) -> list[str]:
        processes = [f"{each.role} {each.words[:150]}" for each in self.processes() if each.role != CLI]
        found = [
            path / name
            for path in (Path("/tmp"), Path("/dev/shm"))
            for name in os.listdir(self._inside(path))
        ]
        return [*processes, *(str(path) for path in found if path not in (ROOT, *ROOT.parents))]

    def output(self) -> str:
        texts = [self.folder / "waiting"]
        texts += [self._run() / Path(name).name for name in (Files.OUTPUT, Files.HUB_LOG, "run/host.log")]
        found = "\n".join(path.read_text(errors="replace") for path in texts[1:] if path.exists())
        ranks = self._run().glob("node-*/ranks/**/std*.log")
        own = "\n".join(f"] {line}" for path in sorted(ranks) for line in path.read_text().splitlines())
        return f"{own}\n{found.replace('] step', ' step')}"

    def close(self) -> None:
        """End the namespaces and remove the folder."""
        if self._waiting is not None:  # first: the namespaces do not end before it has buried its child
            self._waiting.kill()
            self._waiting.wait()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._first, signal.SIGKILL)
        self._box.wait()
        subprocess.run(["rm", "-rf", self.folder], check=True)

    # --- inside

    def _run(self) -> Path:
        return self._inside(self.folder / "state/ddplaunch/jobs" / jobs.NAME / "1" / Files.RUN)

    def _inside(self, path: Path) -> Path:
        """Where this side finds what the job calls so."""
        return Path(f"/proc/{self._first}/root") / str(path).lstrip("/")

    def _words(self, *words: str) -> list[str]:
        enter = ["nsenter", f"--target={self._first}", "--mount", "--net", "--pid", "--ipc"]
        return [*enter, "env", f"--chdir={self.folder}", sys.executable, "-c", _SCRIPT, *words]

    def _in_box(self, *words: str, stdin: str = "") -> None:
        enter = ["nsenter", f"--target={self._first}", "--net"]
        subprocess.run([*enter, *words], input=stdin, text=True, check=True)

    def _env(self, marked: bool = True) -> dict[str, str]:
        kept = {
            key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "DDPLAUNCH"))
        }
        found = {
            **kept,
            "XDG_STATE_HOME": str(self.folder / "state"),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "NO_COLOR": "1",
        }
        if marked:
            found[MARK] = self.mark
        if self._jumps:
            found |= {"LD_PRELOAD": str(self.folder / "clock.so"), "CHAOS_CLOCK": str(self.clock)}
        return found

    def _cut(self) -> bool:
        """The hub's port lets nothing through."""
        try:
            port = json.loads((self._run() / Path(Files.HUB).name).read_text())["port"]
        except (OSError, ValueError):
            return False
        rules = "add table inet cut\nadd chain inet cut input { type filter hook input priority 0; }\n"
        rules += (
            f"add rule inet cut input tcp dport {port} drop\nadd rule inet cut input tcp sport {port} drop\n"
        )
        self._in_box("nft", "--file", "-", stdin=rules)
        return True


def played(scenario: Scenario) -> Facts:
    """Play it on this machine."""
    world = Local(scenario)
    try:
        return play(world, scenario, jobs.last_line(scenario))
    finally:
        world.close()


def _fill(filler: Path) -> bool:
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass
    return True


def _replace(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


def _state(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "X"


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
