"""Jobs on a Slurm cluster, through the commands that its users have: this needs no daemon and no accounting.

`commands` runs them, with time limits. Pure modules: `parse` (the output of the commands), `pending` (why a
job does not start), `limits` (which job can never start) and `outcomes` (how a job ended). Modules that talk
to Slurm: `submission` sends a file once, and says why sbatch refused it; `queries` fetches the state of jobs;
`snapshot` limits how often that is done; `evidence` fetches the bundle, or looks at a job from outside.
`record` keeps what this user has sent, and `backend` is the Backend.

The job's hub writes its status to the job's folder. Slurm's state adds to it, and is all there is if this
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
