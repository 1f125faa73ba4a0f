"""Looks at the ranks of a job that ddplaunch did not start: by a step beside those of the job, on its nodes.

The agent travels through the step's standard input into memory, and leaves nothing on the nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ddplaunch.agent.contract import Bundle, NodeEvidence
from ddplaunch.backends import in_memory, outside
from ddplaunch.backends.slurm.commands import Commands
from ddplaunch.backends.slurm.parse import SlurmJob
from ddplaunch.errors import ClusterError
from ddplaunch.render import archive

_LIMIT: Final = 90.0
"""Seconds for the step to start, and to watch the ranks."""
_LINE: Final = re.compile(r"\s*(\d+): (\S*)")
"""A line of output that srun has labelled with the number of its task, which is that of the node."""


def collect(job: SlurmJob, commands: Commands) -> Bundle:
    """Return the evidence of all nodes of a running job. Raises ClusterError without a step in it."""
    step = [f"--jobid={job.job_id}", "--overlap", f"--nodes={job.nodes}", f"--ntasks={job.nodes}"]
    step += ["--ntasks-per-node=1", "--mpi=none", "--label", "--quiet"]
    agent = archive.agent_archive()
    words = ["python3", "-I", "-S", "-c", in_memory.AGENT, str(len(agent))]
    words += ["look", "--of", f"SLURM_JOB_ID={job.job_id}"]
    environment = in_memory.environment_with_py_spy()
    answer = commands.run("srun", *step, *words, env=environment, limit=_LIMIT, stdin=agent)
    nodes = evidence(answer.out)
    if not nodes:
        raise ClusterError(
            f"no node of job {job.job_id} could be looked at: {answer.last_line or 'the step has no output'}",
            hint="only the user of the job may start a step in it, with a python3 >= 3.9 on its nodes",
        )
    silent = sorted(set(range(job.nodes)) - {each.node for each in nodes})
    return outside.bundle(job.name, job.started or 0.0, nodes, silent)


def evidence(output: str) -> list[NodeEvidence]:
    """Return the evidence of the nodes that have printed theirs whole, by their numbers."""
    texts = sorted(_by_task(output.splitlines()).items())
    return [found for node, text in texts if (found := outside.unpacked(text, node)) is not None]


def _by_task(lines: Iterable[str]) -> dict[int, str]:
    texts: dict[int, str] = {}
    for line in lines:
        match = _LINE.fullmatch(line)
        if match:
            texts[int(match[1])] = texts.get(int(match[1]), "") + match[2]
    return texts
