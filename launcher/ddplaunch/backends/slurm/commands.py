"""Runs Slurm's commands with a time limit, and retries while the controller does not answer.

The state of jobs is asked for many in one query: as text, or as JSON if that cannot be read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from ddplaunch.agent.platforms import slurm
from ddplaunch.backends.slurm import parse
from ddplaunch.backends.slurm.parse import NonsenseError, Partition, SlurmJob
from ddplaunch.backends.slurm.pending import PartitionFacts
from ddplaunch.errors import ClusterError

LIMIT = 20.0
"""Seconds for one command. Slurm's own commands wait 10 s for the controller, and may try twice."""
PATIENCE = 30.0
"""Seconds for which a query is tried again. A controller restarts in less."""
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 8.0

_UNREACHED = "Unable to contact slurm controller (connect failure)"
"""An error which proves that the controller did not get the request, unlike `(receive failure)`."""
_UNANSWERED = (
    "Unable to contact slurm controller",
    "Connection refused",
    "Connection timed out",
    "No route to host",
    "Network is unreachable",
    "Socket timed out",
    "Connection reset",
    "Zero Bytes were transmitted or received",
    "Message receive failure",
    "Unexpected message received",
    "Transport endpoint is not connected",
    "Resource temporarily unavailable",
    "temporarily unable to accept job",
    "in standby mode",
    "Slurm backup controller",
    "Communication connection failure",
    "Header lengths are longer than data received",
    "Insane message length",
    "Unable to contact slurmdbd",
)
"""Errors after which the controller may have got the request."""
_NO_CLUSTER = "Could not establish a configuration source"
"""The error of Slurm's commands on a machine that is in no cluster."""
_FORMATS = ("SQUEUE_", "SACCT_", "SINFO_", "SCONTROL_")
"""Prefixes of variables that would change the output of the commands."""


class CommandResult(NamedTuple):
    """Exit code and output of a command. `code` None: it was killed because it did not end in time."""

    code: int | None
    out: str
    err: str

    @property
    def unreached(self) -> bool:
        """Whether the controller certainly did not get the request."""
        lines = [line for line in self.err.splitlines() if any(words in line for words in _UNANSWERED)]
        return self.code not in (0, None) and bool(lines) and all(_UNREACHED in line for line in lines)

    @property
    def unanswered(self) -> bool:
        """Whether the controller did not answer, so that trying again may help."""
        return self.code is None or (self.code != 0 and any(words in self.err for words in _UNANSWERED))

    @property
    def last_line(self) -> str:
        """Return the last line of stderr, without the program's name at its beginning."""
        lines = [line.strip() for line in self.err.splitlines() if line.strip()]
        return _without_name(lines[-1]) if lines else ""


class Commands:
    """The commands of one cluster; "" is the local one. Queries are tried again for `patience` seconds."""

    def __init__(self, cluster: str = "", patience: float = PATIENCE) -> None:
        self.cluster = cluster
        self.patience = patience

    def ask(self, program: str, *words: str, patience: float | None = None) -> CommandResult:
        """Run a query, and try again while the controller does not answer. Returns its answer or its error.

        Raises ClusterError if there is no such program, or no answer within `patience` seconds (None: the
        usual).
        """
        patience = self.patience if patience is None else patience
        started = time.monotonic()
        pause = _FIRST_PAUSE
        while True:
            answer = self.run(program, *words, env=_plain_environment())
            if not answer.unanswered:
                return answer
            waited = time.monotonic() - started
            if waited + pause > patience:
                raise self.silent(program, answer, waited)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def run(
        self,
        program: str,
        *words: str,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        limit: float | None = None,
        stdin: bytes | None = None,
    ) -> CommandResult:
        """Run a command once. Raises ClusterError if there is no such program.

        Ctrl-C first ends its process group, and then raises KeyboardInterrupt.
        """
        import sh

        if self.cluster:
            words = (f"--clusters={self.cluster}", *words)
        try:
            running = sh.Command(program)(
                *words,
                _bg=True,
                _bg_exc=False,
                _ok_code=list(range(256)),
                _timeout=limit or LIMIT,
                _tty_out=False,
                _new_session=True,
                _env=dict(os.environ if env is None else env),
                _cwd=cwd,
                _in=stdin,
            )
            try:
                done = running.wait()
            except KeyboardInterrupt:
                running.kill_group()
                raise
        except sh.CommandNotFound as error:
            raise ClusterError(
                f"there is no `{program}` on this machine",
                hint="use a machine where sbatch works, such as a login node of the cluster",
            ) from error
        except sh.TimeoutException:
            return CommandResult(None, "", f"no answer in {limit or LIMIT:.0f} s")
        except sh.SignalException as error:  # it was killed
            return CommandResult(None, "", str(type(error).__name__))
        answer = CommandResult(done.exit_code, _text(done.stdout), _text(done.stderr))
        if answer.code != 0 and _NO_CLUSTER in answer.err:
            raise ClusterError(
                f"`{program}` finds no cluster: {_NO_CLUSTER}",
                hint="try `sinfo` on a login node of the cluster, or set SLURM_CONF to its slurm.conf",
            )
        return answer

    def silent(self, program: str, answer: CommandResult, waited: float) -> ClusterError:
        """Return the error for a controller that has not answered for `waited` seconds."""
        reason = answer.last_line or "without an error message"
        where = f" of cluster {self.cluster}" if self.cluster else ""
        return ClusterError(
            f"Slurm's controller{where} does not answer: `{program}` was tried for {waited:.0f} s: {reason}",
            hint="`scontrol ping` shows whether it is up; running jobs go on without it, so try again later",
        )


