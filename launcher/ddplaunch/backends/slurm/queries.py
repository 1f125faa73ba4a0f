"""Asks Slurm for the state of jobs, many in one query: as text, or as JSON if the text cannot be read."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from ddplaunch.agent.platforms import slurm
from ddplaunch.backends.slurm import parse
from ddplaunch.backends.slurm.commands import CommandResult, Commands
from ddplaunch.backends.slurm.parse import NonsenseError, Partition, SlurmJob
from ddplaunch.backends.slurm.pending import PartitionFacts
from ddplaunch.errors import ClusterError

_REMEMBERED = 5.0
"""Seconds for which a partition's limits and nodes are kept, however many jobs wait there."""


class Queries:
    """Queries to one cluster. All raise ClusterError if it does not answer, or if its output is garbled."""

    def __init__(self, commands: Commands) -> None:
        self.commands = commands
        self._partition_facts: dict[str, tuple[float, PartitionFacts]] = {}

    def job(self, job_id: int, patience: float | None = None) -> SlurmJob | None:
        """Return one job; None if Slurm does not know it, or no longer does."""
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
            found = parse.squeue(_good("squeue", answer))
        except NonsenseError as nonsense:
            answer = self.commands.ask("squeue", *words, "--json", patience=patience)
            if _is_unknown(answer):
                return {}
            try:
                found = parse.squeue_json(_good("squeue", answer))
            except NonsenseError:
                raise _not_understood("squeue", nonsense) from nonsense
        return {each.job_id: each for each in found}

    def accounted(self, job_ids: Iterable[int]) -> dict[int, SlurmJob]:
        """Return what accounting knows about these jobs, in one query; nothing if there is no accounting."""
        wanted = ",".join(map(str, job_ids))
        if not wanted:
            return {}
        words = ["--noheader", "--parsable2", "--allocations", f"--format={parse.SACCT_FORMAT}"]
        try:
            answer = self.commands.ask("sacct", *words, f"--jobs={wanted}", patience=0)
            found = parse.sacct(answer.out) if answer.code == 0 else []
        except (ClusterError, NonsenseError):
            return {}  # accounting has a daemon of its own, and nothing depends on it
        return {each.job_id: each for each in found}

    def output_file(self, job: SlurmJob) -> Path | None:
        """Return the file to which the job's batch script prints; None if Slurm does not say."""
        number, node = job.job_id, slurm.first_node(job.node_list)
        answer = self.commands.ask("scontrol", "show", "job", str(number), patience=0)
        path = parse.output_file(answer.out, number, node) if answer.code == 0 else ""
        if not path:
            words = ["--noheader", "--parsable2", "--allocations", "--expand-patterns", "--format=StdOut"]
            try:  # accounting has known it since Slurm 24.05
                answer = self.commands.ask("sacct", *words, f"--jobs={number}", patience=0)
            except ClusterError:
                return None
            path = answer.out.strip() if answer.code == 0 else ""
        return Path(job.workdir, path) if path else None

    def partitions(self) -> list[Partition]:
        """Return all partitions, including hidden ones."""
        answer = self.commands.ask("scontrol", "--all", "--oneliner", "show", "partition")
        return parse.partitions(answer.out)

    def partition_facts(self, partition: str) -> PartitionFacts:
        """Return what is known about `partition`, a few seconds old at most."""
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


def _good(program: str, answer: CommandResult) -> str:
    if answer.code != 0:
        raise NonsenseError(f"{program} ends with {answer.code}: {answer.last_line}")
    return answer.out


def _not_understood(program: str, nonsense: NonsenseError) -> ClusterError:
    return ClusterError(
        f"the output of `{program}` cannot be read: {nonsense}",
        hint=f"is it Slurm's own `{program}`, of version 20.02 or later? `type {program}` shows what it is",
    )
