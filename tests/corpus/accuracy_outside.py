"""'From outside' of docs/accuracy.md: what `diagnose pid:…` says of jobs that plain torchrun has started."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from tests.corpus.cases import Case
from tests.corpus.outside import PROGRAMS
from tests.corpus.scores import ABSTAINED, PART, RIGHT, WRONG, Score, named, of_ranks

KINDS = {
    "py-spy": "with py-spy",
    "none": "without py-spy",
    "forbidden": "without the right to trace",
    "server": "without it, with torch's debug server",
    "files": "without it, with dumps in files",
}
COLUMNS = (
    "ended before",
    "looked at",
    "right rank",
    "right rank and cause",
    "some of the ranks",
    "abstained",
    "wrong rank",
    "right rank, wrong cause",
    "healthy ones accused",
    "healthy ones called slow",
    "seconds",
)


def section(faults: list[Case], healthy: list[Case], rows: dict[str, Any]) -> Iterator[str]:
    """The figures, the misses, and a line for every program."""
    looks = [(case, rows[case.name]["outside"]) for case in faults if "outside" in rows.get(case.name, {})]
    calm = [(case, rows[case.name]["outside"]) for case in healthy if "outside" in rows.get(case.name, {})]
    loads = [look["load"] for _, look in [*looks, *calm] if "load" in look]
    told = [look[way]["load"] for _, look in [*looks, *calm] for way in PROGRAMS if way in look]
    yield (
        f"{len(looks)} programs with a fault and {len(calm)} healthy ones, under a load of {_range(loads)}, "
        f"{len(loads)} of them in the first three ways; "
        f"those with a debug server, or with dumps, were run separately, under a load of {_range(told)}."
    )
    yield ""
    yield f"| | {' | '.join(COLUMNS)} |"
    yield "|---" * (len(COLUMNS) + 1) + "|"
    for kind, name in KINDS.items():
        yield f"| {name} | {' | '.join(_figures(kind, looks, calm))} |"
    yield ""
    yield f"| program | true | load | {' | '.join(f'{name} | | s' for name in KINDS.values())} |"
    yield "|---" * (3 + 3 * len(KINDS)) + "|"
    for case, look in [*looks, *calm]:
        cells = [cell for kind in KINDS for cell in _cells(case, look.get(kind))]
        true = named(case.code, case.ranks) if case.code else "healthy"
        yield f"| {case.name} | {true} | {look.get('load', '')} | {' | '.join(cells)} |"


def scores(faults: list[Case], rows: dict[str, Any]) -> list[Score]:
    """Return how all that was said from outside compares with what is true."""
    return [
        Score(case, look[kind])
        for case in faults
        for look in [rows.get(case.name, {}).get("outside", {})]
        for kind in KINDS
        if kind in look
    ]


def _range(loads: list[float]) -> str:
    """'3.0 to 9.0, a median of 9.0'."""
    return f"{min(loads)} to {max(loads)}, a median of {statistics.median(loads):.1f}" if loads else "0"


def _figures(kind: str, looks: list[Any], calm: list[Any]) -> Iterator[str]:
    looks, calm = ([each for each in those if kind in each[1]] for those in (looks, calm))
    seen = [Score(case, look[kind]) for case, look in looks if look[kind]["seconds"] is not None]
    ranks = [rank_score(score) for score in seen]
    cells = [len(looks) - len(seen), len(seen), ranks.count(RIGHT)]
    cells += [sum(score.kind == RIGHT for score in seen), ranks.count(PART), ranks.count(ABSTAINED)]
    cells += [ranks.count(WRONG), sum(rank_score(each) == RIGHT and each.kind == WRONG for each in seen)]
    yield from map(str, cells)
    told = [look[kind]["code"] for _, look in calm if look[kind]["ranks"]]
    alive = sum(look[kind]["seconds"] is not None for _, look in calm)
    yield from (f"{len(told) - told.count('slow')} of {alive}", f"{told.count('slow')} of {alive}")
    yield f"{statistics.median(score.run['seconds'] for score in seen):.1f}" if seen else ""


def _cells(case: Case, run: dict[str, Any] | None) -> list[str]:
    if run is None:
        return ["not asked", "", ""]
    if run["seconds"] is None:
        return ["ended before", "", ""]
    said = named(run["code"], run["ranks"])
    if case.healthy:
        return [said, "accused" if run["ranks"] and run["code"] != "slow" else "", str(run["seconds"])]
    score = Score(case, run)
    kind = rank_score(score)
    kind = f"right rank, {score.kind}" if kind == RIGHT != score.kind else kind
    return [said, kind, str(run["seconds"])]


def rank_score(score: Score) -> str:
    """How the named ranks alone compare."""
    return of_ranks(set(score.case.ranks), set(score.run["ranks"]))
