"""Slurm: srun starts one task per node, and reports how each one ends.

Besides the record of the differences, this has the comment by which a message is shown, and node lists.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import subprocess
import time
from collections.abc import Mapping
from typing import Any, Optional

from ddplaunch.agent.contract import Files, JobStatus, Occasion, codec
from ddplaunch.agent.platforms.platform import Ends, Platform
from ddplaunch.agent.system.delivery import UndeliveredError, run
from ddplaunch.agent.text.printable import printable

_HINTS: Mapping[str, str] = {
    "memlock": "Slurm gives a job the limit of the shell that submits it: set "
    "`PropagateResourceLimitsExcept=MEMLOCK` in slurm.conf and `LimitMEMLOCK=infinity` in "
    "slurmd.service; where slurmd's own limit is high already, `ulimit -l unlimited` before sbatch does",
    "ulimit -u": "Slurm gives a job the limit of the shell that submits it: raise it before sbatch, or set "
    "`PropagateResourceLimitsExcept=NPROC` in slurm.conf",
    "open-files": "raise the limit of open files on that node: `LimitNOFILE=` of slurmd, or "
    "/etc/security/limits.conf",
    "hardware": "ask Slurm for one kind of node: `slurm.constraint`; a machine that has lost a GPU says "
    "so in `dmesg`; if the difference is intended, `gate: {skip: [gpus]}`",
    "unlaunched": "see whether slurmd runs on that node: `scontrol show node NAME`",
    "ended": "look at what Slurm runs there before a task (`scontrol show config | grep -i prolog`), and "
    "at room in /tmp; `slurm.exclude` leaves a node out",
    "container": "start it by hand on that node: `srun --nodelist=NAME`, then the runtime's "
    "`exec IMAGE python3 -V`, or `--container=IMAGE python3 -V`",
    "no-runtime": "load its module before sbatch, or ask for nodes that have it: `slurm.constraint`",
    "no-python": "the image needs a python3 >= 3.9 on its PATH, in which the agent runs",
    "no-image": "every node must see `slurm.container.image` under that path: a shared folder",
    "no-oci": "have the administrator put oci.conf beside slurm.conf there, or use `slurm.constraint`",
    "no-mount": "every node must have what `slurm.container.mounts` and `volumes` name",
    "no-namespace": "ask the administrator for user namespaces there (`sysctl user.max_user_namespaces`)",
    "none-started": "see whether the scheduler answered all that time: `scontrol ping`, slurmctld's log",
    "missing": "`squeue` and `scontrol show node NAME` say whether the node is up and has started its task.",
    "evicted": "Ask for more time (`slurm.time`), or have the job write checkpoints and resume.",
}


# --- the comment of the job

_COMMENT_LENGTH = 200
"""Characters."""
_SET_COMMENT = """\
there=$(squeue --noheader --jobs="$1" --format=%k) && case $there in
'' | '(null)' | ddplaunch:*) scontrol update JobId="$1" Comment="$2" ;;
esac"""


def set_comment(message: dict[str, Any]) -> None:
    """Make the message Slurm's comment. Raises UndeliveredError."""
    if message["occasion"] != Occasion.END:  # at the end the batch script does it: it outlives the hub
        _write_comment(notice_comment(message))


def comment_at_end(folder: str) -> int:
    """Make the job's verdict, if there is one, Slurm's comment. Returns 0, because nothing depends on it."""
    with contextlib.suppress(OSError, codec.ContractError, UndeliveredError):
        for verdict in codec.read(JobStatus, os.path.join(folder, Files.STATUS)).verdicts[:1]:
            _write_comment(_comment_text(f"{verdict.code}: {verdict.sentence}"))
    return 0


def notice_comment(message: dict[str, Any]) -> str:
    """Return the text for Slurm's comment."""
    texts = ["notice: {code}: {sentence}".format(**each) for each in message["verdicts"][:1]]
    return _comment_text((texts or ["the notice is withdrawn"])[0])


def _comment_text(text: str) -> str:
    return printable(f"ddplaunch: {text}")[:_COMMENT_LENGTH]


def _write_comment(text: str) -> None:
    run(["sh", "-c", _SET_COMMENT, "sh", os.environ["SLURM_JOB_ID"], text], b"", "scontrol")


# --- the record

NODE = "SLURM_NODEID"
"""srun's own count of nodes, in the order of the job's node list, which is also that of Env.NAMES."""

