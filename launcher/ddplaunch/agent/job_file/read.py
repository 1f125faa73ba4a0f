"""Reads a job file in JSON, which a Helm chart hands to its pods instead of a plan."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import reduce
from typing import Any, NamedTuple

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.job_file import kubernetes, plan, rules, units
from ddplaunch.agent.job_file.defaults import UNITS
from ddplaunch.agent.job_file.rules import Path, Problem, join
from ddplaunch.agent.plan import JobPlan


class JobFile(NamedTuple):
    """The plan of a job file, and a verdict for each thing that is wrong. If there is one, nothing may
    start.
    """

    plan: JobPlan
    verdicts: list[Verdict]


def parse(text: str) -> JobFile:
    """Return what follows from a job file of the schema's shape. Raises ValueError for any other text."""
    try:
        job = json.loads(text)
        wrong = dict(_take_in_units(job))
        findings = [each for each in rules.check(job) if not _rests_on(each.paths, wrong)]
        problems = [*wrong.values(), *map(_problem, findings)]
        # As in the launcher: only a good job file is checked for what a target cannot do.
        problems = problems or [*plan.problems(job), *kubernetes.problems(job)]
        return JobFile(plan.in_pods(job), list(map(_verdict, problems)))
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"it is no job file: {type(error).__name__}: {error}") from error


def _take_in_units(job: dict[str, Any]) -> Iterator[tuple[str, Problem]]:
    """Turn durations and amounts into numbers. A text that is none yields a problem, and 1 takes its
    place.
    """
    for path, (unit, wanted) in UNITS.items():
        *sections, key = path.split(".")
        holder: Any = reduce(_below, sections, job)
        value = _below(holder, key)
        if value is None or value in ("auto", "never"):
            continue
        try:
            number, hint = units.PARSERS[unit](value), ""
        except units.UnitError as error:
            number, hint = 0, str(error)
        if not 0 < number <= units.MOST[unit]:
            yield path, (path, f'"{value}"' if isinstance(value, str) else f"{value}", wanted, hint)
            number = 1
        holder[key] = number


def _below(part: Any, name: str) -> Any:
    return None if part is None else part.get(name)


def _rests_on(paths: tuple[Path, ...], wrong: dict[str, Problem]) -> bool:
    """Whether one of `paths` has, or is in, a value that only takes the place of a wrong one."""
    places = [join(path) for path in paths]
    return any(f"{at}.".startswith(f"{place}.") for at in wrong for place in places)


def _problem(finding: rules.Finding) -> Problem:
    code = f" [{finding.code}]" if finding.code else ""
    return join(finding.paths[0]), finding.found, f"{finding.wanted}{code}", finding.hint


def _verdict(problem: Problem) -> Verdict:
    sentence = "the job file cannot be used: {}: found {}, wanted {}".format(*problem)
    return Verdict.of("job-file-wrong", sentence, "gate", hint=problem[-1])
