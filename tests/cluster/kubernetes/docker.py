"""The docker that carries the cluster's nodes: one that runs already, or our own, started and stopped here.

Ours shares nothing with another: its images lie in the cache folder, its socket and state below /run.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.cache import CACHE
from tests.cluster.kubernetes.cache import ClusterError, hold, is_held, locked

ROOT = Path(__file__).resolve().parents[3]
RUN = Path("/run/ddplaunch-docker")
_SOCKET = RUN / "docker.sock"
_PID = RUN / "docker.pid"
_LOG = CACHE / "dockerd.log"
_CAP_SYS_RESOURCE = 24
_PLACES = ("/usr/sbin", "/sbin", "/usr/local/go/bin")
"""Where programs lie that not every PATH has; the last is where Go's own instructions put it. What
scripts/go-toolchain has installed goes before them, and before a Go that is too old."""
_WATCHES = Path("/proc/sys/fs/inotify/max_user_instances")
_ENOUGH = 1024
"""Of them; every node has about fifteen, of the 128 that the kernel gives to a user."""
_daemons: list[subprocess.Popen[bytes]] = []
_uses: list[int] = []
_KIND = "io.x-k8s.kind.cluster"
"""A label of all nodes that kind makes."""


def missing() -> str:
    """Why there is no docker here and none can be started; empty when there is one or can be."""
    if _another_runs():
        return ""
    if os.geteuid() != 0:
        return "needs root, to start docker's daemon, or a docker that runs"
    absent = [tool for tool in ("docker", "dockerd", "iptables", "jq") if which(tool) is None]
    return f"needs {', '.join(absent)} (scripts/system-packages installs them)" if absent else ""


def runs() -> bool:
    """Whether docker answers."""
    return _another_runs() or _answers(_SOCKET)


def environment() -> dict[str, str]:
    """This process's environment, with the way to the docker that is used. It need not run yet."""
    found = dict(os.environ)
    found["PATH"] = _path()
    if not _another_runs():
        found["DOCKER_HOST"] = f"unix://{_SOCKET}"
    return found


def docker(*words: str | Path, stdin: bytes | None = None, check: bool = True, timeout: float = 120.0) -> str:
    """Run the client; returns what it says. Raises ClusterError with its complaint."""
    return run(["docker", *words], stdin=stdin, check=check, timeout=timeout)


def run(
    command: Sequence[str | Path],
    stdin: bytes | None = None,
    check: bool = True,
    timeout: float = 120.0,
    extra: dict[str, str] | None = None,
    held: Sequence[int] = (),
) -> str:
    """Run a program that calls docker, such as kind. It dies with this process, and holds `held`."""
    done = subprocess.run(
        ["setpriv", "--pdeathsig=KILL", *map(str, command)],
        pass_fds=held,
        env={**environment(), **(extra or {})},
        input=stdin,
        capture_output=True,
        timeout=timeout,
        check=False,
    )
    said, complaint = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
    if check and done.returncode != 0:
        raise ClusterError(
            f"{' '.join(map(str, command))}: exit {done.returncode}: {said}{complaint}".strip()
        )
    return said


def start() -> None:
    """See to it that docker answers: start our own unless one does. Until `let_go` nobody stops it."""
    with locked("dockerd", "docker's daemon starts or ends", 120):
        if not _uses:
            _uses.append(hold("docker-users"))
        if runs():
            return
        RUN.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            _PID.unlink()  # of one that was killed; docker refuses to start beside it
        _allow_watches()
        (RUN / "daemon.json").write_text("{}")  # not the settings of another docker
        with _LOG.open("wb") as log:
            daemon = subprocess.Popen(
                _command(), env=environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, cwd="/",
            )  # fmt: skip
        deadline = time.monotonic() + 60
        _daemons.append(daemon)  # it outlives this call, and this process
        while not _answers(_SOCKET):
            if daemon.poll() is not None or time.monotonic() > deadline:
                daemon.kill()
                raise ClusterError(f"dockerd does not answer:\n{_LOG.read_text(errors='replace')[-3000:]}")
            time.sleep(0.1)
        # Their keepers were killed, and docker starts such nodes again when it starts itself.
        left = docker("ps", "--all", "--quiet", "--filter", f"label={_KIND}").split()
        if left:
            docker("rm", "--force", "--volumes", *left)


