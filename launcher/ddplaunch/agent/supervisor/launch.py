"""Builds a node's launch command, its words, environment and folder, and starts it.

The supervisor starts it once. The keeper of an MPI rank uses the same environment, and the gate's smoke test
uses a part of it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tarfile
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, Optional, cast

from ddplaunch.agent import hook
from ddplaunch.agent.contract import SOURCE_MARK, Env, Files, JobPlan, RendezvousSettings, codec
from ddplaunch.agent.interfaces import predict, read
from ddplaunch.agent.plan import work_folder
from ddplaunch.agent.supervisor import launch_options
from ddplaunch.agent.system import ports, proc, processes, secrets, torchrun
from ddplaunch.agent.text.printable import HintedError

if TYPE_CHECKING:
    from importlib.abc import ResourceLoader

    from ddplaunch.agent.supervisor.rank_tracker import RankTracker

_HOOK_FILES = (
    "sitecustomize.py",
    "ddplaunch_hook.py",
    "ddplaunch_caught.py",
    "ddplaunch_flight.py",
    "ddplaunch_model.py",
    "ddplaunch_mpi.py",
    "ddplaunch_output.py",
    "ddplaunch_rendezvous.py",
    "ddplaunch_ring.py",
    "ddplaunch_signals.py",
    "ddplaunch_spawn.py",
    "ddplaunch_torch.py",
)
_RECORDER_SIZE = "2000"
"""Entries of torch's flight recorder; the default since torch 2.11. Before 2.8 the variable had another name.
Newer versions warn about that name in every rank's log, so users of old versions set it themselves."""


class LaunchError(HintedError):
    """The launch command cannot be started. The message names what is missing, and `hint` has the remedy.

    `status`: the exit code that a shell gives in this case, if a shell reports it too.
    """

    def __init__(self, message: str, hint: str = "", status: Optional[int] = None) -> None:
        super().__init__(message, hint)
        self.status = status


class LaunchStreams(NamedTuple):
    """Descriptors of a launch command in the foreground, when our own output is not part of the command's.

    `carrier`: the socket of the process that shows and keeps what is written there; "": they are the user's.
    `group`: the process group that the command joins; None: a group of its own. `more`: further descriptors
    that it inherits. `blocked`: signals that its caller has blocked.
    """

    stdin: int
    stdout: int
    stderr: int
    carrier: str = ""
    group: Optional[int] = None
    more: tuple[int, ...] = ()
    blocked: tuple[int, ...] = ()

    @property
    def terminals(self) -> frozenset[str]:
        """Return the names of the user's terminals from which the command may read."""
        given = (self.stdin,) if self.carrier else (self.stdin, self.stdout, self.stderr)
        names = {proc.link(os.getpid(), f"fd/{each}") for each in given if os.isatty(each)}
        return frozenset({*names, "/dev/tty"} if names else ())

    def carry(self, patience: float, **message: object) -> None:
        """Have everything read that was printed until now, within `patience` seconds.

        `label`: the launch command's label from now on; `over`: it prints no more.
        """
        if not self.carrier:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(patience)
            line.connect("\0" + self.carrier)
            line.sendall(json.dumps(message).encode())
            line.recv(1)


