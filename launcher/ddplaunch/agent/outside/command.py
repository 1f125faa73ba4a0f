"""Prints the evidence of the ranks that one job has on this machine, for a launcher that asks all its nodes.

The lines are short: output of many nodes is merged line by line.
"""

from __future__ import annotations

import base64
import textwrap
import time
import zlib

from ddplaunch.agent.contract import Exit, NodeEvidence, Phase, codec
from ddplaunch.agent.outside import find_ranks, look
from ddplaunch.agent.platforms import physical_host

_WIDTH = 1000
NO_RANKS = "no process with RANK and LOCAL_RANK in its environment is seen"


def main(variable: str) -> int:
    """Print the evidence of the job whose processes have `variable`, NAME=VALUE. Returns the exit code.

    "": all processes that are seen here are of the job, as in a container.
    """
    name, _, value = variable.partition("=")
    missing = []
    tree = find_ranks.processes()
    try:
        job_ranks = find_ranks.ranks_of_variable(name, value, tree) if variable else ranks_in_container(tree)
    except find_ranks.NoRanksError as error:
        job_ranks, missing = find_ranks.JobRanks([]), [str(error)]
    if job_ranks.members:
        evidence = look.evidence_of(0, job_ranks)
    else:
        missing = missing or [NO_RANKS + ("" if variable else _hidden(tree))]
        evidence = NodeEvidence(0, physical_host.host(), time.time(), Phase.STARTING, missing=missing)
    packed = base64.b64encode(zlib.compress(codec.text(evidence).encode(), 9)).decode()
    print("\n".join(textwrap.wrap(packed, _WIDTH)), flush=True)
    return Exit.OK


def _hidden(tree: find_ranks.Tree) -> str:
    """Return how many processes of a container may hold a rank unseen: to look into those takes ptrace."""
    number = sum(bool(each.command) and not each.program for each in tree.table.values())
    return f", and {number} of {len(tree.table)} processes may not be looked into (ptrace)" if number else ""


def ranks_in_container(tree: find_ranks.Tree) -> find_ranks.JobRanks:
    """Return the ranks of the one job in a container. Raises NoRanksError for several jobs."""
    job_ranks = find_ranks.ranks_of_machine(tree)
    for root in () if job_ranks.members else tree.roots():
        job_ranks = find_ranks.spawned_by(root, tree)
        if job_ranks.members:
            break
    return job_ranks
