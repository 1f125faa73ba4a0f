"""Explains why a job is pending, or never can start, and what to do about it. Pure.

The reasons are those of Slurm's page "Job Reason Codes", and some that it does not list.

Slurm accepts jobs that can never start, and keeps them pending. They are found before they are sent, and only
what is certain is reported: nodes that are down come back, and limits of accounts are for Slurm to judge.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, NamedTuple

from ddplaunch.agent.text.quantities import count
from ddplaunch.backends.slurm.parse import Partition, SlurmJob, directives, seconds

_EVENTS: Final = {
    "after": ("has started", "has not started"),
    "afterany": ("has ended", "has not ended"),
    "afterok": ("has succeeded", "has not succeeded"),
    "afternotok": ("has failed", "has not failed"),
    "aftercorr": ("has succeeded, task by task", "has not succeeded"),
    "afterburstbuffer": ("has freed its burst buffer", "has not freed its burst buffer"),
}
"""Two texts about a job: the end that a dependency waits for, and what happened instead."""


class _Part(NamedTuple):
    kind: str
    job: str
    failed: bool


def waits_for(text: str) -> str:
    """Return `until job 7 has succeeded` for `afterok:7(unfulfilled)`; empty if it is not understood."""
    if text.partition("(")[0] == "singleton":
        return "until no other job of its name and its user runs or waits"
    events = [f"job {each.job} {_EVENTS[each.kind][0]}" for each in _parts(text) if not each.failed]
    return "until " + (" or " if "?" in text else " and ").join(events) if events else ""


def missed(text: str) -> str:
    """Return `job 7 has not succeeded` for `afterok:7(failed)`; empty if no part has failed."""
    return " and ".join(f"job {each.job} {_EVENTS[each.kind][1]}" for each in _parts(text) if each.failed)


def _parts(text: str) -> list[_Part]:
    """Return those parts of `afterok:7(unfulfilled),afterany:8_*(failed)` that are understood."""
    found = re.findall(r"(\w+):(\d+)(?:_\*|_\d+)?(?:\+\d+)?(?:\((\w+)\))?", text)
    return [_Part(kind, job, state == "failed") for kind, job, state in found if kind in _EVENTS]


class Why(NamedTuple):
    """Why Slurm does not start the job, and a hint: one sentence each."""

    text: str
    hint: str
    never: bool = False  # waiting will never cure it


def explain_limit(job: SlurmJob, reason: str) -> Why | None:
    """Explain a limit that keeps a job pending; None if the reason is of another kind."""
    for pattern, maker in _FAMILIES:
        match = re.fullmatch(pattern, reason, re.IGNORECASE)
        if match is not None:
            return maker(job, match)
    return None


def never_starts(text: str, what: str, job: SlurmJob) -> Why:
    """Return that a job must be submitted again, with the change that `what` names."""
    return Why(
        text,
        f"the job can never start as it is: `ddplaunch cancel slurm://{job.job_id}`, then {what}",
        never=True,
    )


def _group_limit(_: SlurmJob, match: re.Match[str]) -> Why:
    whose = "its QOS" if match["who"].lower() == "qos" else "its account"
    return Why(
        f"all running jobs of {whose} together are at the limit of {_limited(match['what'])} ({match[0]})",
        "nothing is wrong: it starts when some of those jobs end; or use another account or QOS",
    )


def _own_limit(job: SlurmJob, match: re.Match[str]) -> Why:
    whose = "its QOS" if match["who"].lower() == "qos" else "its account"
    what = match["what"]
    if not re.search(r"per(job|node)(limit)?$", what, re.IGNORECASE):
        return Why(
            f"{whose} allows no more {_limited(what)} at once ({match[0]})",
            "it starts when your other jobs end; or request less",
        )
    return never_starts(
        f"it requests more {_limited(what)} than {whose} allows per job ({match[0]})",
        "request less, or use another `slurm.qos` or `slurm.account`",
        job,
    )


def _account_limit(_: SlurmJob, match: re.Match[str]) -> Why:
    return Why(
        f"the jobs of its account are at the limit of {_limited(match['what'])} ({match[0]})",
        "it starts when other jobs of the account end; or use another `slurm.account`",
    )


def _min_limit(job: SlurmJob, match: re.Match[str]) -> Why:
    return never_starts(
        f"it requests fewer {_limited(match['what'])} than its QOS requires ({match[0]})",
        "request more, or use another `slurm.qos`",
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


NodeState = tuple[str, str, str]
"""Name, state, and the administrator's reason for it."""


