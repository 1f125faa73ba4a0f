"""Jobs whose host is a shell script: the backend carries whatever was rendered, and starts it for real."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ddplaunch.agent.contract import JobStatus, Phase, codec
from ddplaunch.backends.job import State
from ddplaunch.backends.local.backend import LocalBackend
from ddplaunch.render import Rendered, RenderedFile

Make = Callable[..., Rendered]

_SCRIPT = """\
here=$(dirname -- "$0")
say() { printf '%s\\n' "$*" >>"$here/run/output.log"; }
status() { printf '%s' "$1" >"$here/run/new"; mv "$here/run/new" "$here/run/status.json"; }
"""


NEVER_OLD = 4e9


def status_json(**changes: object) -> str:
    """A status.json as a hub writes it; one that does not fall silent, however long a test takes."""
    status = JobStatus(
        job="digits", attempt=0, phase=Phase.RUNNING, since=1.0, nodes=[], started=1.0, updated=NEVER_OLD
    )
    return json.dumps(codec.dump(status) | changes)


@pytest.fixture(name="job")
def _job() -> Make:
    """Makes what a renderer would, with a script in place of the agent."""

    def make(script: str, name: str = "digits", ended: int | None = None) -> Rendered:
        text = f"{_SCRIPT}{script}\n"
        if ended is not None:
            text += f"status '{status_json(exit_code=ended, phase=Phase.ENDED)}'\nexit {ended}\n"
        return Rendered(
            "local", name, {"run.sh": RenderedFile(text.encode(), executable=True)}, ("sh", "run.sh")
        )

    return make


@pytest.fixture(name="backend")
def _backend(tmp_path: Path) -> Iterator[LocalBackend]:
    """A backend of its own, whose jobs do not outlive the test."""
    backend = LocalBackend(tmp_path / "state")
    yield backend
    for each in backend.jobs():
        if each.state in (State.PENDING, State.RUNNING):
            backend.cancel(each.handle)