def _plain_environment() -> dict[str, str]:
    """Return the user's environment, changed so that the commands print times as seconds since the epoch."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FORMATS)}
    return kept | {"SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")


def _without_name(line: str) -> str:
    for begin in ("sbatch: error: ", "squeue: error: ", "scontrol: error: ", "scancel: error: ", "sbatch: "):
        line = line.removeprefix(begin)
    return line


# --- queries

_REMEMBERED = 5.0
"""Seconds for which a partition's limits and nodes are kept, however many jobs wait there."""


class Queries:
    """Queries to one cluster. All raise ClusterError when it does not answer, or its output is garbled."""

    def __init__(self, commands: Commands) -> None:
        self.commands = commands
        self._partition_facts: dict[str, tuple[float, PartitionFacts]] = {}

    def job(self, job_id: int, patience: float | None = None) -> SlurmJob | None:
        """Return one job; None when Slurm does not know it (any more)."""
        return self._squeue(f"--jobs={job_id}", patience=patience).get(job_id)

    def mine(self) -> dict[int, SlurmJob]:
        """Return all jobs of this user that the controller still knows, in one query."""
        return self._squeue(f"--user={os.getuid()}")

    def _squeue(self, which: str, patience: float | None = None) -> dict[int, SlurmJob]:
        words = ["--states=all", which]
        answer = self.commands.ask(
            "squeue", "--noheader", *words, f"--Format={parse.SQUEUE_FORMAT}", patience=patience
        )
        if _is_unknown(answer):
            return {}
        try:
            found = parse.squeue(_good(answer))
        except NonsenseError as nonsense:
            answer = self.commands.ask("squeue", *words, "--json", patience=patience)
            if _is_unknown(answer):
                return {}
            try:
                found = parse.squeue_json(_good(answer))
            except NonsenseError:
                raise _not_understood("squeue", nonsense) from nonsense
        return {each.job_id: each for each in found}

    def accounted(self, job_ids: Iterable[int]) -> dict[int, SlurmJob]:
        """Return what accounting knows of these jobs, in one query; nothing where there is no accounting."""
        wanted = ",".join(map(str, job_ids))
        if not wanted:
            return {}
        words = ["--noheader", "--parsable2", "--allocations", f"--format={parse.SACCT_FORMAT}"]
        try:
            answer = self.commands.ask("sacct", *words, f"--jobs={wanted}", patience=0)
            found = parse.sacct(answer.out) if answer.code == 0 else []
        except (ClusterError, NonsenseError):
            return {}  # accounting has its own daemon, and nothing depends on it
        return {each.job_id: each for each in found}

    def output_file(self, job: SlurmJob) -> Path | None:
        """Return the file into which the job's batch script prints; None where Slurm does not say."""
        number, node = job.job_id, slurm.first_node(job.node_list)
        answer = self.commands.ask("scontrol", "show", "job", str(number), patience=0)
        path = parse.output_file(answer.out, number, node) if answer.code == 0 else ""
        if not path:
            words = ["--noheader", "--parsable2", "--allocations", "--expand-patterns", "--format=StdOut"]
            try:  # accounting, which knows it since Slurm 24.05
                answer = self.commands.ask("sacct", *words, f"--jobs={number}", patience=0)
            except ClusterError:
                return None
            path = answer.out.strip() if answer.code == 0 else ""
        return Path(job.workdir, path) if path else None

    def partitions(self) -> list[Partition]:
        """Return all partitions, hidden ones too."""
        answer = self.commands.ask("scontrol", "--all", "--oneliner", "show", "partition")
        return parse.partitions(answer.out)

    def partition_facts(self, partition: str) -> PartitionFacts:
        """Return what is known about `partition`, at most some seconds old."""
        at, known = self._partition_facts.get(partition, (0.0, PartitionFacts()))
        if at and time.monotonic() - at < _REMEMBERED:
            return known
        try:
            limits = {each.name: each for each in self.partitions()}
            words = ["--noheader", "--Node", f"--Format={parse.NODES_FORMAT}", f"--partition={partition}"]
            nodes = parse.node_states(self.commands.ask("sinfo", *words, patience=0).out)
            known = PartitionFacts(limits.get(partition.partition(",")[0]), nodes)
        except (ClusterError, NonsenseError):
            pass
        self._partition_facts[partition] = (time.monotonic(), known)
        return known

    def failed_nodes(self, node_list: str) -> tuple[list[int], str]:
        """Return the job's nodes that are down now: their numbers in the job, and a text that names them."""
        words = ["--noheader", "--all", "--Node", f"--Format={parse.NODES_FORMAT}"]
        try:
            names = self.commands.run("scontrol", "show", "hostnames", node_list).out.split()
            states = parse.node_states(
                self.commands.ask("sinfo", *words, f"--nodes={node_list}", patience=0).out
            )
        except (ClusterError, NonsenseError):
            return [], ""
        down = {name for name, state, _ in states if state.startswith(("down", "fail"))}
        numbers = [number for number, name in enumerate(names) if name in down]
        listed = ", ".join(f"node {number} ({names[number]})" for number in numbers)
        return numbers, listed


def _is_unknown(answer: CommandResult) -> bool:
    return answer.code != 0 and "Invalid job id" in answer.err


def _good(answer: CommandResult) -> str:
    if answer.code != 0:
        raise NonsenseError(f"squeue ended with exit code {answer.code}: {answer.last_line}")
    return answer.out


def _not_understood(program: str, nonsense: NonsenseError) -> ClusterError:
    return ClusterError(
        f"the output of `{program}` cannot be read: {nonsense}",
        hint=f"it must be Slurm's own `{program}`, 20.02 or newer; `type {program}` shows what it is",
    )
