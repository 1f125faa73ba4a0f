"""For the agent's tests, which run on Python 3.9 too: the standard library, pytest and the agent alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = "import sys; from ddplaunch.render import archive; sys.stdout.buffer.write(archive.agent_archive())"


@pytest.fixture(name="agent", scope="session")
def _agent(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command line of the agent, by the Python that runs the tests: on 3.9 the archive that nodes run.

    On the newer Python, where most tests run, it is the package: agents would unpack and compile an archive
    each time, a third of what these tests cost. Jobs on clusters and of the corpus run the archive there.
    """
    if sys.version_info < (3, 11):
        return [sys.executable, "-I", "-S", str(_packed(tmp_path_factory))]
    return [sys.executable, "-m", "ddplaunch.agent"]


@pytest.fixture(name="agent_file", scope="session")
def _agent_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of the agent, as nodes have it."""
    return _packed(tmp_path_factory)


def _packed(folders: pytest.TempPathFactory) -> Path:
    # The launcher builds the archive, and needs a newer Python than the one the agent is tried on.
    launcher = sys.executable if sys.version_info >= (3, 11) else str(ROOT / ".venv" / "bin" / "python")
    path = folders.mktemp("agent") / "agent.pyz"
    with path.open("wb") as file:
        subprocess.run([launcher, "-c", BUILD], cwd=ROOT / "launcher", stdout=file, check=True)
    return path
