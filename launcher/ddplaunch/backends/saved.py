"""A job of which only the bundle is left: a file, on any machine, at any time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ddplaunch.agent.contract import REGROUP, Bundle, Exit, bundle_file, codec
from ddplaunch.agent.diagnosis import catalogue
from ddplaunch.agent.diagnosis.run import decide
from ddplaunch.backends import files
from ddplaunch.backends.folder import bundle_in
from ddplaunch.backends.job import Handle, Job, State
from ddplaunch.errors import UsageError

_SUFFIXES = (".zip", ".json", ".bundle")
_STATES = {
    None: State.RUNNING,
    Exit.OK: State.SUCCEEDED,
    Exit.STOPPED: State.CANCELLED,
    REGROUP: State.CANCELLED,
}


def names_file(text: str) -> bool:
    """Whether a command's argument names a bundle and not a job."""
    return "://" not in text and (text.endswith(_SUFFIXES) or Path(text).is_file())


def open_bundle(path: Path, again: bool = False) -> tuple[Job, Bundle]:
    """Return the job of a bundle, and the bundle. Raises UsageError for any other file.

    `again`: let this version's rules give the verdicts. A bundle of a job that went wrong without verdicts
    gets them in any case.
    """
    try:
        bundle = files.read_bundle(path, bundle_file.MOST_DUMPS)
    except OSError as error:
        raise UsageError(
            f"the bundle {path} cannot be read: {error.strerror}",
            hint="name a bundle's file, or a job: `ddplaunch list` shows all",
        ) from error
    except codec.ContractError as error:
        raise UsageError(
            f"the bundle cannot be read: {error}",
            hint="a bundle is a zip file, or its JSON, that ddplaunch wrote. If this is one, it is broken: "
            "copy it again from where the job ran. To ask about a job, give its name, as in `ddplaunch list`",
        ) from error
    wrong = not bundle.verdicts and bundle.exit_code not in (Exit.OK, Exit.STOPPED, REGROUP)
    if bundle.evidence is not None and (again or wrong):
        bundle = replace(bundle, verdicts=decide.judge(bundle.evidence))
    return _job(Handle("file", str(path)), bundle), bundle


def open_attempt(job: Job, number: int) -> tuple[Job, Bundle]:
    """Return the job as it was in an earlier attempt, and its bundle. Raises UsageError if there is no
    bundle.
    """
    earlier = {each.number: each for each in job.earlier}
    run = earlier[number].run if number in earlier else None
    bundle = bundle_in(run) if run is not None else None
    if bundle is None:
        kept = ", ".join(map(str, [*(each.number for each in job.earlier if each.run), job.attempt]))
        why = f" ({earlier[number].why_none})" if number in earlier and run is None else ""
        raise UsageError(
            f"{job.handle} has kept nothing of an attempt {number}{why}: found {kept}",
            hint="`ddplaunch status` shows them; where evidence is deleted with the pods, `submit --wait` "
            "and `logs -f` keep what they see",
        )
    return _job(job.handle, bundle), bundle


def open_launch_attempt(job: Job, bundle: Bundle | None, number: int) -> tuple[Job, Bundle]:
    """Return the job as it was in a failed attempt within its launch command, and the bundle of that attempt.

    Raises UsageError if the bundle has no such attempt.
    """
    kept = {each.number: each for each in bundle.failed_attempts} if bundle else {}
    if bundle is None or number not in kept:
        now = bundle.attempt if bundle else job.attempt
        found = ", ".join(f"{now}.{each}" for each in kept) or "none"
        raise UsageError(
            f"{job.handle} has kept nothing of an attempt {now}.{number}: found {found}",
            hint="only starts that failed, after which the launch command went on, are kept; for the whole "
            f"attempt: `ddplaunch diagnose {job.handle}`",
        )
    attempt = kept[number]
    code = catalogue.exit_code(attempt.verdicts[0]) if attempt.verdicts else Exit.WORKER_FAILED
    then = replace(
        bundle,
        evidence=attempt.evidence,
        verdicts=attempt.verdicts,
        written=attempt.ended,
        exit_code=code,
        failed_attempts=[],
    )
    return _job(job.handle, then), then


def _job(handle: Handle, bundle: Bundle) -> Job:
    return Job(
        handle,
        _STATES.get(bundle.exit_code, State.FAILED),
        bundle.started,
        bundle.job,
        ended=None if bundle.exit_code is None else bundle.written,
        exit_code=bundle.exit_code,
    )
