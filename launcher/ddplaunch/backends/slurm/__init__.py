"""Jobs on a Slurm cluster, through the commands that its users have: this needs no daemon and no accounting.

`commands` runs them, with time limits, and asks for the state of jobs. Pure modules: `parse` (the output of
the commands), `pending` (why a job does not start, or never can) and `outcomes` (how a job ended). Modules
that talk to Slurm: `submission` sends a file once, says why sbatch refused it, and keeps what this user has
sent; `snapshot` limits how often Slurm is asked, and `evidence` fetches the bundle, or looks at a job from
outside. `backend` is the Backend.

The job's hub writes its status into the job's folder. Slurm's state completes it, and stands alone where this
machine cannot see the folder.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddplaunch.spec.models import JobSpec


def destination(_: JobSpec) -> str:
    """Return why jobs can be sent to Slurm from this machine; "" if there is no sbatch."""
    return "sbatch is on PATH" if shutil.which("sbatch") else ""
