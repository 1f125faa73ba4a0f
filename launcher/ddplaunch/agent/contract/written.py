"""Tells what a job's ranks wrote from the source that the job came with, in the folder that holds both.

Asked by the supervisor at the end of the ranks, and by the launcher's `outputs` and `delete`; job.bash asks
`find` the same. The time of a file alone does not answer it: `shutil.copy2`, with which trainings keep their
configuration beside the checkpoints, gives the copy the time of the file from the source. So the last step of
unpacking the source is a mark. Everything that the kernel has changed later is the ranks' work, whatever time
it shows.
"""

from __future__ import annotations

import os
import stat

from ddplaunch.agent.contract import SOURCE_MARK, SOURCE_TIME


def marked(folder: str) -> float:
    """Return when the source in a folder was complete, in seconds since the epoch; -inf without a mark."""
    try:
        return os.lstat(os.path.join(folder, SOURCE_MARK)).st_mtime
    except OSError:
        return float("-inf")


def is_written(status: os.stat_result, mark: float) -> bool:
    """Return whether ranks wrote a file, or link, since `mark`, which `marked` has returned.

    Some file systems take the times of a file from the machine that writes it, and its clock may be slow: a
    file with a time of its own was written by a rank in any case.
    """
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISLNK(status.st_mode):
        return False
    return int(status.st_mtime) != SOURCE_TIME or status.st_ctime > mark
