"""What corpus.json has measured, and docs/accuracy.md that is made of it."""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.corpus import accuracy_outside
from tests.corpus.accuracy_text import (
    CALIBRATION,
    HEAD,
    MISSES,
    NCCL_HEAD,
    OTHER_TORCH_HEAD,
    OUTSIDE_HEAD,
    PEERS,
    PROGRAMS,
    SCORES,
    UNSEEN,
)
from tests.corpus.cases import Case
from tests.corpus.faults import Fault
from tests.corpus.scores import ABSTAINED, PART, RIGHT, WIDE, WRONG, Score, named, of_ranks
from tests.corpus.why import WHY, WHY_WITH_NCCL, WHY_WITH_OLDER

from ddplaunch.agent.diagnosis.catalogue import CATALOGUE

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ROOT / "docs/reference/corpus.json"
MEASURED_WITH_NCCL = ROOT / "docs/reference/corpus-nccl.json"
OTHER_TORCH = "corpus-torch-*.json"
"""Beside MEASURED: the same with another torch than the one that requirements/dev.txt names."""
PEER_NAMES = (
    "torchrun",
    "torchfrtrace",
    "torchfrtrace, mended dumps",
    "py-spy",
)

BANDS = (("0.9 or more", 0.9, 1.1), ("0.7 to 0.9", 0.7, 0.9), ("less than 0.7", 0.0, 0.7))
"""Confidences: how the page calls them, the least, and below what."""

Measured = dict[str, Any]
"""{"programs": {name: {"cpus", "torch", "runs": [run], "peers": {peer: ranks or None}}}}

A run is {"code", "ranks", "confidence", "seconds", "words"}: `code` is "none" where no verdict came, the
`seconds` go from the moment progress stopped to the first word (None where none is noted), `words` counts
notices and verdicts, `load` is the load average of the machine after the run; `early`, where there are any,
has the codes of those before that moment, and of all of a healthy job. Where a measurement was broken off,
the runs have what it had printed: neither `confidence` nor `words` nor `load` of a program with a fault.
"""


def table_of(torch: str) -> Path:
    """Return where runs with this version of torch, "2.7.1", are kept."""
    pinned = re.search(r"^torch==([\d.]+)", (ROOT / "requirements/dev.txt").read_text("utf-8"), re.MULTILINE)
    assert pinned, "requirements/dev.txt names no torch"
    if torch == pinned[1]:
        return MEASURED
    return MEASURED.parent / OTHER_TORCH.replace("*", ".".join(torch.split(".")[:2]))


def other_torch() -> dict[str, Measured]:
    """Return what was measured with other versions of torch: {"2.7": Measured}, the oldest first."""
    found = {path.stem.rpartition("-")[2]: load(path) for path in MEASURED.parent.glob(OTHER_TORCH)}
    return dict(sorted(found.items(), key=lambda item: [int(part) for part in item[0].split(".")]))


def load(path: Path = MEASURED) -> Measured:
    """What was measured last; nothing where that was never done."""
    if not path.exists():
        return {"programs": {}}
    found: Measured = json.loads(path.read_text("utf-8"))
    return found


def text(measured: Measured) -> str:
    """As it is committed: a line a program, sorted, so that measurements of different ones merge."""
    lines = [f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(measured["programs"].items())]
    return '{\n "programs": {\n' + ",\n".join(lines) + "\n }\n}\n"


def merge(old: Measured, new: dict[str, dict[str, Any]], names: Iterable[str]) -> Measured:
    """The new rows in the place of the old; programs that are not in the corpus any more are forgotten.

    A row without peers, or without a look from outside, keeps those that were measured before.
    """
    kept = {name: row for name, row in old["programs"].items() if name in set(names)}
    for name, row in new.items():
        before = {key: kept[name][key] for key in ("peers", "outside") if key in kept.get(name, {})}
        kept[name] = {**before, **row}
    return {"programs": kept}


def page(
    measured: Measured,
    cases: Iterable[Case],
    nccl: Measured,
    nccl_cases: Iterable[Case],
    others: dict[str, Measured],
) -> str:
    """accuracy.md. `others`: by version of torch."""
    cases, nccl_cases = list(cases), list(nccl_cases)
    rows = measured["programs"]
    faults, healthy, scores = _scored(cases, rows)
    parts = [HEAD, *_figures(scores, healthy, rows), "", SCORES, *matrix(scores), ""]
    of_nccl = _scored(nccl_cases, nccl["programs"])[2]
    sources = {"above": scores, "from outside": accuracy_outside.scores(faults, rows), "with NCCL": of_nccl}
    parts += [CALIBRATION, *calibration(sources), ""]
    parts += [UNSEEN, MISSES, *_misses(faults, healthy, rows, WHY), "", PEERS, *_peers(faults, rows), ""]
    parts += [OUTSIDE_HEAD, *accuracy_outside.section(faults, healthy, rows), ""]
    if others:
        parts += [OTHER_TORCH_HEAD, *_with_other_torch(others, cases), ""]
    parts += [NCCL_HEAD, *_with_nccl(nccl["programs"], nccl_cases), ""]
    parts += [PROGRAMS, *_programs(faults, healthy, rows)]
    return "\n".join(parts) + "\n"


