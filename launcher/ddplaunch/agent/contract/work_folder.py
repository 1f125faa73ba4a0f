"""The folder in which a job's ranks run: its place on a volume, and what in it is the ranks' own work.

Asked by the supervisor at the end of the ranks, and by the launcher's `outputs` and `delete`; job.bash
asks `find` the same. The time of a file alone does not tell what ranks wrote from the source that the job
came with: `shutil.copy2`, with which trainings keep their configuration beside the checkpoints, gives the
copy the time of the file from the source. So the last step of unpacking the source is a mark. Everything
that the kernel has changed later is the ranks' work, whatever time it shows.
"""

from __future__ import annotations

import os
import stat

from ddplaunch.agent.contract import SOURCE_MARK, SOURCE_TIME

WORK = "work"
"""Below the job's folder: where its source is unpacked, and the ranks of all nodes that see it run."""
NODE = "node-{node}"
"""Below the job's folder: an empty file of each node that sees this folder."""
_SHORT = 8


def job_folder(root: str, job: str, submission: str) -> str:
    """Return the job's folder in `root`: no other submission has it, also of the same name. "": not known."""
    return f"{root.rstrip('/')}/{job}-{submission[:_SHORT]}" if root and submission else ""


def read_source_mark(folder: str) -> float:
    """Return when the source in a folder was complete, in seconds since the epoch; -inf without a mark."""
    try:
        return os.lstat(os.path.join(folder, SOURCE_MARK)).st_mtime
    except OSError:
        return float("-inf")


def is_written(status: os.stat_result, mark: float) -> bool:
    """Return whether ranks wrote a file, or link, since `mark`, which `read_source_mark` has returned.

    Some file systems take the times of a file from the machine that writes it, and its clock may be slow: a
    file with a time of its own was written by a rank in any case.
    """
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISLNK(status.st_mode):
        return False
    return int(status.st_mtime) != SOURCE_TIME or status.st_ctime > mark
