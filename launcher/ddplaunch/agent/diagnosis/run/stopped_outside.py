"""Rules about a job that was ended from outside: its launch command or its ranks. No rank is at fault."""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

from ddplaunch.agent.contract import NodeEvidence, Verdict
from ddplaunch.agent.diagnosis.run.causes import TOGETHER, causes_of, first_ends
from ddplaunch.agent.diagnosis.run.job_view import JobView
from ddplaunch.agent.system import phrases, subjects

_STOPS = frozenset(["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"])
"""Signals that ask a program to end; a crash and the memory killer send others."""
_TORCHRUN = re.compile(r"SignalException: Process \d+ got signal: (\d+)")
"""torch/distributed/elastic/multiprocessing/api.py, when torchrun itself is sent a signal."""
_HINT = (
    "Look for the sender: a person, `timeout` or `kill` in a script, a memory killer outside the job's "
    "cgroup, the scheduler's log at that time, or a line of the program that ends processes."
)


def stopped(view: JobView) -> Optional[Verdict]:
    """A signal that asks for an end reached a launch command or ranks, and nothing had gone wrong before."""
    found = _launches(view) or _ranks(view)
    if found is None:
        return None
    if any(cause.what not in _STOPS and cause.at < found.at - TOGETHER for cause in causes_of(view)):
        return None
    return Verdict(
        code="node-evicted",
        sentence=found.sentence,
        where="run",
        nodes=found.nodes,
        victims=sorted(view.ranks),
        confidence=0.9 if found.is_outside and len(view.ranks) == len(view.world) else 0.5,
        facts=view.counts(),
        hint=_HINT,
    )


class _Found(NamedTuple):
    sentence: str
    nodes: list[int]
    at: float
    is_outside: bool  # certainly: one rank alone may have sent the signal to itself


def _launches(view: JobView) -> Optional[_Found]:
    by = {number: signal for number, node in view.nodes.items() if (signal := _stop_of(node))}
    if not by:
        return None
    nodes = sorted(by)
    ends = [end.at for number in nodes if (end := view.nodes[number].launch_exit) is not None]
    commands = f"the launch command of {view.named(nodes)}"
    if len(nodes) == 1:  # it may have sent the signal to itself
        return _Found(
            f"{commands} ended by {by[nodes[0]]}, and the sender is unknown", nodes, min(ends), True
        )
    return _Found(f"{commands} were each stopped from outside by {by[nodes[0]]}", nodes, min(ends), True)


def _stop_of(node: NodeEvidence) -> str:
    """Return the signal that ended its launch command, seen or reported by torchrun; empty: none did."""
    end = node.launch_exit
    if end is None or end.by_us:
        return ""
    reported = next(filter(None, map(_TORCHRUN.search, reversed(node.launch_output))), None)
    number = end.signal or (int(reported[1]) if reported else None)
    name = phrases.signal_name(number) if number else ""
    return name if name in _STOPS else ""


def _ranks(view: JobView) -> Optional[_Found]:
    """Return the signal of the ranks that ended first, where their launcher had no reason to send it.

    Those that it then sent away may have been seen to end at the same moment.
    """
    causes = [cause for cause in first_ends(view, "signal") if cause.what in _STOPS]
    ends = [node.launch_exit for node in view.nodes.values() if node.launch_exit is not None]
    if not causes or any(end.signal and end.at <= causes[0].at + TOGETHER for end in ends):
        return None
    numbers = sorted({cause.rank for cause in causes})
    all_of_them = view.is_everyone(numbers)
    who = "all ranks" if all_of_them else subjects.ranks(numbers)
    # A rank may have sent it to itself.
    whence = "which came from outside" if all_of_them else "and the sender is unknown"
    seen = "" if len(view.ranks) == len(view.world) else " of those seen"
    sentence = f"{who} ended by {causes[0].what}, {whence}: no rank{seen} had failed before"
    return _Found(sentence, view.nodes_of(numbers), causes[0].at, all_of_them)