VERBS = {
    "prolog": "before a job of Slurm: can anything run on this node",
    "epilog": "after a job of Slurm: take away what it left on this node",
    "prologue": "in a batch script of Slurm: the gate, and what to export",
    "comment": "at the end of a job of Slurm: its verdict as Slurm's comment",
}
"""Words of the agent's command line on a Slurm node, and their help."""


_ASK = 2.0
"""Seconds for the controller to say who ends the job. The hub asks once, when the evidence is on its way."""


def ended_by() -> str:
    """Return who ends this job, from its state. Which user called scancel is known only to accounting,
    later.
    """
    return _ended_by(_ask_job())


def ends_in() -> Optional[Ends]:
    """Return when Slurm ends this job, because of its limit or for another job; None: Slurm does not say."""
    job = _ask_job()
    with contextlib.suppress(ValueError):
        end = datetime.datetime.fromisoformat(job.get("EndTime", "")).timestamp()
        preempted = job.get("PreemptTime", "None") != "None"
        what = "a job of higher priority gets its nodes" if preempted else "the time limit"
        return Ends(end - time.time(), what)
    return None


def _ask_job() -> dict[str, str]:
    """Return what the controller says about this job; {} if it does not answer."""
    number = os.environ.get("SLURM_JOB_ID", "")
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        words = ["scontrol", "--oneliner", "show", "job", number]
        shown = subprocess.run(words, capture_output=True, text=True, timeout=_ASK) if number else None
        return dict(re.findall(r"(?<!\S)(\w+)=(\S*)", shown.stdout)) if shown else {}
    return {}


def _ended_by(job: Mapping[str, str]) -> str:
    state, reason = job.get("JobState", ""), job.get("Reason", "")
    if "TIMEOUT" in state or reason == "TimeLimit":
        return "Slurm, at its time limit"
    if "DEADLINE" in state or reason == "DeadLine":
        return "Slurm, at its deadline"
    if "PREEMPTED" in state or job.get("PreemptTime", "None") != "None":
        return "Slurm, for a job of higher priority"
    if job.get("Requeue") == "1" and state in ("PENDING", "REQUEUED"):
        return "Slurm, which puts it back into the queue"
    return "scancel" if state in ("CANCELLED", "COMPLETING") else ""


SLURM = Platform(
    "slurm",
    hints=_HINTS,
    place="Slurm's comment",
    show=set_comment,
    ended_by=ended_by,
    ends_in=ends_in,
)


def job_name(environment: Mapping[str, str]) -> str:
    """Return 'Slurm job 771' for a process with this environment; "" if it is in no job."""
    number = environment.get("SLURM_JOB_ID")
    return f"Slurm job {number}" if number else ""


def munge_socket(seconds: float) -> Optional[str]:
    """Return the MUNGE socket that Slurm is configured to use; None: MUNGE's default."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        shown = subprocess.run(["scontrol", "show", "config"], capture_output=True, timeout=seconds)
        named = re.search(rb"^AuthInfo\s*=.*?\bsocket=([^,\s]+)", shown.stdout, re.MULTILINE)
        return named[1].decode() if named else None
    return None


# --- node lists: `n[1-3,07],gpu[0-1]-[a,b]`, as SLURM_JOB_NODELIST has them

_LIST_PART = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_MOST_NODES = 100_000
"""More nodes than any cluster has. A longer list is damaged."""


def expand_nodes(text: str) -> list[str]:
    """Return all names, in order. Raises ValueError for other text."""
    parts = _LIST_PART.findall(text)
    if ",".join(parts) != text:
        raise ValueError(text)
    return [name for part in parts for name in _expanded_part(part)]


def first_node(text: str) -> str:
    """Return the first name, "" for text that cannot be read."""
    try:
        return next(iter(expand_nodes(text)), "")
    except ValueError:
        return ""


def _expanded_part(part: str) -> list[str]:
    bracket = _BRACKET.search(part)
    if bracket is None:
        return [part]
    before, after = (
        part[: bracket.start()],
        _expanded_part(part[bracket.end() :]) if part[bracket.end() :] else [""],
    )
    return [before + middle + rest for middle in _expanded_bracket(bracket[1]) for rest in after]


def _expanded_bracket(text: str) -> list[str]:
    names: list[str] = []
    for each in text.split(","):
        first, dash, last = each.partition("-")
        if not dash:
            names.append(each)
            continue
        if not first.isdecimal() or not last.isdecimal() or not 0 <= int(last) - int(first) < _MOST_NODES:
            raise ValueError(each)
        # Zeros in front count: n[08-10] is n08, n09, n10.
        names += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return names
