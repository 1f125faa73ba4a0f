"""A port that the user's own torchrun will use on this machine alone."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from tests.agent.checks.make import make_context

from ddplaunch.agent.checks.port import check_port
from ddplaunch.agent.contract import CheckResult


def checked(folder: Path, *words: str, nodes: int = 1) -> CheckResult:
    """Of a torchrun with these options."""
    command = ["torchrun", *words, "train.py"]
    context = make_context(
        folder, environment={}, nodes=nodes, nproc_per_node=None, launch=[], command=command
    )
    result = check_port(context)
    assert context.master is not None  # the hub wants one of node 0, whatever torchrun takes
    context.master.close()
    return result


@pytest.mark.parametrize(
    ("words", "then"),
    [
        (["--master-port=PORT"], "torchrun will not get it"),
        (
            ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:PORT"],
            "torchrun will look there for its store",
        ),
    ],
)
def test_who_holds_it_is_told_and_nothing_is_refused(tmp_path: Path, words: list[str], then: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = str(held.getsockname()[1])
        result = checked(tmp_path, *[word.replace("PORT", port) for word in words])

    assert ("unknown", "port-in-use") == (result.status, result.code)
    assert f"port {port} is held by pid " in result.observed
    assert then in result.observed


def test_a_free_port_another_machines_and_none_at_all_are_no_matter(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        others = [
            checked(tmp_path, "--rdzv-backend=c10d", f"--rdzv-endpoint=192.0.2.1:{port}"),
            checked(tmp_path, f"--master-port={port}", nodes=2),
            checked(tmp_path, "--standalone", f"--master-port={port}"),
            checked(tmp_path),
        ]
    others.append(checked(tmp_path, f"--master-port={port}"))

    assert ["pass"] * 5 == [result.status for result in others]
