"""Builds the command line, environment and folder of the launch command. Pure but for files."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import tarfile
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Optional, cast

from ddplaunch.agent import hook
from ddplaunch.agent.contract import Env, Files, JobPlan, NodeEvidence, RendezvousSettings, codec
from ddplaunch.agent.supervisor import torchrun_options
from ddplaunch.agent.system import processes, secrets

if TYPE_CHECKING:
    from importlib.abc import ResourceLoader

_HOOK_FILES = (
    "sitecustomize.py",
    "ddplaunch_hook.py",
    "ddplaunch_caught.py",
    "ddplaunch_flight.py",
    "ddplaunch_mpi.py",
    "ddplaunch_output.py",
    "ddplaunch_rendezvous.py",
    "ddplaunch_ring.py",
    "ddplaunch_spawn.py",
    "ddplaunch_ties.py",
    "ddplaunch_torch.py",
)
_RECORDER_SIZE = "2000"
"""Entries of torch's flight recorder; since torch 2.11 the default. Before 2.8 it had another name, which
makes newer ones warn in every rank's log: it is left to those who know the version."""
_TORCHRUN = ("torch.distributed.run", "torch.distributed.launch")


class LaunchError(Exception):
    """The launch command cannot be started. The message names what is missing, `hint` says what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class LaunchContext:
    """The files of this node below the job's folder."""

    def __init__(self, folder: str, node: int) -> None:
        self.folder = folder
        self.number = node
        self.node = os.path.join(folder, Files.NODE.format(node=node))
        self.ranks = os.path.join(self.node, Files.RANKS)
        self.launch_log = os.path.join(self.node, Files.LAUNCH_LOG)
        self.hook = os.path.join(self.node, "hook")
        self.source = os.path.join(self.node, "source")
        self.keeper = os.path.join(self.node, "keeper.json")

    def prepare(self) -> None:
        """Make the folders, and lay out what the workers will read."""
        for path in (self.ranks, self.hook):
            os.makedirs(path, exist_ok=True)
        for name in _HOOK_FILES:
            with open(os.path.join(self.hook, name), "wb") as file:
                file.write(_own_file(hook, name))
        archive = os.path.join(self.folder, Files.SOURCE)
        if os.path.exists(archive) and not os.path.exists(self.source):
            unpack(archive, self.source)

    def expect_keepers(self, node: int, attempt: int, hook: str) -> None:
        """Tell the keepers that MPI's launcher will start on this machine whose they are."""
        partial = f"{self.keeper}.tmp"
        with open(partial, "w", encoding="utf-8") as file:
            json.dump({"node": node, "attempt": attempt, "hook": hook}, file)
        os.replace(partial, self.keeper)

    def agreed(self) -> Optional[RendezvousSettings]:
        """Return what the gate settled; None when there was none. Raises ContractError for a damaged file."""
        path = os.path.join(self.node, Files.AGREED)
        return codec.read(RendezvousSettings, path) if os.path.exists(path) else None

    def keep(self, name: str, evidence: NodeEvidence) -> str:
        """Write it into the node's folder. Returns a sentence for people on where it is."""
        path = os.path.join(self.node, name)
        try:
            codec.write(path, evidence)
        except OSError as error:
            return f"cannot write {path}: {error.strerror}; the hub has the evidence"
        return f"evidence of {len(evidence.ranks)} ranks is in {path}"


def command(
    plan: JobPlan, node: int, attempt: int, agreed: Optional[RendezvousSettings], folder: str = ""
) -> list[str]:
    """The words to execute; `folder` is the job's, for a rank's keeper."""
    values = {
        "{python}": plan.python,
        "{node}": str(node),
        "{is_host}": str(int(node == 0)),
        "{master_addr}": (agreed.master_addr if agreed else plan.master_addr) or "127.0.0.1",
        "{master_port}": str((agreed.master_port if agreed else plan.master_port) or 29500),
        "{run_id}": f"{plan.job}-{attempt}",
    }
    words = []
    for word in plan.launch:
        if word == "{keeper}":
            words += [*processes.own_command(), "rank", "--folder", folder, "--"]
            continue
        for placeholder, value in values.items():
            word = word.replace(placeholder, value)
        words.append(word)
    return words + plan.command


def is_torchrun(words: list[str]) -> bool:
    """Whether the command itself is torchrun, rather than a script that may start it or a plain program."""
    if os.path.basename(words[0]) == "torchrun":
        return True
    return any(a == "-m" and b in _TORCHRUN for a, b in zip(words, words[1:]))


