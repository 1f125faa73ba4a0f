"""The queue: a folder of $TOYQUEUE for each job, in which its command runs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from ddplaunch.agent.contract import Bundle, Files
from ddplaunch.backends.folder import newest_bundle, status
from ddplaunch.backends.job import Handle, Job, Known, Selection, State
from ddplaunch.errors import NotFoundError
from ddplaunch.render import Rendered


def connect() -> Queue:
    """Return the queue that $TOYQUEUE names."""
    return Queue(Path(os.environ["TOYQUEUE"]))


class Queue:
    """A `ddplaunch.backends.Backend`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def submit(self, rendered: Rendered) -> Handle:
        number = len(list(self.folder.iterdir())) + 1
        job = self.folder / str(number)
        for name, file in rendered.files.items():
            path = job / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.content)
        with (job / "printed").open("wb") as printed:
            subprocess.Popen(
                rendered.command, cwd=job, stdout=printed, stderr=printed, start_new_session=True
            )
        return Handle("toyqueue", str(number))

    def job(self, handle: Handle) -> Job:
        job = self.folder / handle.path
        if not job.is_dir():
            raise NotFoundError(f"there is no job {handle}")
        told = status(job)
        code = told.exit_code if told else None
        state = State.RUNNING if code is None else State.FAILED if code else State.SUCCEEDED
        ended = told.updated if told and code is not None else None
        return Job(handle, state, job.stat().st_mtime, "toy", ended=ended, exit_code=code, status=told)

    def jobs(self) -> list[Job]:
        return [self.job(each.handle) for each in self.known()]

    def known(self) -> list[Known]:
        folders = sorted(self.folder.iterdir())
        return [Known(Handle("toyqueue", job.name), "", "toy", job.stat().st_mtime) for job in folders]

    def logs(self, handle: Handle, wanted: Selection, *, follow: bool) -> Iterator[str]:
        shown = 0
        while True:
            ended = self.job(handle).state.ended
            path = self.folder / handle.path / Files.OUTPUT
            lines = path.read_text().splitlines() if path.exists() else []
            yield from lines[shown:]
            shown = len(lines)
            if ended or not follow:
                return
            yield ""

    def cancel(self, handle: Handle) -> Job:
        return self.job(handle)

    def collect(self, handle: Handle) -> Bundle | None:
        return newest_bundle(self.folder / handle.path)

    def close(self) -> None:
        pass