@dataclass(frozen=True)
class PartitionFacts:
    """Limits and nodes of the partition in which a job waits, as far as they are known."""

    partition: Partition | None = None
    nodes: Sequence[NodeState] = ()  # of its partition


def explain(job: SlurmJob, facts: PartitionFacts) -> Why:
    """Return why a job is pending, held or still being started, and whether waiting helps."""
    why = _explain(job, facts)
    # Slurm gives one partition's reason, and another partition may still take the job.
    elsewhere = "," in job.partition and not job.reason.startswith(_OF_THE_JOB)
    return why._replace(never=False) if elsewhere else why


def _explain(job: SlurmJob, facts: PartitionFacts) -> Why:
    if job.state in _BY_STATE:
        return _BY_STATE[job.state](job, facts)
    reason = job.reason.strip("()").replace("_", " ")
    name, _, more = reason.partition(",")
    known = _BY_REASON.get(name.strip().replace(" ", "").lower())
    if known is not None:
        why = known(job, facts)
        return why._replace(text=f"{why.text}: {more.strip()}") if more.strip() else why
    if _NOT_PERMITTED in job.reason:
        what = "QOS" if "QOS" in job.reason else "account"
        known = _BY_REASON[f"{what.lower()}notallowed"]
        return known(job, facts)._replace(text=f"it will never start: {job.reason}")
    return explain_limit(job, name.replace(" ", "")) or Why(
        f"Slurm gives the reason {job.reason!r}" if job.reason else "Slurm has not considered it yet",
        f"`scontrol show job {job.job_id}` shows all that Slurm knows" if job.reason else "",
    )


# --- by reason


def _resources(job: SlurmJob, facts: PartitionFacts) -> Why:
    return Why(
        f"it waits for {count(job.nodes, 'node')} to become free{_where(job)}{_free(facts)}{_expected(job)}",
        "nothing is wrong; fewer `nodes` or a shorter `slurm.time` start sooner",
    )


def _priority(job: SlurmJob, facts: PartitionFacts) -> Why:
    return Why(
        f"other jobs come first{_where(job)}{_free(facts)}{_expected(job)}",
        "nothing is wrong; a shorter `slurm.time` may let it start before larger jobs",
    )


def node_limit(nodes: int, partition: Partition) -> str:
    """Return which limit of the partition forbids a job with so many nodes; empty if none does."""
    where = f"partition {partition.name}"
    if nodes > partition.nodes:
        return f"{where} has {partition.nodes}"
    if nodes > partition.most_nodes:
        return f"{where} allows a job at most {partition.most_nodes:.0f}"
    return f"{where} requires at least {partition.least_nodes}" if nodes < partition.least_nodes else ""


def _node_limit(job: SlurmJob, facts: PartitionFacts) -> Why:
    limit = node_limit(job.nodes, facts.partition) if facts.partition is not None else ""
    if limit:
        text = f"it requests {count(job.nodes, 'node')}, but {limit}"
        return never_starts(text, "change `nodes` or use another `slurm.partition`", job)
    return Why(
        f"it requests {count(job.nodes, 'node')}, more than are available{_where(job)} now{_unusable(facts)}",
        "it starts when those nodes come back; or cancel it and lower `nodes`",
    )


