"""py-spy, where it is installed beside the tests' interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.busy import BUSY

from ddplaunch.agent.evidence import py_spy


@pytest.fixture(name="sampler")
def _sampler() -> str:
    """py-spy, which has no wheel for some kinds of machines."""
    program = py_spy.find(sys.executable)
    if program is None:
        pytest.skip("py-spy is not installed")
    return program


def test_py_spy_is_found_beside_python_or_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the virtual environment that trains, or beside the agent; on PATH is neither."""
    python, tool = tmp_path / "python", tmp_path / "py-spy"
    for path in (python, tool):
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(sys, "argv", ["/elsewhere/agent.pyz", "run"])

    assert (py_spy.find(str(python)), py_spy.find("/elsewhere/python")) == (str(tool), None)

    monkeypatch.setattr(sys, "argv", [str(tmp_path / "agent.pyz"), "run"])
    assert py_spy.find("/elsewhere/python") == str(tool)
    assert py_spy.find("python3") == str(tool)  # a name that is nowhere has no folder


def test_a_py_spy_that_fails_or_hangs_is_given_up_with_its_reason(tmp_path: Path) -> None:
    refuses, hangs = tmp_path / "refuses", tmp_path / "hangs"
    refuses.write_text(
        "#!/bin/sh\necho 'Permission Denied: Try running again with elevated permissions' >&2; exit 1\n"
    )
    hangs.write_text("#!/bin/sh\nexec sleep 60\n")
    refuses.chmod(0o755)
    hangs.chmod(0o755)
    begun = time.monotonic()

    assert py_spy.dump(str(refuses), [7], begun + 5) == ({}, {7: "py-spy: not permitted (ptrace)"})
    assert py_spy.dump(str(hangs), [7], time.monotonic() + 0.2) == ({}, {7: "py-spy did not answer in time"})
    assert time.monotonic() - begun < BUSY * 5


@pytest.mark.slow  # beside the real process: with the Python that has py-spy
def test_what_py_spy_says_of_a_dead_process_is_kept(sampler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """py-spy's own words say so, and no line of the stack that it prints behind them."""
    monkeypatch.setenv("RUST_BACKTRACE", "1")
    with subprocess.Popen(["true"]) as process:
        process.wait()
    found, missing = py_spy.dump(sampler, [process.pid], time.monotonic() + BUSY * 5)

    said = "py-spy: Failed to get process executable name. Check that the process is running."
    assert ({}, {process.pid: said}) == (found, missing)


@pytest.mark.slow
def test_py_spy_shows_where_a_process_without_a_hook_stands(sampler: str, tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("import time\ndef stand():\n    print(flush=True)\n    time.sleep(60)\nstand()\n")
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            found, missing = py_spy.dump(sampler, [process.pid], time.monotonic() + 5)
        finally:
            process.kill()
    if os.geteuid() != 0 and missing:
        assert missing == {process.pid: "py-spy: not permitted (ptrace)"}
        return

    assert [frame.name for frame in found[process.pid][0].frames][-2:] == ["stand", "<module>"]
