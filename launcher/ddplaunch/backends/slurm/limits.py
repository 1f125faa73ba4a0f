"""Finds jobs that can never start, before they are sent: Slurm would accept them and keep them pending. Pure.

It reports only what is certain: nodes that are down come back, and Slurm judges the limits of accounts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from ddplaunch.backends.slurm.parse import Partition, directives, seconds
from ddplaunch.backends.slurm.pending import node_limit, span


@dataclass(frozen=True)
class Requested:
    """Options of a batch script that decide whether it can start; empty if the script does not set them."""

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
    """Return the options in the script's directives. sbatch's environment variables override them."""
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
    """Return a sentence for each limit that forbids the job. If it names several partitions, one may allow
    it.
    """
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