def _time_limit(job: SlurmJob, facts: PartitionFacts) -> Why:
    partition = facts.partition
    most = f", which is {span(partition.most_time)}" if partition and partition.most_time < math.inf else ""
    return never_starts(
        f"its time limit is above the limit of partition {job.partition}{most}",
        "lower `slurm.time` or use another `slurm.partition`",
        job,
    )


def _not_available(_: SlurmJob, facts: PartitionFacts) -> Why:
    return Why(
        f"nodes that it needs are down, drained or reserved{_unusable(facts)}",
        "`sinfo --list-reasons` says why; a reservation may begin before the job's `slurm.time` is over",
    )


def _held_by_user(job: SlurmJob, _: PartitionFacts) -> Why:
    return Why("it is held", f"its owner can release it with `scontrol release {job.job_id}`")


def _launch_failed(job: SlurmJob, _: PartitionFacts) -> Why:
    return Why(
        "a node could not start it, so Slurm requeued it and holds it",
        "a prolog or a slurmd failed: ask an administrator; `sinfo --list-reasons` may name the node; "
        f"then `scontrol release {job.job_id}`",
    )


def _dependency(job: SlurmJob, _: PartitionFacts) -> Why:
    until = waits_for(job.dependency) or f"for another job: {job.dependency or 'not known which'}"
    return Why(f"it waits {until}", "nothing is wrong; it starts by itself after that")


def _never_satisfied(job: SlurmJob, _: PartitionFacts) -> Why:
    why = missed(job.dependency) or "the job that it waits for did not end as required"
    return Why(
        f"it will never start: {why}",
        f"`ddplaunch cancel slurm://{job.job_id}`; submit it again after the other job, once that is fixed",
        never=True,
    )


def _begin_time(job: SlurmJob, _: PartitionFacts) -> Why:
    at = f" {_clock(job.started)}" if job.started else " a given time"
    why = (
        "Slurm waits two minutes before it starts a job again"
        if job.restarts
        else "it was submitted this way"
    )
    return Why(f"it may not start before{at}", f"nothing is wrong; {why}")


def _fixed(text: str, hint: str) -> Callable[[SlurmJob, PartitionFacts], Why]:
    """Return a function that fills the job's {partition} and {id} into both texts."""

    def make(job: SlurmJob, _: PartitionFacts) -> Why:
        values = {"partition": job.partition or "its partition", "id": job.job_id}
        return Why(text.format(**values), hint.format(**values))

    return make


def _never(text: str, what: str) -> Callable[[SlurmJob, PartitionFacts], Why]:
    """Return a function that says `text`, and that the job must be submitted again as `what` says."""

    def make(job: SlurmJob, _: PartitionFacts) -> Why:
        return never_starts(text.format(partition=job.partition or "its partition"), what, job)

    return make


