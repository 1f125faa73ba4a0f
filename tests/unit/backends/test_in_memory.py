"""The agent and py-spy run from memory on a machine that has neither."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from ddplaunch.agent.contract import Env
from ddplaunch.agent.evidence import py_spy
from ddplaunch.backends import foreign_jobs
from ddplaunch.backends.foreign_jobs import READY, WANTED, PySpy
from ddplaunch.render import archive

AGENT = f"""
import os, sys
sys.path.insert(0, {str(Path(py_spy.__file__).parents[3])!r})
from ddplaunch.agent.evidence import py_spy
found = py_spy.find(sys.executable)
print(sys.argv[1:], os.listdir(), found and os.popen(found + " --version").read())
""".encode()
"""Stands for the agent: it tells how it was called, and what it finds."""
SAYS = '#!/bin/sh\necho "py-spy of the launcher"\n'
WITHOUT_MEMFD = "import os; del os.memfd_create\n"


@pytest.fixture(name="machine")
def _machine(tmp_path: Path) -> tuple[str, Path]:
    """A python3 beside which no py-spy lies, and an empty folder."""
    python, empty = tmp_path / "bin" / "python3", tmp_path / "empty"
    python.parent.mkdir()
    empty.mkdir()
    python.symlink_to(os.path.realpath(sys.executable))
    return str(python), empty


def ran(machine: tuple[str, Path], program: str, *words: str, stdin: bytes, **env: str) -> str:
    """What a program in memory has printed."""
    python, empty = machine
    done = subprocess.run(
        [python, "-I", "-S", "-c", program, *words, "look", "--all"],
        cwd=empty, input=stdin, capture_output=True, check=False, env={"PATH": "/usr/bin:/bin", **env},
    )  # fmt: skip
    assert 0 == done.returncode, done.stderr.decode()
    return done.stdout.decode()


@pytest.fixture(name="spy")
def _spy(tmp_path: Path) -> PySpy:
    """A program that stands for the launcher's py-spy, on a machine of this kind."""
    return PySpy(zlib.compress(SAYS.encode()), os.uname().machine)


@pytest.mark.parametrize("before", ["", WITHOUT_MEMFD], ids=["", "without memfd_create"])
def test_the_agent_runs_and_writes_no_file(machine: tuple[str, Path], before: str) -> None:
    """On a Python that was built for an old C library, too."""
    out = ran(machine, before + foreign_jobs.AGENT, str(len(AGENT)), stdin=AGENT)

    assert f"{['look', '--all']} [] None\n" == out


@pytest.mark.parametrize("before", ["", WITHOUT_MEMFD], ids=["", "without memfd_create"])
def test_py_spy_comes_with_it(machine: tuple[str, Path], spy: PySpy, before: str) -> None:
    """To a machine that has none; the agent finds it, and may run it."""
    program = before + foreign_jobs.AGENT_WITH_PY_SPY
    out = ran(machine, program, *spy.words, str(len(AGENT)), stdin=spy.packed + AGENT)

    assert f"{READY} {WANTED}\n{['look', '--all']} [] py-spy of the launcher\n\n" == out


def test_the_launchers_own_py_spy_runs_there(machine: tuple[str, Path]) -> None:
    """That of these tests."""
    spy = foreign_jobs.packed_py_spy()

    out = ran(machine, foreign_jobs.AGENT_WITH_PY_SPY, *spy.words, str(len(AGENT)), stdin=spy.packed + AGENT)

    assert os.uname().machine == spy.machine
    assert "[] py-spy 0." in out


def test_a_machine_of_another_kind_wants_none(machine: tuple[str, Path], spy: PySpy) -> None:
    """It could not run it."""
    other = spy._replace(machine="riscv64")

    out = ran(machine, foreign_jobs.AGENT_WITH_PY_SPY, *other.words, str(len(AGENT)), stdin=AGENT)

    assert f"{READY} \n{['look', '--all']} [] None\n" == out


def test_a_launcher_without_py_spy_brings_none(machine: tuple[str, Path]) -> None:
    """No machine is of the kind "" ."""
    nothing = PySpy(b"", "")

    out = ran(machine, foreign_jobs.AGENT_WITH_PY_SPY, *nothing.words, str(len(AGENT)), stdin=AGENT)

    assert f"{READY} \n{['look', '--all']} [] None\n" == out


def test_an_image_with_py_spy_wants_none(machine: tuple[str, Path], spy: PySpy, tmp_path: Path) -> None:
    """Its own may be the one that fits its Python."""
    own = tmp_path / "own" / "py-spy"
    own.parent.mkdir()
    own.write_text(SAYS.replace("launcher", "image"))
    own.chmod(0o755)

    out = ran(
        machine, foreign_jobs.AGENT_WITH_PY_SPY, *spy.words, str(len(AGENT)), stdin=AGENT,
        PATH=f"{own.parent}:/usr/bin:/bin",
    )  # fmt: skip

    assert f"{READY} \n{['look', '--all']} [] py-spy of the image\n\n" == out


@pytest.mark.parametrize(
    ("head", "machine"),
    [
        pytest.param(b"#!/usr/bin/env python3\n", "", id="a script"),
        pytest.param(b"\xcf\xfa\xed\xfe" + bytes(20), "", id="a Mac's"),
        pytest.param(b"\x7fELF" + bytes(14) + b"\xb7\x00", "aarch64", id="Arm's"),
        pytest.param(b"\x7fELF" + bytes(14) + b"\x08\x00", "", id="another's"),
    ],
)
def test_the_kind_of_machine_is_read_from_the_program(
    head: bytes, machine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A py-spy that is no program for Linux stays at home."""
    program = tmp_path / "py-spy"
    program.write_bytes(head)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    found = foreign_jobs.packed_py_spy()

    assert (machine, bool(machine)) == (found.machine, bool(found.packed))


def test_a_path_is_told_where_the_files_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on the nodes of a Slurm; one that is not there is not used."""
    environment = foreign_jobs.environment_with_py_spy()

    assert environment[Env.PY_SPY] == foreign_jobs.own_py_spy() != ""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv(Env.PY_SPY, environment[Env.PY_SPY])
    assert environment[Env.PY_SPY] == py_spy.find("/nowhere/python3")
    monkeypatch.setenv(Env.PY_SPY, "/nowhere/py-spy")
    assert py_spy.find("/nowhere/python3") is None
    assert shutil.which(environment[Env.PY_SPY])


def test_the_end_of_the_input_is_not_waited_for() -> None:
    """The API server does not pass it on."""
    agent = archive.agent_archive()
    words = [sys.executable, "-I", "-S", "-c", foreign_jobs.AGENT, str(len(agent)), "--version"]

    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(agent)
        process.stdin.flush()
        assert sys.version.split()[0] in process.stdout.read().decode()


def test_no_rank_dies_for_it(machine: tuple[str, Path]) -> None:
    """Where memory runs out, the kernel takes the agent first."""
    agent = b"print(open('/proc/self/oom_score_adj').read())"

    assert "1000" == ran(machine, foreign_jobs.AGENT, str(len(agent)), stdin=agent).strip()


def test_a_python_that_is_too_old() -> None:
    """The agent is not even read."""
    old = "import sys; sys.version_info = (3, 8, 1)\n"

    done = subprocess.run(
        [sys.executable, "-c", old + foreign_jobs.AGENT, "1000"], capture_output=True, check=False, text=True
    )

    assert (1, "its python3 is 3.8, and the agent needs 3.9\n") == (done.returncode, done.stderr)