class LaunchContext:
    """This node's files below the job's folder, and the launch command's streams in the foreground."""

    def __init__(
        self, folder: str, node: int, streams: Optional[LaunchStreams] = None, on_volume: str = ""
    ) -> None:
        """Make it from the job's `folder`. `on_volume`: the job's folder there; "": its ranks use none."""
        self.streams = streams
        self.on_volume = on_volume
        self.folder = folder
        self.number = node
        self.node = os.path.join(folder, Files.NODE.format(node=node))
        self.ranks = os.path.join(self.node, Files.RANKS)
        self.launch_log = os.path.join(self.node, Files.LAUNCH_LOG)
        self.hook = os.path.join(self.node, "hook")
        self.work = (
            os.path.join(on_volume, work_folder.WORK)
            if on_volume
            else shared_work(folder) or os.path.join(folder, Files.WORK)
        )
        self.keeper = os.path.join(self.node, "keeper.json")

    def group_of(self, launch: int) -> int:
        """Return the target for kill(2) of a signal to the launch command: its group, if it has its own."""
        shared = self.streams is not None and self.streams.group is not None
        return launch if shared else -launch

    def prepare(self) -> None:
        """Make the folders, the hook's files and the source. Raises OSError and LaunchError."""
        for path in (self.ranks, self.hook):
            os.makedirs(path, exist_ok=True)
        for name in _HOOK_FILES:
            with open(os.path.join(self.hook, name), "wb") as file:
                file.write(_own_file(hook, name))
        if self.on_volume:
            self._claim()
        archive = os.path.join(self.folder, Files.SOURCE)
        if os.path.exists(archive) and not os.path.exists(self.work):
            unpack(archive, self.work)
        elif self.on_volume:
            os.makedirs(self.work, exist_ok=True)

    def _claim(self) -> None:
        """Make the job's folder on the volume and leave this node's name there. Raises LaunchError."""
        try:
            os.makedirs(self.on_volume, exist_ok=True)
            with open(os.path.join(self.on_volume, work_folder.NODE.format(node=self.number)), "ab"):
                pass
        except OSError as error:
            raise LaunchError(
                f"{self.on_volume}, the folder for the files of the ranks, cannot be made: {error.strerror}",
                f"the job runs as user {os.geteuid()}, who must be able to write on the volume of `outputs`",
            ) from error

    @property
    def has_source(self) -> bool:
        """Whether the ranks' working folder has the job's source; ranks on a volume may run without it."""
        return not self.on_volume or os.path.exists(os.path.join(self.folder, Files.SOURCE))

    def workdir(self, plan: JobPlan) -> Optional[str]:
        """Return the folder in which the ranks start; None: the folder of this process."""
        return plan.workdir or (self.work if os.path.isdir(self.work) else None)

    def expect_keepers(self, node: int, attempt: int, hook: str) -> None:
        """Write the file by which the keepers of this node's ranks find their supervisor."""
        partial = f"{self.keeper}.tmp"
        with open(partial, "w", encoding="utf-8") as file:
            json.dump({"node": node, "attempt": attempt, "hook": hook}, file)
        os.replace(partial, self.keeper)

    def agreed(self) -> Optional[RendezvousSettings]:
        """Return the gate's settings; None if there was no gate. Raises ContractError for a damaged file."""
        path = os.path.join(self.node, Files.AGREED)
        return codec.read(RendezvousSettings, path) if os.path.exists(path) else None

    @property
    def regroups(self) -> int:
        """Return how often newcomers have been let in."""
        with contextlib.suppress(codec.ContractError):  # the launch reports this
            agreed = self.agreed()
            return (agreed.regroups or 0) if agreed else 0
        return 0

    def set_aside(self, attempt: int) -> None:
        """Rename the node's folder, with the logs of `attempt` and what the gate agreed on."""
        os.rename(self.node, f"{self.node}-{attempt}")


def volume_folder(plan: JobPlan, own: Mapping[str, str]) -> str:
    """Return the job's folder on a volume; "": it asks for none, or the name is not known.

    `own` is the agent's environment.
    """
    return work_folder.job_folder(plan.outputs or "", plan.job, own.get(Env.SUBMISSION, ""))


def shared_work(folder: str) -> str:
    """Return the folder of the job's source on the file system that this node shares with node 0; "": none.

    The path in Env.SHARED is inside the job's own folder, and ends with the random part of the name of
    `folder`, which is this node's. So a node that sees the path sees the job's folder, and a job that is
    started inside this one has another path.
    """
    proof = os.environ.get(Env.SHARED, "")
    if proof.rpartition("-")[2] != folder.rpartition("-")[2] or not os.path.exists(proof):
        return ""
    work = os.path.normpath(os.path.join(os.path.dirname(proof), os.pardir, Files.WORK))
    return work if os.access(work, os.W_OK) else ""