def _figures(scores: list[Score], healthy: list[Case], rows: dict[str, Any]) -> Iterator[str]:
    kinds = Counter(score.kind for score in scores)
    calm = [run for case in healthy for run in rows.get(case.name, {}).get("runs", ())]
    seconds = [score.run["seconds"] for score in scores if score.run["seconds"] is not None]
    machines = sorted({_machine(row) for row in rows.values()})
    programs = len({score.case.name for score in scores})
    others = sum(case.name in rows for case in healthy)
    yield f"Runs: {len(scores)} of {programs} programs with a fault, {len(calm)} of {others} healthy or slow"
    yield f"programs, on {'; '.join(machines) or '-'}, {_load(rows)}."
    yield ""
    yield "| | of the runs | |"
    yield "|---|---|---|"
    yield _share("right rank", sum(score.rank_is_right for score in scores), len(scores))
    yield _share("right rank and cause", kinds[RIGHT], len(scores))
    yield _share("right rank, wider cause", kinds[WIDE], len(scores))
    yield _share("some of the ranks, no innocent one", kinds[PART], len(scores))
    yield _share("abstained", kinds[ABSTAINED], len(scores))
    yield _share("wrong", kinds[WRONG], len(scores))
    yield _share("a rank accused before anything went wrong", sum(map(_hasty, scores)), len(scores))
    yield _share("a word about a healthy job", sum(alarmed(run) for run in calm), len(calm))
    yield _share("a cause or a rank named in a healthy job", sum(_accused(run) for run in calm), len(calm))
    if seconds:
        yield ""
        yield (
            f"From the last progress to the first word: a median of {statistics.median(seconds):.1f} s, "
            f"{max(seconds):.1f} s at most, `notice_after` of 3 s included."
        )


def _machine(row: dict[str, Any]) -> str:
    gpu = f", {row['gpu']}" if "gpu" in row else ""
    return f"{row['cpus']} CPUs, torch {row['torch']}{gpu}"


def _scored(cases: Iterable[Case], rows: dict[str, Any]) -> tuple[list[Case], list[Case], list[Score]]:
    """Return the programs with a fault, the healthy ones, and the scores of the former."""
    known = list({case.name: case for case in cases}.values())
    faults = [case for case in known if not case.healthy]
    scores = [Score(case, run) for case in faults for run in rows.get(case.name, {}).get("runs", ())]
    return faults, [case for case in known if case.healthy], scores


def _with_nccl(rows: dict[str, Any], cases: Iterable[Case]) -> Iterator[str]:
    faults, healthy, scores = _scored(cases, rows)
    yield from _figures(scores, healthy, rows)
    yield from ["", "What was missed:", "", *_misses(faults, healthy, rows, WHY_WITH_NCCL), ""]
    yield from _programs(faults, healthy, rows)


def _with_other_torch(others: dict[str, Measured], cases: list[Case]) -> Iterator[str]:
    yield "| torch | runs | programs | right rank | rank and cause | abstained | wrong | false alarms |"
    yield "|---" * 8 + "|"
    missed = []
    for torch, measured in others.items():
        rows = measured["programs"]
        faults, healthy, scores = _scored(cases, rows)
        calm = [run for case in healthy for run in rows.get(case.name, {}).get("runs", ())]
        kinds = Counter(score.kind for score in scores)
        cells = [
            f"{count} ({100 * count / len(scores) if scores else 0:.1f} %)"
            for count in (
                sum(score.rank_is_right for score in scores),
                kinds[RIGHT],
                kinds[ABSTAINED],
                kinds[WRONG],
            )
        ]
        programs = len({score.case.name for score in scores})
        words = f"{sum(alarmed(run) for run in calm)} of {len(calm)}"
        yield f"| {torch} | {len(scores)} | {programs} | {' | '.join(cells)} | {words} |"
        misses = _misses(faults, healthy, rows, WHY_WITH_OLDER)
        missed += ["", f"What was missed with torch {torch}:", "", *misses]
    yield from missed


def _hasty(score: Score) -> bool:
    """Return whether a cause was named before its time; a program with restarts has failed once by then."""
    restarts = isinstance(score.case.job, Fault) and score.case.job.restarts
    return not restarts and _accused({**score.run, "code": "none"})


def _accused(run: dict[str, Any]) -> bool:
    """Whether a cause was named of which there was no sign; `unknown` names none."""
    codes = {run["code"], *run.get("early", ())}
    return any(code in CATALOGUE and code != "unknown" for code in codes)


def _load(rows: dict[str, Any]) -> str:
    loads = [run["load"] for row in rows.values() for run in row["runs"] if "load" in run]
    if not loads:
        return "under a load that was not noted"
    return f"under a load of {min(loads)} to {max(loads)}, a median of {statistics.median(loads):.1f}"