_OF_THE_JOB = ("Dependency", "InvalidAccount", "InvalidQOS", "ReservationDeleted", "Deadline")
"""Beginnings of reasons that apply in every partition."""
_NOT_PERMITTED = "not permitted to use this partition"
_ASK = "ask an administrator of the cluster"
_YOURS = "`sacctmgr show associations user=$USER` lists yours"
_RESERVATION_DELETED = "its reservation was deleted"
_NO_RESERVATION = "submit it without `slurm.reservation`"
_BY_REASON: Mapping[str, Callable[[SlurmJob, PartitionFacts], Why]] = {
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
    "dependencyneversatisfied": _never_satisfied,
    "begintime": _begin_time,
    "badconstraints": _never(
        "no node has everything that it requests",
        "request what the nodes have: `sinfo --format '%N %f %m %G %c'` shows features, memory, GPUs, CPUs",
    ),
    "licenses": _fixed(
        "it waits for licences that other jobs use", "`scontrol show licenses` shows which are in use"
    ),
    "reservation": _fixed(
        "its reservation has not begun yet", "`scontrol show reservation` shows when it begins"
    ),
    "reservationdeleted": _never(_RESERVATION_DELETED, _NO_RESERVATION),
    "partitiondown": _fixed(
        "partition {partition} starts no jobs now", f"{_ASK}, or use another `slurm.partition`"
    ),
    "partitioninactive": _fixed(
        "partition {partition} is inactive", f"{_ASK}, or use another `slurm.partition`"
    ),
    "invalidaccount": _never("its account is not valid", f"use another `slurm.account`: {_YOURS}"),
    "invalidqos": _never("its QOS is not valid", f"use another `slurm.qos`: {_YOURS}"),
    "accountnotallowed": _never(
        "its account may not use partition {partition}", "use another `slurm.account` or `slurm.partition`"
    ),
    "qosnotallowed": _never(
        "its QOS may not use partition {partition}", "use another `slurm.qos` or `slurm.partition`"
    ),
    "cleaning": _fixed(
        "its last attempt is still being cleaned up on the nodes", "nothing is wrong; it takes seconds"
    ),
    "prolog": _fixed("the nodes' prolog runs", "nothing is wrong; it takes seconds"),
    "deadline": _never("it cannot end before its deadline", "submit it with a later deadline"),
    "systemfailure": _fixed("Slurm itself has failed", _ASK),
}


# --- by state


def _configuring(job: SlurmJob, _: PartitionFacts) -> Why:
    return Why(
        f"its nodes {job.node_list} are being started or prepared",
        "nothing is wrong; booting nodes takes minutes",
    )


def _requeue_hold(job: SlurmJob, facts: PartitionFacts) -> Why:
    known = _launch_failed if "launch" in job.reason.lower() else _held_by_user
    return known(job, facts)


_BY_STATE: Mapping[str, Callable[[SlurmJob, PartitionFacts], Why]] = {
    "CONFIGURING": _configuring,
    "POWER_UP_NODE": _configuring,
    "REQUEUE_HOLD": _requeue_hold,
    "SPECIAL_EXIT": _requeue_hold,
    "REQUEUED": _fixed("it was requeued and will start again", ""),
    "REQUEUE_FED": _fixed("it was requeued and will start again", ""),
    "RESV_DEL_HOLD": _never(f"{_RESERVATION_DELETED}, and it is held", _NO_RESERVATION),
}


# --- words

_DOWN = ("down", "drain", "fail", "maint", "reserved", "unknown")


def _where(job: SlurmJob) -> str:
    return f" in partition {job.partition}" if job.partition else ""


def _free(facts: PartitionFacts) -> str:
    """`; 1 of its 3 is idle, 1 is down`."""
    states = dict(Counter({name: state for name, state, _ in facts.nodes}.values()))
    if not states:
        return ""
    total = sum(states.values())
    idle = states.pop("idle", 0)
    bad = [f"{number} {state}" for state, number in states.items() if state not in ("allocated", "mixed")]
    return f"; {idle} of {total} {'is' if idle == 1 else 'are'} idle" + (f", {', '.join(bad)}" if bad else "")


def _unusable(facts: PartitionFacts) -> str:
    """`: n3 is down, Not responding`, for the first few; "" if all of them can be used."""
    by_name = {}
    for name, state, why in facts.nodes:
        if state.startswith(_DOWN):
            by_name[name] = f"{name} is {state}" + (f", {why}" if why else "")
    unusable = [by_name[name] for name in sorted(by_name)]
    more = [f"and {len(unusable) - 4} more"] if len(unusable) > 4 else []
    return f": {'; '.join([*unusable[:4], *more])}" if unusable else ""


_NO_ESTIMATE = 300 * 86400.0
"""From this many seconds on, Slurm's estimate means nothing: it assumes a year for a job without a time
limit."""


def _expected(job: SlurmJob) -> str:
    if not job.started or job.started - (job.submitted or 0.0) > _NO_ESTIMATE:
        return ""
    return f"; Slurm expects it to start at {_clock(job.started)}"


