"""Loads a command's job files, and prints notes about them on stderr."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddplaunch import api
from ddplaunch.agent.text.printable import printable, shell_word
from ddplaunch.api.files import source_notes

if TYPE_CHECKING:
    from ddplaunch.plan.plan import Plan
    from ddplaunch.spec.config import Profile
    from ddplaunch.spec.models import JobSpec


def load(args: argparse.Namespace) -> list[JobSpec]:
    """Return the jobs in the file that is named, and print each note once. Raises SpecError and UsageError.

    Where keys are wrong, it prints which files of `source` are missing too.
    If no target is named, this chooses one, puts it into `args.to`, and prints which one and why.
    """
    from ddplaunch.spec import load

    its = profile(args)
    try:
        found = api.load_all(args.file, args.changes, profile=its)
    except api.SpecError:
        if args.file != "-":  # standard input can be read only once
            for each in api.validate(args.file, args.changes, profile=its).errors:
                sys.stderr.write(f"{each}\n\n")
        raise
    choose(args, found, its)
    for text in load.notes(*(each.env for each in found)):
        sys.stderr.write(f"note: {text}\n")
    return found


def profile(args: argparse.Namespace) -> Profile | None:
    """Return the profile that applies, and print which one it is; None: none applies. Raises SpecError and
    UsageError.
    """
    found = api.profile(args.profile, args.to)
    if found is not None:
        sys.stderr.write(f"profile {found.name} of {printable(found.file)}\n")
    return found


def choose(args: argparse.Namespace, jobs: Sequence[JobSpec], its: Profile | None) -> None:
    """If no target is named, set `args.to`, and print which target it is and why. `its`: the profile."""
    if args.to is None:
        args.to, why = api.choose(jobs, its)
        if why:
            sys.stderr.write(f"to {args.to}: {printable(why)}\n")


def plan(args: argparse.Namespace, after: Sequence[str] = ()) -> list[Plan]:
    """Return the plan of each job in the file, and print each note once, as `load` does. Raises as
    `api.plan`.
    """
    return planned(load(args), args, after)


def planned(specs: Sequence[JobSpec], args: argparse.Namespace, after: Sequence[str] = ()) -> list[Plan]:
    """Return the plans of these jobs, and print each note about their source once. Raises as `api.plan`."""
    plans = api.plan_all(specs, args.to, after=after)
    for text in source_notes(specs, plans):
        sys.stderr.write(f"note: {printable(text)}\n")
    return plans


def only(plans: Sequence[Plan], path: str) -> Plan:
    """Return the plan of a file with one job. Raises UsageError for a sweep, which this command cannot
    print.
    """
    from ddplaunch.errors import UsageError

    if plans[0].sweep:
        raise UsageError(
            f"{path} is a sweep of {len(plans)} jobs, but only one job can be printed at a time",
            hint=f"`ddplaunch render {shell_word(path)} -o DIR` writes each to its own folder; "
            "`--set sweep=null` ignores the sweep",
        )
    return plans[0]
