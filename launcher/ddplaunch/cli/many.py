"""Submits the jobs of a sweep, all or none, and waits for them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddplaunch import api
from ddplaunch.agent.text.printable import printable
from ddplaunch.backends import interrupts
from ddplaunch.cli import exits, follow
from ddplaunch.errors import DdplaunchError, ExitCode
from ddplaunch.report.words import sweep_text

if TYPE_CHECKING:
    from ddplaunch.backends.job import Handle, Job
    from ddplaunch.plan.plan import Plan


def submit(plans: Sequence[Plan], *, printed: bool) -> list[Handle]:
    """Submit all jobs, and return their handles; with `printed` each is printed when its job was taken.

    After an error or a Ctrl-C the jobs that were taken are cancelled. Raises what `api.submit_all` raises.
    """

    def accepted(handle: Handle) -> None:
        if printed:
            print(handle, flush=True)

    def cancelling(handles: list[Handle]) -> None:
        name = plans[min(len(handles), len(plans) - 1)].job.job
        sys.stderr.write(
            f"a sweep is submitted whole or not at all: {name} was not, so those before it are cancelled: "
            f"{', '.join(map(str, handles))}\n"
        )

    try:
        with interrupts.kept():
            return api.submit_all(plans, accepted=accepted, cancelling=cancelling)
    except (DdplaunchError, KeyboardInterrupt) as error:
        for note in getattr(error, "__notes__", ()):
            sys.stderr.write(f"{printable(note)}\n")
        raise


def wait(handles: Sequence[Handle]) -> int:
    """Print the end of each job, and return the exit code of the first, in their order, that did not succeed.

    A Ctrl-C leaves all jobs alone.
    """
    over: dict[Handle, Job] = {}
    try:
        for found in api.wait_all(handles):
            over[found.job.handle] = found.job
            sys.stderr.write(f"{found.job.handle} {printable(sweep_text(found.job.sweep))}\n")
            follow.conclude(found)
    except KeyboardInterrupt:
        sys.stderr.write(
            f"\ndetached; {len(handles) - len(over)} jobs go on: `ddplaunch list` shows them, "
            "`ddplaunch cancel HANDLE` stops one\n"
        )
    codes = [exits.of_wait(over[handle]) if handle in over else ExitCode.NOT_FINISHED for handle in handles]
    good = codes.count(ExitCode.SUCCEEDED)
    sys.stderr.write(f"ddplaunch: {good} of {len(handles)} jobs succeeded\n")
    return next((code for code in codes if code), ExitCode.SUCCEEDED)
