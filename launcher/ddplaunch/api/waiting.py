"""Waits for submitted jobs, and gives up on those that will never start however long you wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from ddplaunch.api.submitted import connected, connected_to, parsed
from ddplaunch.errors import NeverStartsError, NotFinishedError

if TYPE_CHECKING:
    from ddplaunch.backends.job import Handle, Job
    from ddplaunch.report.diagnosis import Diagnosis

GIVEN_UP_AFTER: Final = 10.0
"""Seconds for which a job must have been one that never starts, because a scheduler may change its mind."""
_UPDATE = 0.25
"""Seconds between two looks at a job that is being watched."""
_PAUSE = 2.0
"""Seconds between two looks at several jobs."""


class Wait:
    """The clock of one job that is waited for."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None

    def is_vain(self, job: Job) -> bool:
        """Whether the job, as it is now, has been one that never starts for long enough."""
        if not job.never_starts:
            self._since = None
            return False
        if self._since is None:
            self._since = self._clock()
        return self._clock() - self._since >= GIVEN_UP_AFTER

    def check(self, job: Job) -> None:
        """Raise NeverStartsError if waiting for the job is useless."""
        if self.is_vain(job):
            raise NeverStartsError(f"{job.handle} is no longer waited for: {job.detail}", hint=job.hint)


def watch(handle: Handle | str) -> Iterator[Job]:
    """Yield the job's state four times a second until it has ended; its end comes last.

    Raises as `status` does, and NeverStartsError if it has been pending for 10 s for a reason that waiting
    never cures, such as the failure of another job after which it was to start. It stays in the queue.
    """
    with connected_to(handle) as (backend, found):
        wait = Wait()
        job = backend.job(found)
        while not job.state.ended:
            yield job
            wait.check(job)
            time.sleep(_UPDATE)
            job = backend.job(job.handle)  # by now with its number: the name alone means the newest
        yield job


def wait(handle: Handle | str, timeout: float | None = None) -> Job:
    """Return the job when it has ended.

    Raises NotFinishedError if it has not ended after `timeout` seconds, and otherwise as `watch` does.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    for job in watch(handle):
        if job.state.ended:
            break
        if deadline is not None and time.monotonic() >= deadline:
            raise NotFinishedError(
                f"{job.handle} has not ended after {timeout:g} s: it is {job.state}",
                hint="the job keeps running; wait for it again, or cancel it",
            )
    return job


def wait_all(handles: Sequence[Handle | str]) -> Iterator[Diagnosis]:
    """Yield the diagnosis of each job when it ends, in the order in which they end.

    A job that has been pending for 10 s for a reason that waiting never cures is yielded too: its
    `never_starts` is true. Each scheduler is asked about all its jobs at once. Raises as `status` does.
    """
    from ddplaunch.report.diagnosis import diagnose

    waits = {parsed(handle): Wait() for handle in handles}
    with ExitStack() as stack:
        backends = {
            target: stack.enter_context(connected(target))
            for target in dict.fromkeys(each.target for each in waits)
        }
        while waits:
            known = {job.handle: job for backend in backends.values() for job in backend.jobs()}
            for handle, wait in list(waits.items()):
                backend = backends[handle.target]
                job = known.get(handle) or backend.job(handle)
                if job.state.ended:
                    del waits[handle]
                    yield diagnose(job, backend.collect(job.handle))
                elif wait.is_vain(job):
                    del waits[handle]
                    yield diagnose(job, None)
            if waits:
                time.sleep(_PAUSE)


def follow(handle: Handle | str) -> Iterator[str | Job | Diagnosis]:
    """Yield what happens to a job until its end, as `submit --wait` shows it.

    Text is a line of its output, as from `logs`. A `Job` is its state, up to four times a second. Its
    `Diagnosis` comes last. Raises as `watch` does.
    """
    from ddplaunch.backends.job import EVERYTHING
    from ddplaunch.report.diagnosis import diagnose

    with connected_to(handle) as (backend, found):
        wait = Wait()
        looked_at = 0.0
        for line in backend.logs(found, EVERYTHING, follow=True):
            if line:
                yield line
            if time.monotonic() - looked_at >= _UPDATE:
                job = backend.job(found)
                yield job
                wait.check(job)
                looked_at = time.monotonic()
        job = backend.job(found)
        yield diagnose(job, backend.collect(job.handle))
