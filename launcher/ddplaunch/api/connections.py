"""Connections to a target, each closed after use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddplaunch.backends import Backend
    from ddplaunch.backends.job import Handle


def parsed(handle: Handle | str) -> Handle:
    """Return the handle. Raises UsageError for text that is none."""
    from ddplaunch.backends.job import Handle

    return Handle.parse(handle) if isinstance(handle, str) else handle


@contextmanager
def connected(to: str) -> Iterator[Backend]:
    """Connect to a target, and close the connection after use. Raises UsageError for an unknown target."""
    from ddplaunch.backends import connect

    backend = connect(to)
    try:
        yield backend
    except KeyboardInterrupt:
        raise  # at once: closing waits for a query that is under way
    except BaseException:
        backend.close()
        raise
    backend.close()


@contextmanager
def connected_to(handle: Handle | str) -> Iterator[tuple[Backend, Handle]]:
    """Connect to the target of a handle, and return it parsed. Raises UsageError for text that is none."""
    found = parsed(handle)
    with connected(found.target) as backend:
        yield backend, found
