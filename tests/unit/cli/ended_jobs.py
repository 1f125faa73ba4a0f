"""Jobs that have ended, for the verbs that read them."""

from __future__ import annotations

from pathlib import Path

from ddplaunch.agent.contract import Bundle, JobStatus, Phase, Verdict, bundle_file, codec
from ddplaunch.backends.local import backend, host


def ended(
    folder: Path, exit_code: int | None, verdicts: list[Verdict] | None = None, attempt: int = 0
) -> None:
    """A job's folder as an ended job leaves it. An attempt that is there already becomes an earlier one."""
    if attempt:
        (folder / "run").rename(folder / f"run-{attempt - 1}")
    (folder / "run").mkdir(parents=True)
    dead = host.Host(pid=2**22 + 1, started=1, boot="gone", at=1000.0)
    codec.write(str(folder / backend.HOST), dead)
    (folder / "run" / "output.log").write_text("[0/0] a\n[0/1] b\n[1/2] c\n")
    if exit_code is None:
        return
    status = JobStatus(
        "digits", attempt, Phase.ENDED, 2.0, [], 1.0, 2.0, verdicts=verdicts or [], exit_code=exit_code
    )
    codec.write(str(folder / "run" / "status.json"), status)
    bundle = Bundle("digits", attempt, 1, 2, 1.0, 2.0, verdicts=verdicts or [], exit_code=exit_code)
    bundle_file.write(str(folder / "run" / "bundle.zip"), bundle)