def launch_command(
    plan: JobPlan, node: int, attempt: int, agreed: Optional[RendezvousSettings], folder: str = ""
) -> list[str]:
    """Return the words to execute. `folder` is the job's, for the keepers of its ranks."""
    values = {
        "{python}": plan.python,
        "{node}": str(node),
        "{nnodes}": str((agreed and agreed.nodes) or plan.nodes),
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
    return words + plan.command + (plan.resume_args or [] if attempt else [])


def launch_environment(
    plan: JobPlan,
    node: int,
    attempt: int,
    agreed: Optional[RendezvousSettings],
    place: LaunchContext,
    own: Mapping[str, str],
) -> dict[str, str]:
    """Return the launch command's environment, without the hook. `own` is the agent's environment.

    Raises MissingSecretError.
    """
    words = launch_command(plan, node, attempt, agreed)
    env = {name: value for name, value in own.items() if name != Env.KEY}
    if torchrun.is_torchrun(words):
        # A scheduler's RANK would make torchrun look like a worker. torchrun sets RANK for its workers.
        for name in ("RANK", "LOCAL_RANK"):
            env.pop(name, None)
    env.update(plan.env)
    env.update({name: secrets.value(name, reference, own) for name, reference in plan.secrets.items()})
    settled = dict(agreed.env) if agreed else {}
    if plan.nproc_per_node is None:
        # The user's own command line comes with the user's own environment, so the gate only fills gaps.
        settled = {name: value for name, value in settled.items() if name not in env}
    env.update(settled)
    env.update({Env.JOB: plan.job, Env.NODE: str(node), Env.ATTEMPT: str(attempt)})
    if plan.resume_dir:
        env[Env.RESUME_DIR] = plan.resume_dir
    if os.path.isdir(place.work) and place.has_source:
        env[Env.SOURCE] = place.work
    defaults = {"TORCH_FR_BUFFER_SIZE": _RECORDER_SIZE}
    if place.streams is None:
        # These are torchrun's --redirects and --log-dir: the user's own flags win, and other programs ignore
        # them. In the foreground a command writes to the user's streams as often as it does without us.
        defaults.update(PET_REDIRECTS="3", PET_LOG_DIR=place.ranks, PYTHONUNBUFFERED="1")
    defaults.update(_stand_in_variables(place))
    ras = read.settings(env, predict.NEWEST)
    if "NCCL_RAS_ADDR" not in ras and ras.get("NCCL_RAS_ENABLE") != "0":
        # All ranks of this node share it. Ranks of two jobs on the usual one would answer for each other.
        seed = f"{plan.job} {attempt} ras {node}".encode()
        port = ports.sequence(seed, ports.ephemeral_range())[0]
        defaults["NCCL_RAS_ADDR"] = f"127.0.0.1:{port}"
    if plan.nproc_per_node is None and plan.nodes > 1 and agreed is not None:
        where = agreed.master_addr, agreed.master_port
        defaults.update(launch_options.missing_variables(words, env, node, plan.nodes, *where))
    if plan.nproc_per_node not in (None, 1):
        # This is torchrun's own default, without its warning. What the user's own command line starts sets
        # its own.
        defaults["OMP_NUM_THREADS"] = "1"
    return {**defaults, **env}


def _stand_in_variables(place: LaunchContext) -> dict[str, str]:
    """Return variables for a user who has no passwd entry or cannot write to /tmp.

    Without them torch's compiler fails because it finds no user name, and DataLoader's workers fail because
    they find no folder.
    """
    variables = {}
    if not os.access(processes.TMP, os.W_OK):
        variables["TMPDIR"] = os.path.join(place.node, "tmp")
        os.makedirs(variables["TMPDIR"], exist_ok=True)
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        variables.update(USER=str(os.getuid()), LOGNAME=str(os.getuid()))
    return variables


def with_hook(env: dict[str, str], place: LaunchContext, value: str) -> dict[str, str]:
    """Return `env` with the hook: its socket, and our PYTHONPATH before the user's."""
    path = env.get("PYTHONPATH", "")
    return {**env, Env.HOOK: value, "PYTHONPATH": place.hook + (os.pathsep + path if path else "")}


def start_command(
    words: list[str],
    env: dict[str, str],
    workdir: Optional[str],
    log: str,
    streams: Optional[LaunchStreams] = None,
) -> subprocess.Popen[bytes]:
    """Start the command in a process group of its own. It dies with us, and its output is appended to `log`.

    With `streams`, the command gets these and nothing is written to `log`. Raises LaunchError.
    """
    us = os.getpid()
    group = (streams.group or 0) if streams is not None else 0

    def tie() -> None:
        os.setpgid(0, group)
        # torchrun ends its own workers on SIGTERM, even those that the hook has not tied to it.
        processes.prctl(processes.PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != us:
            os._exit(1)
        if streams is not None:
            signal.pthread_sigmask(signal.SIG_BLOCK, streams.blocked)

    if workdir is not None and not os.path.isdir(workdir):
        raise LaunchError(
            f"the workdir {workdir} is not a folder on this node", "set `workdir` to one that is"
        )
    path = env.get("PATH", os.defpath)
    program = shutil.which(words[0], path=path)
    if program is None and not (workdir and os.path.exists(os.path.join(workdir, words[0]))):
        raise LaunchError(
            f"{words[0]} is not on PATH on this node",
            "name it by its full path, or start ddplaunch where it is installed",
            processes.refused(words[0], path),
        )

    def execute(words: list[str], program: Optional[str]) -> subprocess.Popen[bytes]:
        with open(log if streams is None else os.devnull, "ab") as file:
            return subprocess.Popen(
                words,
                executable=program,
                env=env,
                cwd=workdir,
                stdin=subprocess.DEVNULL if streams is None else streams.stdin,
                stdout=file if streams is None else streams.stdout,
                stderr=subprocess.STDOUT if streams is None else streams.stderr,
                preexec_fn=tie,
                pass_fds=streams.more if streams is not None else (),
            )

    try:
        try:
            return execute(words, program)
        except OSError as error:
            file = os.path.join(workdir or "", program or words[0])
            if error.errno != errno.ENOEXEC or not processes.is_script(file):
                raise
            return execute(["/bin/sh", file, *words[1:]], None)  # as a shell does, and execvp(3)
    except OSError as error:
        raise LaunchError(
            f"{words[0]} cannot be started: {error.strerror}",
            "try the same command by hand on this node",
            processes.ABSENT if error.errno == errno.ENOENT else processes.UNEXECUTABLE,
        ) from error


def unpack(archive: str, folder: str) -> None:
    """Unpack a tar whole or not at all, and mark that it is unpacked.

    Raises OSError, and LaunchError if a member lies outside the folder.
    """
    partial = f"{folder}.{socket.gethostname()}.{os.getpid()}.tmp"
    links: set[str] = set()
    with tarfile.open(archive) as tar:
        # From Python 3.14 on, tarfile by itself refuses a link that leads out of the folder. It may.
        tar.extraction_filter = lambda member, _: member
        members = tar.getmembers()
        for member in members:
            parts = member.name.split("/")
            above = {"/".join(parts[:count]) for count in range(1, len(parts) + 1)}
            plain = member.isfile() or member.isdir() or member.issym()
            if not plain or member.name.startswith("/") or ".." in parts or above & links:
                raise LaunchError(
                    f"{archive}: {member.name} is not a plain file below the source folder",
                    "submit the job again: ddplaunch never writes such an archive",
                )
            if member.issym():
                links.add(member.name)  # nothing is written through it
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        os.makedirs(partial)
        for member in members:
            tar.extract(member, partial)
            if member.issym():  # for which tarfile sets no time
                path = os.path.join(partial, member.name)
                os.utime(path, (member.mtime, member.mtime), follow_symlinks=False)
    with open(os.path.join(partial, SOURCE_MARK), "w", encoding="utf-8"):
        pass
    try:
        os.rename(partial, folder)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise  # otherwise another node of this machine was faster


def _own_file(package: ModuleType, name: str) -> bytes:
    """Return a file of one of our packages, which may be in an archive."""
    loader = cast("ResourceLoader", package.__loader__)
    return loader.get_data(os.path.join(os.path.dirname(str(package.__file__)), name))


def start(
    plan: JobPlan, place: LaunchContext, node: int, attempt: int, tracker: RankTracker, hook: str
) -> None:
    """Start the launch command. `hook`: the name of the hooks' socket.

    Raises LaunchError, MissingSecretError, ContractError or OSError.
    """
    if plan.outputs and not place.on_volume:  # any other folder may have files of another job
        raise LaunchError(
            f"the job's folder in {plan.outputs} is not known: {Env.SUBMISSION} does not name it",
            "what has started this agent is too old to name the job: update it, or leave `outputs` out",
        )
    place.prepare()
    if plan.resume_dir:
        os.makedirs(plan.resume_dir, exist_ok=True)
    agreed = place.agreed()
    words = launch_command(plan, node, attempt, agreed, place.folder)
    env = launch_environment(plan, node, attempt, agreed, place, os.environ)
    tracker.candidates.of_mpi = not plan.keepers and launch_options.is_mpi_launcher(words)
    flags = ["ptrace"] if plan.watchdog.privileges == "ptrace" else []
    if plan.keepers:
        place.expect_keepers(node, attempt, ",".join([hook, *flags]))
        if node != 0:
            return  # node 0 starts the ranks of all nodes
        env = launch_options.mpi_launcher_environment(plan, env)
    else:
        if place.streams is not None and place.streams.carrier:
            flags.append(f"output={place.streams.carrier}")
        flags += ["mpi"] if tracker.launches_mpi else [] if torchrun.is_torchrun(words) else ["any"]
        env = with_hook(env, place, ",".join([hook, *flags]))
    workdir = place.workdir(plan)
    if plan.keepers and workdir == place.work:
        workdir = place.folder  # MPI's launcher needs it on all nodes; the keepers change to their own
    tracker.begin(start_command(words, env, workdir, place.launch_log, place.streams))