def _share(name: str, count: int, whole: int) -> str:
    return f"| {name} | {count} of {whole} | {100 * count / whole if whole else 0:.1f} % |"


def alarmed(run: dict[str, Any]) -> bool:
    """Whether a healthy job was spoken of."""
    return bool(run["words"]) or run["code"] != "none"


def matrix(scores: list[Score]) -> Iterator[str]:
    """The lines of the confusion matrix: what is true, and what the runs got."""
    yield "| expected | runs | got |"
    yield "|---|---|---|"
    for code in sorted({score.case.code for score in scores}):
        those = [score.run["code"] for score in scores if score.case.code == code]
        got = ", ".join(f"{other} {count}" for other, count in Counter(those).most_common())
        yield f"| {code} | {len(those)} | {got} |"


def calibration(sources: dict[str, list[Score]]) -> Iterator[str]:
    """The lines of the table of confidences: of how many verdicts in each band the cause was true.

    A run that was broken off has no confidence, and one without a verdict, or with `unknown`, claims nothing.
    """
    yield f"| said with | {' | '.join(sources)} |"
    yield "|---" * (1 + len(sources)) + "|"
    for name, least, below in BANDS:
        cells = []
        for scores in sources.values():
            said = [
                score
                for score in scores
                if score.run["code"] in CATALOGUE
                and score.run["code"] != "unknown"
                and least <= score.run.get("confidence", -1.0) < below
            ]
            right = sum(score.kind in (RIGHT, WIDE) for score in said)
            cells.append(f"{right} of {len(said)} ({100 * right / len(said):.0f} %)" if said else "-")
        yield f"| {name} | {' | '.join(cells)} |"


def _misses(
    faults: list[Case], healthy: list[Case], rows: dict[str, Any], whys: dict[str, str]
) -> Iterator[str]:
    found = False
    for case in faults:
        runs = rows.get(case.name, {}).get("runs", ())
        missed = Counter(_missed(score) for run in runs if (score := Score(case, run)).kind != RIGHT)
        for what, count in missed.items():
            found = True
            why = whys.get(case.name, "not explained")
            true = named(case.code, case.ranks)
            yield f"- `{case.name}`, {count} of {len(runs)}: {true} is true; {what}. Why: {why}"
    for case in healthy:
        runs = rows.get(case.name, {}).get("runs", ())
        alarms = [run for run in runs if alarmed(run)]
        if alarms:
            found = True
            codes = [code for code in alarms[0].get("early", ()) if code in CATALOGUE]
            said = ", ".join(codes) or alarms[0]["code"]
            why = whys.get(case.name, "not explained")
            yield f"- `{case.name}`, {len(alarms)} of {len(runs)}: a false alarm, {said}. Why: {why}"
    if not found:
        yield "None."


def _missed(score: Score) -> str:
    return f"got {named(score.run['code'], score.run['ranks'])} ({score.kind})"


def _peers(faults: list[Case], rows: dict[str, Any]) -> Iterator[str]:
    """On the same programs: those that a peer can be asked about, and whose fault has ranks."""
    yield "| | programs | right rank | some of the ranks | abstained | wrong |"
    yield "|---|---|---|---|---|---|"
    asked = [case for case in faults if case.ranks and rows.get(case.name, {}).get("peers")]
    own = [(case, rows[case.name]["runs"][0]["ranks"]) for case in asked if rows[case.name]["runs"]]
    yield _peer_row("ddplaunch, first run", own)
    for peer in PEER_NAMES:
        named = [(case, rows[case.name]["peers"][peer]) for case in asked if peer in rows[case.name]["peers"]]
        if named or not asked:
            yield _peer_row(peer, [(case, ranks or []) for case, ranks in named])


def _peer_row(name: str, named: list[tuple[Case, list[int]]]) -> str:
    kinds = Counter(of_ranks(set(case.ranks), set(ranks)) for case, ranks in named)
    cells = [f"{kinds[kind]}" for kind in (RIGHT, PART, ABSTAINED, WRONG)]
    return f"| {name} | {len(named)} | {' | '.join(cells)} |"


def _programs(faults: list[Case], healthy: list[Case], rows: dict[str, Any]) -> Iterator[str]:
    yield "| program | ranks | true | right | seconds |"
    yield "|---|---|---|---|---|"
    for case in [*faults, *healthy]:
        runs = rows.get(case.name, {}).get("runs")
        true = "healthy" if case.healthy else named(case.code, case.ranks)
        if not runs:
            yield f"| {case.shown} | {case.world} | {true} | not measured | |"
            continue
        right = sum(not alarmed(run) if case.healthy else Score(case, run).kind == RIGHT for run in runs)
        seconds = [run["seconds"] for run in runs if run["seconds"] is not None]
        took = f"{statistics.median(seconds):.1f}" if seconds and not case.healthy else ""
        yield f"| {case.shown} | {case.world} | {true} | {right}/{len(runs)} | {took} |"
