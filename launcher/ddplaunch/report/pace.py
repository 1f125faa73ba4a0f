"""Formats the pace of a job that runs. Pure."""

from __future__ import annotations

import statistics

from ddplaunch.agent.contract import JobPace
from ddplaunch.report.words import count, duration

_MATTERS = 0.1
"""Share of time from which on it is mentioned: a rank is seen once a second, for a minute."""
_APART = 0.2
"""Share by which the rank that waits least waits less than the others, to be named."""


def text(pace: JobPace) -> str:
    """Return 'a step takes 420 ms, 2.4 a second; of the last minute 35% in collectives'; may be empty."""
    parts = [f"a step takes {_step(pace.step)}"] if pace.step is not None else []
    shares = {"in collectives": pace.in_collectives, "waiting for data": pace.for_data}
    if pace.first and (shown := _first_to_go_on(pace)):
        parts.append(shown)
    elif known := [f"{each:.0%} {name}" for name, each in shares.items() if each and each >= _MATTERS]:
        parts.append(f"of the last minute {', '.join(known)}")
    return "; ".join(parts)


def lines(pace: JobPace) -> list[str]:
    """Return `text`, and a line on how many ranks it is of, and on those that wait least for the others."""
    known = text(pace)
    if not known:
        return []
    shares = [
        f"rank {each.rank} {each.in_collectives:.0%}"
        for each in pace.first
        if each.in_collectives is not None
    ]
    if len(shares) < 2:
        return [known]
    least = "; in collectives least" if pace.ranks > len(shares) else "; in collectives"
    return [known, f"{count(pace.ranks, 'rank')}{least}: {', '.join(shares)}"]


def _first_to_go_on(pace: JobPace) -> str:
    """Return a text on the rank that waits least for the others; empty where none stands out."""
    least, *others = pace.first
    known = [each.in_collectives for each in others if each.in_collectives is not None]
    mostly = pace.in_collectives if pace.ranks > len(pace.first) or not known else statistics.median(known)
    if least.in_collectives is None or mostly is None or mostly - least.in_collectives < _APART:
        return ""
    data = f" and waits for data {least.for_data:.0%}" if (least.for_data or 0.0) >= _MATTERS else ""
    where = f"rank {least.rank} is in collectives {least.in_collectives:.0%}{data} of the last minute"
    return f"{where}, the others {mostly:.0%}"


def _step(seconds: float) -> str:
    text = f"{seconds * 1000:.0f} ms" if seconds < 1 else duration(seconds)
    return f"{text}{_rate(seconds)}"


def _rate(seconds: float) -> str:
    """Return how many steps come in a second or in a minute; empty where less than one does."""
    for unit, size in (("a second", 1.0), ("a minute", 60.0)):
        if 0 < seconds < size:
            each = size / seconds
            return f", {each:.1f} {unit}" if each < 9.95 else f", {each:.0f} {unit}"
    return ""
