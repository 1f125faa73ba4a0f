"""Carry a `Rendered` to where it runs, watch it, and bring its logs and evidence back.

The only layer that starts processes and talks to schedulers. `submit` changes nothing in what was rendered:
what `ddplaunch render` showed is what runs. A backend is imported only when a job or a handle names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from ddplaunch.targets import find

if TYPE_CHECKING:
    from ddplaunch.agent.contract import Bundle
    from ddplaunch.backends.job import Handle, Job, Selection
    from ddplaunch.render.rendered import Rendered


class Backend(Protocol):
    """Interface of a place where jobs run. Every call but `logs` with `follow` is bounded in time.

    All raise NotFoundError for a handle they do not know, and ClusterError when the place refuses or cannot
    be reached.
    """

    def submit(self, rendered: Rendered) -> Handle:
        """Send it as it is, and return once it is accepted. It goes on when the launcher dies."""

    def job(self, handle: Handle) -> Job:
        """Return how the job stands now."""

    def jobs(self) -> list[Job]:
        """Return all jobs of this user that are known here, finished ones too, the newest first."""

    def handles(self) -> list[tuple[Handle, str]]:
        """Return all handles known here, with a word on each. A prompt does not wait: nobody is asked."""

    def logs(self, handle: Handle, wanted: Selection, *, follow: bool) -> Iterator[str]:
        """Lines of the ranks' output, prefixed and without their newline, in the order in which they came.

        With `follow` it waits for more until the job has ended, and yields "" whenever a moment passed
        without any, so that the caller can look after other things.
        """

    def cancel(self, handle: Handle) -> Job:
        """Stop it, evidence first, and return when it has stopped. A job that has ended stays as it is."""

    def collect(self, handle: Handle) -> Bundle | None:
        """Return the evidence: from the hub while the job runs, else what it left. None: it left nothing."""


def connect(name: str) -> Backend:
    """Return the backend of the target `name`. Raises UsageError when jobs cannot be sent there."""
    target = find(name)
    backend: Backend = target.load(target.connect)()
    return backend
