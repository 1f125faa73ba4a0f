"""Every fault of the corpus, N times, for real: is the cause right, are the ranks, how soon is it said.

`python benchmarks/faults.py [NAME…] [--runs N] [--notice-after SECONDS] [--jobs N]` prints a line per fault,
the confusion matrix, and the false alarms on healthy jobs. Exits 1 when anything is wrong.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from measure import Line

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.corpus import harness
from tests.corpus.faults import FAULTS, HEALTHY, Fault, Healthy
from tests.corpus.harness import Outcome

from ddplaunch.agent.contract import Exit
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE

IN_TIME = 15.0
"""Seconds from the stop to the notice, with the default notice_after of 10 s."""
Results = dict[Fault, list[Outcome]]


def run(folder: Path, runs: int, notice_after: float | None = None) -> Iterator[Line]:
    """The figures: wrong causes, wrong ranks, seconds to the notice, false alarms."""
    results = try_faults(FAULTS, folder, runs, notice_after, 2)
    yield from figures(results)
    yield alarms_line(try_healthy(HEALTHY, folder, runs, notice_after))


def try_faults(
    faults: Sequence[Fault], folder: Path, runs: int, notice_after: float | None, jobs: int
) -> Results:
    """Each fault `runs` times, `jobs` at a time; what cannot be provoked here is left out, and said."""
    reason = harness.memory_cgroups_missing()
    possible = [fault for fault in faults if fault.memory is None or not reason]
    for fault in faults:
        if fault not in possible:
            print(f"left out: {fault.name} {reason}", flush=True)
    tried = [with_patience(fault, notice_after) for fault in possible]
    results: Results = {fault: [] for fault in tried}
    with ThreadPoolExecutor(jobs) as pool:
        for number in range(runs):
            folders = [folder / f"{fault.name}-{number}" for fault in tried]
            for fault, outcome in zip(tried, pool.map(harness.run, tried, folders), strict=True):
                results[fault].append(outcome)
                print(result_line(fault, outcome), flush=True)
    return results


def try_healthy(
    healthy: Sequence[Healthy], folder: Path, runs: int, notice_after: float | None
) -> list[tuple[Healthy, Outcome]]:
    """Healthy jobs one at a time: side by side they would starve each other, and that is another question."""
    found = []
    for number in range(runs):
        for case in healthy:
            patient = (
                case
                if notice_after is None
                else replace(case, notice_after=notice_after, seconds=3 * notice_after)
            )
            outcome = harness.run(patient, folder / f"{case.name}-{number}")
            print(f"healthy_{case.name:<22} {'; '.join(outcome.alarms) or 'nothing said'}", flush=True)
            found.append((case, outcome))
    return found


def with_patience(fault: Fault, notice_after: float | None) -> Fault:
    """The fault with another notice_after, if one is given. A slow job is not waited for, but asked about."""
    return fault if notice_after is None or fault.asked else replace(fault, notice_after=notice_after)


def right(fault: Fault, outcome: Outcome) -> bool:
    """The cause, the culprits and their victims."""
    if outcome.code != fault.code:
        return False
    verdict = outcome.verdicts[0]
    return abstained(fault, outcome) or (
        verdict.ranks == [*fault.ranks] and verdict.victims == [*fault.victims]
    )


def abstained(fault: Fault, outcome: Outcome) -> bool:
    """It said that it does not know which rank, where nothing was left to know it by."""
    verdict = outcome.verdicts[0]
    return fault.may_abstain and not verdict.ranks and verdict.confidence <= 0.5


def result_line(fault: Fault, outcome: Outcome) -> str:
    """A line on one run."""
    seconds = "" if outcome.seconds is None else f"{outcome.seconds:5.1f} s"
    mark = "right" if right(fault, outcome) else "WRONG"
    if mark == "right" and abstained(fault, outcome):
        mark = "open "
    sentence = outcome.verdicts[0].sentence if outcome.verdicts else "no verdict"
    return f"{mark} {fault.name:<22} {seconds:>8}  {outcome.code}: {sentence[:110]}"


def figures(results: Results) -> Iterator[Line]:
    """Counts over all runs, and the time of the notices of hangs."""
    outcomes = [(fault, outcome) for fault, found in results.items() for outcome in found]
    wrong = [fault.name for fault, outcome in outcomes if outcome.code != fault.code]
    yield Line("faults: wrong cause", len(wrong), 0, "", ", ".join(wrong) or f"of {len(outcomes)}")
    ranks = [fault.name for fault, outcome in outcomes if not right(fault, outcome)]
    yield Line(
        "faults: wrong cause, culprit or victim", len(ranks), 0, "", ", ".join(ranks) or f"of {len(outcomes)}"
    )
    left = [fault.name for fault, outcome in outcomes if outcome.survivors]
    yield Line("faults: jobs that left a process behind", len(left), 0, "", ", ".join(left))
    hangs = [
        outcome.seconds - fault.notice_after + 10.0
        for fault, outcome in outcomes
        if outcome.noticed and outcome.seconds is not None
    ]
    if hangs:
        detail = f"slowest {max(hangs):.1f} s, of {len(hangs)}; as with notice_after 10 s"
        yield Line(
            "hangs: median from the stop to the notice", statistics.median(hangs), IN_TIME, " s", detail
        )


def alarms_line(found: list[tuple[Healthy, Outcome]]) -> Line:
    """False alarms, and healthy jobs that did not end well."""
    wrong = [case.name for case, outcome in found if outcome.alarms or outcome.exit_code != Exit.OK]
    return Line("healthy: false alarms", len(wrong), 0, "", ", ".join(wrong) or f"in {len(found)} runs")


def matrix(results: Results) -> str:
    """Rows: what was wrong. Columns: what was said. Cells: how often."""
    counts = Counter((fault.code, outcome.code) for fault, found in results.items() for outcome in found)
    codes = [code for code in CATALOGUE if any(code in pair for pair in counts)] + ["none"]
    said = [code for code in codes if any(pair[1] == code for pair in counts)]
    width = max(map(len, codes))
    lines = [" " * width + "  " + "  ".join(f"{number:>3}" for number in range(len(said)))]
    for code in codes:
        if any(pair[0] == code for pair in counts):
            cells = "  ".join(f"{counts[code, column] or '.':>3}" for column in said)
            lines.append(f"{code:<{width}}  {cells}")
    lines += [f"  {number}: {code}" for number, code in enumerate(said)]
    return "\n".join(lines)


def main() -> int:
    """Run what was named, or everything; 1 when a figure is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = [case.name for case in FAULTS] + [f"healthy_{case.name}" for case in HEALTHY]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)} (default: all)")
    parser.add_argument("--runs", type=int, default=3, help="of each (default: 3)")
    parser.add_argument("--notice-after", type=float, help="seconds (default: each one's own, mostly 3)")
    parser.add_argument("--jobs", type=int, default=2, help="faulty jobs at a time (default: 2)")
    chosen = parser.parse_args()
    unknown = sorted(set(chosen.names) - set(names))
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}")
    faults = [fault for fault in FAULTS if not chosen.names or fault.name in chosen.names]
    healthy = [case for case in HEALTHY if not chosen.names or f"healthy_{case.name}" in chosen.names]
    with tempfile.TemporaryDirectory() as folder:
        results = try_faults(faults, Path(folder), chosen.runs, chosen.notice_after, chosen.jobs)
        alarms = try_healthy(healthy, Path(folder), chosen.runs, chosen.notice_after)
    lines = [*(figures(results) if results else ()), *([alarms_line(alarms)] if alarms else ())]
    if results:
        print(f"\n{matrix(results)}\n")
    print("\n".join(map(str, lines)))
    return 0 if all(line.kept for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
