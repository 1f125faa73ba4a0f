"""Explains the limits of accounts and QOS that keep a job pending. Pure.

Slurm has dozens of these reasons; each name contains what is limited, and for whom.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ddplaunch.backends.slurm.parse import SlurmJob


class Why(NamedTuple):
    """Reason why Slurm does not start the job, and a hint: one sentence each."""

    text: str
    hint: str
    never: bool = False  # no waiting cures it


def explain(job: SlurmJob, reason: str) -> Why | None:
    """Explain a limit that keeps a job pending; None where the reason is of another kind."""
    for pattern, maker in _FAMILIES:
        match = re.fullmatch(pattern, reason, re.IGNORECASE)
        if match is not None:
            return maker(job, match)
    return None


def never_starts(text: str, what: str, job: SlurmJob) -> Why:
    """Return that a job must be submitted again, changed as `what` says."""
    return Why(
        text, f"it never starts as it is: `ddplaunch cancel slurm://{job.job_id}`, then {what}", never=True
    )


def _group_limit(_: SlurmJob, match: re.Match[str]) -> Why:
    whose = "its QOS" if match["who"].lower() == "qos" else "its account"
    return Why(
        f"all running jobs of {whose} together are at the limit of {_limited(match['what'])} ({match[0]})",
        "nothing is wrong: it starts when other jobs of them end; or use another account or QOS",
    )


def _own_limit(job: SlurmJob, match: re.Match[str]) -> Why:
    whose = "its QOS" if match["who"].lower() == "qos" else "its account"
    what = match["what"]
    if not re.search(r"per(job|node)(limit)?$", what, re.IGNORECASE):
        return Why(
            f"{whose} allows no more {_limited(what)} at once ({match[0]})",
            "it starts when other jobs of yours end; or ask for less",
        )
    return never_starts(
        f"it asks for more {_limited(what)} than {whose} allows a job ({match[0]})",
        "ask for less, or take another `slurm.qos` or `slurm.account`",
        job,
    )


def _account_limit(_: SlurmJob, match: re.Match[str]) -> Why:
    return Why(
        f"the jobs of its account are at the limit of {_limited(match['what'])} ({match[0]})",
        "it starts when other jobs of the account end; or use another `slurm.account`",
    )


def _min_limit(job: SlurmJob, match: re.Match[str]) -> Why:
    return never_starts(
        f"it asks for fewer {_limited(match['what'])} than its QOS requires ({match[0]})",
        "ask for more, or take another `slurm.qos`",
        job,
    )


_FAMILIES: Sequence[tuple[str, Callable[[SlurmJob, re.Match[str]], Why]]] = (
    (r"(?P<who>QOS|Assoc)Grp(?P<what>\w+)", _group_limit),
    (r"(?P<who>QOS|Assoc)Min(?P<what>\w+)", _min_limit),
    (r"(?P<who>QOS|Assoc)Max(?P<what>\w+)", _own_limit),
    (r"(?P<who>QOS|Assoc)(?P<what>(?:Job|Resource|Time|Usage|Node|CPU)\w*)", _own_limit),
    (r"Max(?P<what>\w+)PerAccount", _account_limit),
)
_WORDS = {"cpu": "CPUs", "node": "nodes", "gres": "GPUs", "mem": "memory", "wall": "time", "job": "jobs"}


def _limited(what: str) -> str:
    """`CpuLimit`, `NodePerUserLimit`, `GRESRunMinutes` in words."""
    for begin, word in _WORDS.items():
        if what.lower().startswith(begin):
            return f"{word} times minutes" if "minutes" in what.lower() else word
    return what
