"""The pace of ranks that move: how long a step takes, and where a rank spent which share of its time."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Optional

from ddplaunch.agent.contract import JobPace, RankEvidence, RankPace, Stand
from ddplaunch.agent.system import phrases

_ENOUGH = 10
"""The fewest looks, one a second, at which shares mean something."""
_WORKS, _WAITS = 0.25, 0.5
"""Shares of time in collectives: up to the first a rank does not wait, from the second on it does."""
_STEPS = 8
_FIRST = 8
IN_COLLECTIVES, FOR_DATA = "collective", "loader"


def step(rank: RankEvidence) -> Optional[float]:
    """Return the median of the last steps, in seconds; None: no two steps were seen, or no steady ones."""
    times = rank.step_times[-_STEPS:]
    return statistics.median(times) if times and steady(times) else None


def steady(times: Sequence[float]) -> bool:
    """Whether these may be steps: the times between several collectives of one kind in a step vary."""
    if len(times) < 2:
        return True
    middle, tenths = statistics.median(times), statistics.quantiles(times, n=10, method="inclusive")
    return middle / 2 <= tenths[0] and tenths[-1] <= 2 * middle


def seconds_observed(rank: RankEvidence) -> int:
    """Return for how many seconds shares are known; 0 if these are too few."""
    number = sum(stand.seconds for stand in rank.stands)
    return number if number >= _ENOUGH else 0


def share(rank: RankEvidence, kind: str) -> float:
    """Return the share of time that it was in places of this kind. Needs `seconds_observed` above 0."""
    return sum(stand.seconds for stand in rank.stands if stand.kind == kind) / seconds_observed(rank)


def last_to_come(ranks: Sequence[RankEvidence]) -> Optional[RankEvidence]:
    """Return the one rank that hardly waits in collectives while all others do; None if there is none."""
    if len(ranks) < 2 or not all(seconds_observed(rank) for rank in ranks):
        return None
    first, *others = sorted(ranks, key=lambda rank: share(rank, IN_COLLECTIVES))
    alone = all(share(rank, IN_COLLECTIVES) >= _WAITS for rank in others)
    return first if alone and share(first, IN_COLLECTIVES) <= _WORKS else None


def where(rank: RankEvidence) -> str:
    """'spent 78% of the last 40 s in DataLoader.__next__ (train.py:40)': the place where it was most."""
    most = max(
        (stand for stand in rank.stands if stand.kind != IN_COLLECTIVES), key=lambda each: each.seconds
    )
    observed = seconds_observed(rank)
    return f"spent {most.seconds / observed:.0%} of the last {phrases.span(observed)} in {_place(most)}"


def text(rank: RankEvidence) -> str:
    """'a step takes 0.5 s; of the last 40 s 20% in collectives, 78% waiting for data'; may be empty."""
    seconds, parts = step(rank), []
    if seconds is not None:
        parts.append(
            f"a step takes {phrases.span(seconds) if seconds >= 0.1 else f'{1000 * seconds:.0f} ms'}"
        )
    if seconds_observed(rank):
        shares = {"in collectives": share(rank, IN_COLLECTIVES), "waiting for data": share(rank, FOR_DATA)}
        known = [f"{part:.0%} {name}" for name, part in shares.items()]
        parts.append(f"of the last {phrases.span(seconds_observed(rank))} {', '.join(known)}")
    return "; ".join(parts)


def brief(rank: RankEvidence) -> RankPace:
    """Return its step and shares as numbers."""
    known = seconds_observed(rank)
    shares = [round(share(rank, kind), 3) if known else None for kind in (IN_COLLECTIVES, FOR_DATA)]
    return RankPace(rank.rank, step(rank), *shares)


def of_job(ranks: Sequence[RankPace]) -> Optional[JobPace]:
    """Return what is known of the pace of all ranks; None: nothing."""
    if not ranks:
        return None
    first = sorted(ranks, key=_waits)
    return JobPace(
        len(ranks),
        _median([each.step for each in ranks]),
        _median([each.in_collectives for each in ranks]),
        _median([each.for_data for each in ranks]),
        first[:_FIRST],
    )


def _median(values: Sequence[Optional[float]]) -> Optional[float]:
    known = [value for value in values if value is not None]
    return round(statistics.median(known), 4) if known else None


def _waits(rank: RankPace) -> tuple[float, int]:
    return 1.0 if rank.in_collectives is None else rank.in_collectives, rank.rank


def _place(stand: Stand) -> str:
    if stand.kind == FOR_DATA:
        return f"DataLoader.__next__{phrases.at(stand.frame)}"
    return phrases.place(stand.frame) if stand.frame else "its own code"
