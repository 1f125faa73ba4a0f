"""How a torchrun will look for its peers, and whether it takes an address for its own machine's."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from ddplaunch.agent.contract import Torchrun
from ddplaunch.agent.system.torchrun import guesses_host, is_process, read_torchrun, split_endpoint

C10D = ["--rdzv-backend=c10d", "--rdzv-endpoint=n0:29400"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["/opt/bin/python3.11", "/opt/bin/torchrun", "train.py"], True),
        (["python", "-u", "-m", "torch.distributed.run", "train.py"], True),
        (["torchrun", "train.py"], True),
        (["bash", "run.sh", "torchrun", "train.py"], False),
        (["python", "train.py", "torchrun"], False),
        (["python", "-m", "trainer", "torch.distributed.run"], False),
        ([], False),
    ],
)
def test_a_process_is_torchrun_by_its_own_words(words: list[str], expected: bool) -> None:
    assert expected == is_process(words)


@pytest.mark.parametrize(
    ("words", "variables", "expected"),
    [
        (
            ["--nnodes=2", *C10D, "--rdzv-id", "7"],
            {},
            Torchrun(1, nnodes="2", sized=True, backend="c10d", endpoint="n0:29400", run_id="7"),
        ),
        (
            ["--nnodes=2", "--node-rank=1", "--master-addr=n0"],
            {"PET_MASTER_PORT": "29511"},
            Torchrun(1, nnodes="2", sized=True, endpoint="n0:29511", node_rank=1, opens_store=False),
        ),
        ([], {}, Torchrun(1, backend="c10d")),  # for itself
        (["--standalone"], {"PET_NNODES": "2"}, Torchrun(1, sized=True, backend="c10d")),
        (["--master-port=29500"], {}, Torchrun(1, endpoint="127.0.0.1:29500", opens_store=True)),
        (
            [*C10D, "--rdzv-conf", "timeout=9, is_host=1"],
            {},
            Torchrun(1, backend="c10d", endpoint="n0:29400", opens_store=True),
        ),
        (
            [*C10D, "--rdzv-conf=is_host=False"],
            {},
            Torchrun(1, backend="c10d", endpoint="n0:29400", opens_store=False),
        ),
    ],
)
def test_options_and_variables_say_how_it_looks_for_its_peers(
    words: list[str], variables: dict[str, str], expected: Torchrun
) -> None:
    assert expected == read_torchrun(1, ["python", "torchrun", *words, "train.py", "--rdzv-id=9"], variables)


def test_another_command_is_no_torchrun() -> None:
    assert read_torchrun(1, ["bash", "-c", "torchrun --nnodes 2 train.py"], {}) is None


def test_an_endpoint_may_be_of_ipv6_or_without_a_port() -> None:
    assert ("n0", "29400") == split_endpoint("n0") == split_endpoint("n0:29400")
    assert ("fd00::1", "29400") == split_endpoint("[fd00::1]")
    assert ("fd00::1", "29511") == split_endpoint("[fd00::1]:29511")


ASK_TORCH = """
import sys
from torch.distributed.elastic.rendezvous.utils import _matches_machine_hostname
print([_matches_machine_hostname(host) for host in sys.argv[1:]])
"""


@pytest.mark.slow
def test_it_guesses_as_torch_itself_does() -> None:
    own = socket.gethostname()
    hosts = [
        "localhost",
        "127.0.0.1",
        "::1",
        own,
        socket.getfqdn(),
        "203.0.113.7",
        "fd00::77",
        "no.such.invalid",
    ]

    done = subprocess.run(
        [sys.executable, "-c", ASK_TORCH, *hosts], capture_output=True, text=True, timeout=300, check=True
    )

    assert done.stdout.splitlines()[-1] == str([guesses_host(host, 30.0) for host in hosts])