def _clock(at: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def span(seconds: float) -> str:
    """Return a duration as Slurm writes it: `[days-]hours:minutes:seconds`."""
    minutes = round(seconds / 60)
    days, rest = divmod(minutes, 24 * 60)
    return (f"{days}-" if days else "") + f"{rest // 60:02}:{rest % 60:02}:00"


# --- jobs that can never start


@dataclass(frozen=True)
class Requested:
    """Options of a batch script that decide whether it can start; empty for those that it does not give."""

    partition: str = ""
    nodes: str = ""
    time: str = ""
    account: str = ""
    qos: str = ""
    clusters: str = ""


_OPTIONS = {"partition": "p", "nodes": "N", "time": "t", "account": "A", "qos": "q", "clusters": "M"}
_VARIABLES = {
    "partition": "SBATCH_PARTITION",
    "time": "SBATCH_TIMELIMIT",
    "account": "SBATCH_ACCOUNT",
    "qos": "SBATCH_QOS",
    "clusters": "SBATCH_CLUSTERS",
}


def requested(script: str, environment: Mapping[str, str]) -> Requested:
    """Return the options in the script's directives; sbatch's environment variables override them."""
    found = dict(_options(directives(script)))
    found |= {
        name: environment[variable] for name, variable in _VARIABLES.items() if environment.get(variable)
    }
    return Requested(**found)


def _options(words: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Yield the options in `_OPTIONS`, given as `--name=value`, `--name value`, `-n value` or `-nvalue`."""
    following = ""
    for word in words:
        if following:
            yield following, word
            following = ""
            continue
        for name, letter in _OPTIONS.items():
            if word.startswith(f"--{name}="):
                yield name, word.partition("=")[2]
            elif word in (f"--{name}", f"-{letter}"):
                following = name
            elif word.startswith(f"-{letter}"):
                yield name, word[2:]


def problems(wanted: Requested, partitions: Sequence[Partition]) -> list[str]:
    """Return a sentence for each limit that forbids the job; one of several partitions may allow it."""
    known = {each.name: each for each in partitions}
    if not known:
        return []
    named = wanted.partition.split(",") if wanted.partition else []
    found = [_unknown(name, known) for name in named if name not in known]
    chosen = [known[name] for name in named if name in known]
    if not named:
        chosen = [each for each in partitions if each.default]
    conflicts = [list(_conflicts(wanted, each)) for each in chosen]
    if conflicts and all(conflicts):
        found += [text for texts in conflicts for text in texts]
    return found


def _unknown(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = get_close_matches(name, names, n=1)
    if near:
        return f"there is no partition {name}: did you mean {near[0]}?"
    return f"there is no partition {name} (partitions: {', '.join(names)})"


def _conflicts(wanted: Requested, partition: Partition) -> Iterable[str]:
    least = int(wanted.nodes.partition("-")[0]) if wanted.nodes.partition("-")[0].isdecimal() else 1
    where = f"partition {partition.name}"
    text = node_limit(least, partition)
    if text and ("-" not in wanted.nodes or least >= partition.least_nodes):
        yield f"the job asks for {least} nodes, and {text}"
    if wanted.time and partition.most_time < seconds(wanted.time):
        yield f"the job's time limit is {wanted.time}, and that of {where} is {span(partition.most_time)}"
    yield from _not_allowed("account", wanted.account, partition.accounts, partition.denied_accounts, where)
    yield from _not_allowed("QOS", wanted.qos, partition.qos, partition.denied_qos, where)


def _not_allowed(
    what: str, name: str, allowed: frozenset[str] | None, denied: frozenset[str], where: str
) -> Iterable[str]:
    if name and allowed is not None and name not in allowed:
        yield f"{where} is not open to {what} {name}, only to {', '.join(sorted(allowed)) or 'none'}"
    elif name and name in denied:
        yield f"{where} is not open to {what} {name}"
