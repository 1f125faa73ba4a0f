"""`agent.pyz interfaces` on this machine, with and without libraries to ask."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

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


def test_without_libraries_the_prediction_stands_alone(agent: list[str]) -> None:
    """It says whom it could not ask."""
    done = interfaces(agent, "--python", NOWHERE, GLOO_SOCKET_IFNAME="lo", NCCL_SOCKET_IFNAME="lo")

    assert (0, "") == (done.returncode, done.stderr)
    assert "  NCCL, bootstrap          lo 127.0.0.1\n" in done.stdout
    assert "NCCL_SOCKET_IFNAME=lo: the first in the system's order whose name begins with lo" in done.stdout
    assert "  Gloo                     lo 127.0.0.1\n" in done.stdout
    assert f"the library could not be asked: [Errno 2] No such file or directory: '{NOWHERE}'" in done.stdout


def test_for_programs_it_is_json(agent: list[str]) -> None:
    """Every address of this host, and each choice with its reason."""
    done = interfaces(agent, "--json", "--python", NOWHERE, NCCL_SOCKET_IFNAME="nosuch")
    data = json.loads(done.stdout)

    assert ("lo", "127.0.0.1", 8) in [(a["interface"], a["address"], a["prefix"]) for a in data["addresses"]]
    assert ([], "NCCL_SOCKET_IFNAME=nosuch matches none") == (
        of(data, "NCCL, bootstrap")["takes"],
        of(data, "NCCL, bootstrap")["why"],
    )
    assert (None, None, None) == (data["nccl"], data["torch"], of(data, "Gloo")["agrees"])


@pytest.mark.slow
def test_the_libraries_themselves_are_asked(agent: list[str]) -> None:
    """NCCL and torch of the Python that is named, each in a process of its own."""
    python = Path(__file__).resolve().parents[3] / ".venv" / "bin" / "python"
    data = json.loads(interfaces(agent, "--json", "--python", str(python), TP_SOCKET_IFNAME="lo").stdout)

    said = {row["for"]: row["agrees"] for row in data["choices"]}
    everybody = dict.fromkeys(["NCCL, bootstrap", "Gloo", "TensorPipe"], True)
    assert {**everybody, "NCCL, data without RDMA": None} == said
    assert ["127.0.0.1"] == of(data, "TensorPipe")["library_says"]
    assert data["nccl"].startswith("2.")
    assert data["torch"]