def _command() -> list[str]:
    # The pools lie apart from those of another docker and of most networks.
    pools = "base=10.213.0.0/16,size=24"
    # Who started it may have been in no hurry; the nodes are.
    words = [
        "nice",
        f"--adjustment={-os.nice(0)}",
        "dockerd",
        f"--data-root={CACHE / 'docker'}",
        f"--exec-root={RUN / 'exec'}",
    ]
    words += [
        f"--pidfile={_PID}",
        f"--host=unix://{_SOCKET}",
        "--log-level=warn",
        "--storage-driver=overlay2",
    ]
    words += [
        "--bip=10.212.0.1/24",
        f"--default-address-pool={pools}",
        f"--config-file={RUN / 'daemon.json'}",
    ]
    if not _may_raise_limits():
        stand_in = ROOT / "docker/kind-node/runc-bounded"
        words += [f"--add-runtime=bounded={stand_in}", "--default-runtime=bounded"]
    return words


def let_go() -> None:
    """This process needs it no longer."""
    while _uses:
        os.close(_uses.pop())


def stop() -> bool:
    """Stop our own docker, unless somebody still needs it. Returns whether none of ours is left."""
    with locked("dockerd", "docker's daemon starts or ends", 120):
        let_go()
        if not _answers(_SOCKET):
            return True
        if is_held("docker-users") or docker("ps", "--quiet"):
            return False
        pid = int(_PID.read_text())
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 30
        while _lives(pid):
            if time.monotonic() > deadline:
                raise ClusterError("dockerd does not end within 30 s")
            time.sleep(0.1)
        _forget_network()
        _WATCHES.write_text((RUN / "watches").read_text())
        shutil.rmtree(RUN, ignore_errors=True)
        return True


def _allow_watches() -> None:
    """As many as several clusters need, until our docker ends."""
    place = RUN / "watches"
    if not place.exists():  # else a docker that was killed has noted it
        place.write_text(_WATCHES.read_text())
    _WATCHES.write_text(str(max(int(place.read_text()), _ENOUGH)))


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"  # its parent has not noticed yet


def _forget_network() -> None:
    """Take back what dockerd leaves in the kernel: bridges, and a firewall that forwards nothing."""
    shown = subprocess.run(["ip", "-json", "addr", "show", "type", "bridge"], capture_output=True, check=True)
    for device in json.loads(shown.stdout or "[]"):
        addresses = [each.get("local", "") for each in device.get("addr_info", [])]
        if any(address.startswith(("10.212.", "10.213.")) for address in addresses):
            subprocess.run(["ip", "link", "del", device["ifname"]], check=False)
    for tool in ("iptables", "ip6tables"):
        if which(tool) is None:
            continue
        saved = _firewall([f"{tool}-save"])
        kept = [line for line in saved.splitlines() if "DOCKER" not in line and not _is_ours(line)]
        kept = [":FORWARD ACCEPT [0:0]" if line.startswith(":FORWARD DROP") else line for line in kept]
        _firewall([f"{tool}-restore"], "\n".join(kept) + "\n")


def _is_ours(rule: str) -> bool:
    return "br-" in rule or "docker0" in rule or "10.212." in rule or "10.213." in rule


def _firewall(command: list[str], rules: str = "") -> str:
    done = subprocess.run(
        command, input=rules, env=environment(), capture_output=True, text=True, check=False
    )
    return done.stdout


@functools.cache
def _another_runs() -> bool:
    return os.environ.get("DOCKER_HOST") != f"unix://{_SOCKET}" and _answers(None)


def _answers(socket: Path | None) -> bool:
    """Whether a docker is there: behind this socket, or wherever the client looks by itself."""
    if which("docker") is None:
        return False
    where = ["--host", f"unix://{socket}"] if socket else []
    if socket and not socket.exists():
        return False
    done = subprocess.run(
        ["docker", *where, "version", "--format", "{{.Server.Version}}"],
        capture_output=True,
        timeout=30,
        check=False,
    )
    return done.returncode == 0


def which(tool: str) -> str | None:
    """Where a program lies; a user's PATH often lacks the folders of such."""
    return shutil.which(tool, path=_path())


def _path() -> str:
    return ":".join([str(CACHE / "go/bin"), *filter(None, [os.environ.get("PATH")]), *_PLACES])


def _may_raise_limits() -> bool:
    status = Path("/proc/self/status").read_text()
    bounding = next(line.split()[1] for line in status.splitlines() if line.startswith("CapBnd:"))
    return bool(int(bounding, 16) >> _CAP_SYS_RESOURCE & 1)
