"""`agent.pyz interfaces` on this machine, with and without libraries to ask."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ddplaunch.agent.interfaces import command

NOWHERE = "/nowhere/python3"


def interfaces(agent: list[str], *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """In a folder without a plan: it takes none."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("NCCL_", "GLOO_"))}
    return subprocess.run(
        [*agent, "interfaces", *words],
        capture_output=True,
        text=True,
        env={**own, **env},
        check=False,
        cwd="/",
    )


def of(data: dict[str, Any], purpose: str) -> dict[str, Any]:
    """The row that says what is taken for it."""
    (row,) = [row for row in data["choices"] if row["for"] == purpose]
    return dict(row)


def test_without_libraries_the_prediction_stands_alone_and_says_so(agent: list[str]) -> None:
    done = interfaces(agent, "--python", NOWHERE, GLOO_SOCKET_IFNAME="lo", NCCL_SOCKET_IFNAME="lo")

    assert (0, "") == (done.returncode, done.stderr)
    assert "  NCCL, bootstrap          lo 127.0.0.1\n" in done.stdout
    assert "NCCL_SOCKET_IFNAME=lo: the first in the system's order whose name begins with lo" in done.stdout
    assert "  Gloo                     lo 127.0.0.1\n" in done.stdout
    assert f"the library could not be asked: [Errno 2] No such file or directory: '{NOWHERE}'" in done.stdout


def test_the_json_has_every_address_and_each_choice_with_its_reason(agent: list[str]) -> None:
    done = interfaces(agent, "--json", "--python", NOWHERE, NCCL_SOCKET_IFNAME="nosuch")
    data = json.loads(done.stdout)

    assert ("lo", "127.0.0.1", 8) in [(a["interface"], a["address"], a["prefix"]) for a in data["addresses"]]
    seen = of(data, "NCCL, bootstrap")["takes"], of(data, "NCCL, bootstrap")["why"]
    assert ([], "NCCL_SOCKET_IFNAME=nosuch matches none") == seen
    assert (None, None, None) == (data["nccl"], data["torch"], of(data, "Gloo")["agrees"])


def script(path: Path, *lines: str) -> str:
    """In place of a Python."""
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    path.chmod(0o755)
    return str(path)


def test_a_library_that_crashes_is_told_by_its_signal(agent: list[str], tmp_path: Path) -> None:
    dies = script(tmp_path / "dies", "kill -SEGV $$")
    half = 'echo \'{"version": "2.15.0", "gloo": {"using": ["127.0.0.1"]}}\'; kill -ABRT $$'
    later = script(tmp_path / "later", f'[ "$2" = nccl ] && exit 3; {half}')
    said = json.loads(interfaces(agent, "--json", "--python", dies).stdout)
    partly = json.loads(interfaces(agent, "--json", "--python", later).stdout)

    assert ["it ended with SIGSEGV"] * 2 == [
        of(said, name)["trouble"] for name in ("NCCL, bootstrap", "Gloo")
    ]
    assert "it ended with 3" == of(partly, "NCCL, bootstrap")["trouble"]
    assert ["127.0.0.1"] == of(partly, "Gloo")["library_says"]
    seen = of(partly, "TensorPipe")["library_says"], of(partly, "TensorPipe")["trouble"]
    assert (None, "it ended with SIGABRT") == seen


def test_a_library_that_takes_an_interface_and_fails_is_told(agent: list[str], tmp_path: Path) -> None:
    answer = '{"version": "2.30.7", "using": ["lo:127.0.0.1"], "said": "Call to bind failed"}'
    python = script(tmp_path / "python", f"echo '{answer}'")
    done = interfaces(agent, "--python", python, NCCL_SOCKET_IFNAME="lo")

    assert "the library itself says the same, and fails: Call to bind failed\n" in done.stdout


def test_a_library_that_hangs_is_waited_for_and_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "SECONDS", 1.0)
    monkeypatch.setattr(command, "QUIET", 0.1)
    command.main(script(tmp_path / "hangs", "exec sleep 600"), as_json=False)
    said = capsys.readouterr()

    assert "waiting for nccl to answer, at most 1 s\nwaiting for torch to answer, at most 1 s\n" == said.err
    assert 3 == said.out.count("the library could not be asked: no answer in 1 s")


def test_a_host_without_addresses_is_told_so(agent: list[str]) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to make a network")
    done = interfaces(["unshare", "--net", *agent], "--python", NOWHERE)

    assert "in which libraries look at them\n  none\n" in done.stdout
    assert "  NCCL, bootstrap          none\n" in done.stdout


@pytest.mark.whole
@pytest.mark.slow
def test_nccl_and_torch_of_the_named_python_are_asked(agent: list[str]) -> None:
    python = Path(__file__).resolve().parents[3] / ".venv" / "bin" / "python"
    data = json.loads(interfaces(agent, "--json", "--python", str(python), TP_SOCKET_IFNAME="lo").stdout)

    said = {row["for"]: row["agrees"] for row in data["choices"]}
    everybody = dict.fromkeys(["NCCL, bootstrap", "Gloo", "TensorPipe"], True)
    assert {**everybody, "NCCL, data without RDMA": None} == said
    assert ["127.0.0.1"] == of(data, "TensorPipe")["library_says"]
    assert data["nccl"].startswith("2.")
    assert data["torch"]