def environment(
    plan: JobPlan,
    node: int,
    attempt: int,
    agreed: Optional[RendezvousSettings],
    place: LaunchContext,
    own: Mapping[str, str],
) -> dict[str, str]:
    """Return what the launch command is given, without the hook. `own` is the agent's environment.

    Raises MissingSecretError.
    """
    words = command(plan, node, attempt, agreed)
    env = {name: value for name, value in own.items() if name != Env.KEY}
    if is_torchrun(words):
        # A scheduler's own RANK would make torchrun look like a worker. Its workers get theirs from it.
        for name in ("RANK", "LOCAL_RANK"):
            env.pop(name, None)
    env.update(plan.env)
    env.update({name: secrets.value(name, reference, own) for name, reference in plan.secrets.items()})
    settled = dict(agreed.env) if agreed else {}
    if plan.nproc_per_node is None:
        # The user's own command line comes with the user's own environment; the gate only fills gaps.
        settled = {name: value for name, value in settled.items() if name not in env}
    env.update(settled)
    env.update({Env.JOB: plan.job, Env.NODE: str(node), Env.ATTEMPT: str(attempt)})
    if os.path.isdir(place.source):
        env[Env.SOURCE] = place.source
    defaults = {
        # torchrun's --redirects and --log-dir: the user's own flags go before, plain programs ignore them.
        "PET_REDIRECTS": "3",
        "PET_LOG_DIR": place.ranks,
        "PYTHONUNBUFFERED": "1",
        "TORCH_FR_BUFFER_SIZE": _RECORDER_SIZE,
    }
    defaults.update(_homeless(place))
    if plan.nproc_per_node is None and plan.nodes > 1 and agreed is not None:
        where = agreed.master_addr, agreed.master_port
        defaults.update(torchrun_options.gaps(words, env, node, plan.nodes, *where))
    if plan.nproc_per_node != 1:
        defaults["OMP_NUM_THREADS"] = "1"  # torchrun's own default, without the banner that says so
    return {**defaults, **env}


def _homeless(place: LaunchContext) -> dict[str, str]:
    """Return variables for a user without an entry in the image, who can write only where the agent does.

    Without them torch's compiler asks in vain for the user's name, and DataLoader's workers for a place.
    """
    found = {}
    if not os.access(processes.TMP, os.W_OK):
        found["TMPDIR"] = os.path.join(place.node, "tmp")
        os.makedirs(found["TMPDIR"], exist_ok=True)
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        found.update(USER=str(os.getuid()), LOGNAME=str(os.getuid()))
    return found


def with_hook(env: dict[str, str], place: LaunchContext, value: str) -> dict[str, str]:
    """`env` for a process whose ranks shall connect to the hook's socket: our PYTHONPATH, then the user's."""
    path = env.get("PYTHONPATH", "")
    return {**env, Env.HOOK: value, "PYTHONPATH": place.hook + (os.pathsep + path if path else "")}


def start(words: list[str], env: dict[str, str], workdir: Optional[str], log: str) -> subprocess.Popen[bytes]:
    """Start the command in a process group of its own, tied to us, its output appended to `log`.

    Raises LaunchError when it cannot be started.
    """
    us = os.getpid()

    def tie() -> None:
        os.setpgid(0, 0)
        # torchrun ends its own workers when it is told to end, also those that the hook did not tie to it.
        processes.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != us:
            os._exit(1)

    if workdir is not None and not os.path.isdir(workdir):
        raise LaunchError(
            f"the workdir {workdir} is not a folder on this node", "set `workdir` to one that is"
        )
    program = shutil.which(words[0], path=env.get("PATH", os.defpath))
    if program is None and not (workdir and os.path.exists(os.path.join(workdir, words[0]))):
        raise LaunchError(
            f"{words[0]} is not on PATH on this node",
            "name it by its full path, or start ddplaunch where it is installed",
        )
    try:
        with open(log, "ab") as file:
            return subprocess.Popen(
                words,
                executable=program,
                env=env,
                cwd=workdir,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                preexec_fn=tie,
            )
    except OSError as error:
        raise LaunchError(
            f"{words[0]} cannot be started: {error.strerror}", "try the same command by hand on this node"
        ) from error


def unpack(archive: str, folder: str) -> None:
    """Unpack a tar whole or not at all. Raises LaunchError for members that would leave the folder."""
    partial = f"{folder}.{os.getpid()}.tmp"
    with tarfile.open(archive) as tar:
        members = tar.getmembers()
        for member in members:
            parts = member.name.split("/")
            if not (member.isfile() or member.isdir()) or member.name.startswith("/") or ".." in parts:
                raise LaunchError(
                    f"{archive}: {member.name} is not a plain file below the source folder",
                    "submit the job again: ddplaunch never writes such an archive",
                )
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        os.makedirs(partial)
        for member in members:
            tar.extract(member, partial)
    os.rename(partial, folder)


def _own_file(package: ModuleType, name: str) -> bytes:
    """A file of a package of ours, which may lie in an archive."""
    loader = cast("ResourceLoader", package.__loader__)
    return loader.get_data(os.path.join(os.path.dirname(str(package.__file__)), name))


_PR_SET_PDEATHSIG = 1
