"""Explains why a job does not start, and what to do: Slurm's reason in a person's words. Pure.

The reasons are those of Slurm's page "Job Reason Codes", and some that it does not list.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ddplaunch.backends.slurm import quotas
from ddplaunch.backends.slurm.parse import Partition, SlurmJob
from ddplaunch.backends.slurm.quotas import Why, never_starts

NodeState = tuple[str, str, str]
"""Name, state, and what an administrator wrote of it."""


@dataclass(frozen=True)
class Surroundings:
    """Facts about the queue in which the job waits. Everything may be missing."""

    partition: Partition | None = None
    nodes: Sequence[NodeState] = ()  # of its partition


def explain(job: SlurmJob, around: Surroundings) -> Why:
    """Return why a job is pending, held or still being started."""
    if job.state in _BY_STATE:
        return _BY_STATE[job.state](job, around)
    reason = job.reason.strip("()").replace("_", " ")
    name, _, more = reason.partition(",")
    known = _BY_REASON.get(name.strip().replace(" ", "").lower())
    if known is not None:
        why = known(job, around)
        return why._replace(text=f"{why.text}: {more.strip()}") if more.strip() else why
    if _NOT_PERMITTED in job.reason:
        what = "QOS" if "QOS" in job.reason else "account"
        known = _BY_REASON[f"{what.lower()}notallowed"]
        return known(job, around)._replace(text=f"it waits for ever: {job.reason}")
    return quotas.explain(job, name.replace(" ", "")) or Why(
        f"Slurm gives the reason {job.reason!r}" if job.reason else "Slurm has not looked at it yet",
        f"`scontrol show job {job.job_id}` shows all that Slurm knows" if job.reason else "",
    )


# --- by reason


def _resources(job: SlurmJob, around: Surroundings) -> Why:
    return Why(
        f"it waits for {_nodes(job.nodes)} to become free{_where(job)}{_free(around)}{_expected(job)}",
        "nothing is wrong; fewer `nodes` or a shorter `slurm.time` start sooner",
    )


def _priority(job: SlurmJob, around: Surroundings) -> Why:
    return Why(
        f"other jobs come first{_where(job)}{_free(around)}{_expected(job)}",
        "nothing is wrong; a shorter `slurm.time` may let it pass ahead of larger jobs",
    )


def _node_limit(job: SlurmJob, around: Surroundings) -> Why:
    partition = around.partition
    if partition is not None and job.nodes > partition.nodes:
        text = f"it wants {_nodes(job.nodes)}, and partition {partition.name} has {partition.nodes}"
    elif partition is not None and job.nodes > partition.most_nodes:
        text = f"it wants {_nodes(job.nodes)}, and partition {partition.name} gives a job at most "
        text += f"{partition.most_nodes:.0f}"
    elif partition is not None and job.nodes < partition.least_nodes:
        text = f"it wants {_nodes(job.nodes)}, and partition {partition.name} gives a job at least "
        text += f"{partition.least_nodes}"
    else:
        return Why(
            f"it wants {_nodes(job.nodes)}, more than can be had{_where(job)} now{_unusable(around)}",
            "it starts when those nodes come back; else cancel it and lower `nodes`",
        )
    return Why(text, never_starts("lower `nodes` or take another `slurm.partition`", job))


def _time_limit(job: SlurmJob, around: Surroundings) -> Why:
    partition = around.partition
    most = f", which is {span(partition.most_time)}" if partition and partition.most_time < math.inf else ""
    return Why(
        f"its time limit is above that of partition {job.partition}{most}",
        never_starts("lower `slurm.time` or take another `slurm.partition`", job),
    )


def _not_available(_: SlurmJob, around: Surroundings) -> Why:
    return Why(
        f"nodes that it needs are down, drained or reserved{_unusable(around)}",
        "`sinfo --list-reasons` says why; a reservation may begin before the job's `slurm.time` is over",
    )


def _held_by_user(job: SlurmJob, _: Surroundings) -> Why:
    return Why("it is held", f"`scontrol release {job.job_id}` lets it go, when its owner wants that")


def _launch_failed(job: SlurmJob, _: Surroundings) -> Why:
    return Why(
        "a node could not start it, so Slurm put it back into the queue and holds it there",
        "a prolog or a slurmd failed: ask an administrator; `sinfo --list-reasons` may name the node; "
        f"then `scontrol release {job.job_id}`",
    )


def _dependency(job: SlurmJob, _: Surroundings) -> Why:
    return Why(
        f"it waits for another job{f': {job.dependency}' if job.dependency else ''}",
        "nothing is wrong; it starts when that job has ended as asked",
    )


def _begin_time(job: SlurmJob, _: Surroundings) -> Why:
    at = f" {_clock(job.started)}" if job.started else " a given time"
    why = "Slurm lets two minutes pass before it starts a job again" if job.restarts else "that was asked for"
    return Why(f"it may not start before{at}", f"nothing is wrong; {why}")


def _fixed(text: str, hint: str) -> Callable[[SlurmJob, Surroundings], Why]:
    """Texts in which {partition}, {id} and {do} stand for the job's."""

    def make(job: SlurmJob, _: Surroundings) -> Why:
        values = {"partition": job.partition or "its partition", "id": job.job_id}
        return Why(text.format(**values), hint.format(**values))

    return make


