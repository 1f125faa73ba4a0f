"""Makes the command that starts ranks with keepers: mpirun or srun. Only here mpirun's flags are known.

It runs on node 0 alone and puts `nproc_per_node` ranks on every node, in the order of the nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddplaunch.spec.models import JobSpec


def launch(spec: JobSpec, starter: Sequence[str]) -> list[str]:
    """Return the words before the user's command, with the placeholders of `contract.JobPlan`.

    `starter` is what a target starts the ranks with in place of mpirun.

    How many ranks, and no more: mappings, bindings and transports are spelled differently by every MPI, and
    are set by its variables (agent/supervisor/launch_options.py, or the job file's `env`).
    """
    words = starter or ["mpirun", "-n", str(spec.nodes * spec.nproc_per_node)]
    script = spec.command[0]
    return [*words, "{keeper}", *(["{python}"] if script == "-m" or script.endswith(".py") else [])]
