"""Submits a `Rendered` to its scheduler, watches the job, and fetches its logs and evidence.

Only this layer starts processes and talks to schedulers. `submit` sends the rendered files unchanged, as
`ddplaunch render` shows them. `api` imports a backend only when a command needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ddplaunch.targets import find

if TYPE_CHECKING:
    from ddplaunch.agent.contract import Bundle
    from ddplaunch.backends.job import Handle, Job, Known, Remains, Selection
    from ddplaunch.backends.outputs import Outputs
    from ddplaunch.render import Rendered


class Backend(Protocol):
    """Interface to one scheduler. Every call ends in bounded time, except `logs` with `follow`.

    All calls raise NotFoundError for an unknown handle, and ClusterError if the scheduler refuses or cannot
    be reached.
    """

    def submit(self, rendered: Rendered) -> Handle:
        """Submit the job, and return when it is accepted. The job goes on when the launcher ends."""

    def job(self, handle: Handle) -> Job:
        """Return the present state of the job."""

    def jobs(self) -> list[Job]:
        """Return all jobs of this user that are known here, including ended ones, the newest first."""

    def known(self) -> list[Known]:
        """Return all jobs known here, for completion and for bare names. This asks no scheduler."""

    def logs(self, handle: Handle, wanted: Selection, *, follow: bool) -> Iterator[str]:
        """Yield lines of the ranks' output in their order, with their prefix and without newline.

        With `follow`, wait for more until the job has ended, and yield "" after each moment without a line,
        so that the caller can do other things.
        """

    def cancel(self, handle: Handle) -> Job:
        """Collect evidence, stop the job, and return it when it has ended. A job that has already ended stays
        as it is.
        """

    def collect(self, handle: Handle) -> Bundle | None:
        """Return the bundle: from the hub while the job runs, otherwise from what the hub left; None: it left
        none.
        """

    def close(self) -> None:
        """Wait for its threads, in bounded time, and close the connections."""


@runtime_checkable
class KeepsOutputs(Protocol):
    """A backend that can also list what ranks wrote. It raises as a `Backend` does."""

    def outputs(self, handle: Handle) -> list[Outputs]:
        """Return the files that its ranks wrote and that can be seen from here, by folder."""


@runtime_checkable
class BringsOutputs(Protocol):
    """A backend whose jobs write to a place that this machine cannot see. Both methods raise as a `Backend`
    does.
    """

    def outputs_unseen(self, handle: Handle) -> list[Outputs]:
        """Return where its ranks write, without looking there: nothing is listed."""

    def bring_outputs(
        self, handle: Handle, to: Path, check: Callable[[Sequence[Outputs]], None]
    ) -> list[Outputs]:
        """Bring the files that its ranks wrote to `to`, an empty folder, once `check` has accepted them."""


@runtime_checkable
class Deletes(Protocol):
    """A backend that can also remove what an ended job has left. Both methods raise as a `Backend` does."""

    def remains(self, handle: Handle) -> Remains | None:
        """Return what `delete` would remove; None for a job that ddplaunch has not started."""

    def delete(self, handle: Handle) -> None:
        """Remove all of that. The job must have ended."""


@runtime_checkable
class Tries(Protocol):
    """A backend that can also ask its scheduler about a job without submitting it."""

    def try_out(self, rendered: Rendered) -> str:
        """Return what the scheduler answers, for people. Raises ClusterError if it would refuse the job."""


def connect(name: str) -> Backend:
    """Return the backend of the target `name`. Raises UsageError if jobs cannot be sent there."""
    target = find(name)
    backend: Backend = target.load(target.connect)()
    return backend