_NOT_PERMITTED = "not permitted to use this partition"
_ASK = "ask an administrator of the cluster"
_BY_REASON: Mapping[str, Callable[[SlurmJob, Surroundings], Why]] = {
    "resources": _resources,
    "priority": _priority,
    "partitionnodelimit": _node_limit,
    "partitionconfig": _node_limit,
    "partitiontimelimit": _time_limit,
    "reqnodenotavail": _not_available,
    "nodesrequiredforjobaredown": _not_available,
    "nodedown": _not_available,
    "jobhelduser": _held_by_user,
    "jobrequeuedinheldstate": _held_by_user,
    "jobheldadmin": _fixed("an administrator holds it", _ASK),
    "launchfailedrequeuedheld": _launch_failed,
    "joblaunchfailure": _launch_failed,
    "userenvretrievalfailedrequeuedheld": _launch_failed,
    "jobholdmaxrequeue": _fixed(
        "it was requeued so often that Slurm holds it",
        "its output says why it failed; then `scontrol release {id}`",
    ),
    "dependency": _dependency,
    "dependencyneversatisfied": _fixed(
        "it waits for another job, which did not end as asked",
        "cancel it: it will never start",
    ),
    "begintime": _begin_time,
    "badconstraints": _fixed(
        "no node has all that it asks for",
        "compare its constraint, memory, GPUs and CPUs with `sinfo --format '%N %f %m %G %c'`; then "
        "cancel it and submit it anew",
    ),
    "licenses": _fixed(
        "it waits for licences that others use", "`scontrol show licenses` shows who has them"
    ),
    "reservation": _fixed(
        "its reservation has not begun yet", "`scontrol show reservation` says when it does"
    ),
    "reservationdeleted": _fixed(
        "its reservation was deleted",
        "cancel it and submit it without `slurm.reservation`",
    ),
    "partitiondown": _fixed(
        "partition {partition} starts no jobs now", f"{_ASK}, or take another `slurm.partition`"
    ),
    "partitioninactive": _fixed(
        "partition {partition} is inactive", f"{_ASK}, or take another `slurm.partition`"
    ),
    "invalidaccount": _fixed(
        "its account is not valid",
        "`sacctmgr show associations user=$USER` lists yours",
    ),
    "invalidqos": _fixed(
        "its QOS is not valid",
        "`sacctmgr show associations user=$USER` lists yours",
    ),
    "accountnotallowed": _fixed(
        "its account may not use partition {partition}",
        "take another `slurm.account` or `slurm.partition`",
    ),
    "qosnotallowed": _fixed(
        "its QOS may not use partition {partition}", "take another `slurm.qos` or `slurm.partition`"
    ),
    "cleaning": _fixed(
        "its last attempt is still being cleaned up on the nodes", "nothing is wrong; it takes seconds"
    ),
    "prolog": _fixed("the nodes' prolog runs", "nothing is wrong; it takes seconds"),
    "deadline": _fixed("it cannot end before its deadline", "cancel it and submit it anew"),
    "systemfailure": _fixed("Slurm itself has failed", _ASK),
}


# --- by state


def _configuring(job: SlurmJob, _: Surroundings) -> Why:
    return Why(
        f"its nodes {job.node_list} are being started or prepared",
        "nothing is wrong; booting nodes takes minutes",
    )


def _requeue_hold(job: SlurmJob, around: Surroundings) -> Why:
    known = _launch_failed if "launch" in job.reason.lower() else _held_by_user
    return known(job, around)


_BY_STATE: Mapping[str, Callable[[SlurmJob, Surroundings], Why]] = {
    "CONFIGURING": _configuring,
    "POWER_UP_NODE": _configuring,
    "REQUEUE_HOLD": _requeue_hold,
    "SPECIAL_EXIT": _requeue_hold,
    "REQUEUED": _fixed("it was put back into the queue and will be started again", ""),
    "REQUEUE_FED": _fixed("it was put back into the queue and will be started again", ""),
    "RESV_DEL_HOLD": _fixed("its reservation was deleted, and it is held", "cancel it and submit it anew"),
}


# --- words

_DOWN = ("down", "drain", "fail", "maint", "reserved", "unknown")


def _nodes(number: int) -> str:
    return "1 node" if number == 1 else f"{number} nodes"


def _where(job: SlurmJob) -> str:
    return f" in partition {job.partition}" if job.partition else ""


def _free(around: Surroundings) -> str:
    """`; 1 of its 3 is idle, 1 is down`."""
    states = dict(_by_state(around))
    if not states:
        return ""
    total = sum(states.values())
    idle = states.pop("idle", 0)
    bad = [f"{number} {state}" for state, number in states.items() if state not in ("allocated", "mixed")]
    return f"; {idle} of {total} {'is' if idle == 1 else 'are'} idle" + (f", {', '.join(bad)}" if bad else "")


def _by_state(around: Surroundings) -> Counter[str]:
    return Counter({name: state for name, state, _ in around.nodes}.values())


def _unusable(around: Surroundings) -> str:
    """`: n3 is down, Not responding`, of the first few; "" when all may be used."""
    bad = {}
    for name, state, why in around.nodes:
        if state.startswith(_DOWN):
            bad[name] = f"{name} is {state}" + (f", {why}" if why else "")
    told = [bad[name] for name in sorted(bad)]
    more = [f"and {len(told) - 4} more"] if len(told) > 4 else []
    return f": {'; '.join([*told[:4], *more])}" if told else ""


_NOBODY_KNOWS = 300 * 86400.0
"""Slurm takes a job without a time limit to last a year."""


def _expected(job: SlurmJob) -> str:
    if not job.started or job.started - (job.submitted or 0.0) > _NOBODY_KNOWS:
        return ""
    return f"; Slurm expects it to start at {_clock(job.started)}"


def _clock(at: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def span(seconds: float) -> str:
    """Return a duration as Slurm writes it: `[days-]hours:minutes:seconds`."""
    minutes = round(seconds / 60)
    days, rest = divmod(minutes, 24 * 60)
    return (f"{days}-" if days else "") + f"{rest // 60:02}:{rest % 60:02}:00"
