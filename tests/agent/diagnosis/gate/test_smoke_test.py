"""What ranks of a smoke test report, and what is made of it; NCCL's logs are those that people published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ddplaunch.agent.contract import CheckIn, JobPlan, SmokeRank, Verdict
from ddplaunch.agent.diagnosis.gate import smoke_test
from ddplaunch.agent.diagnosis.gate.view import GateView
from ddplaunch.agent.gate.smoke import nccl_lines

LOGS = Path(__file__).with_name("nccl_logs.txt").read_text("utf-8")
"""Sections `= layer | where it was published | the words that decide`, each with lines of one rank's log."""
SECTIONS = [section.partition("\n") for section in LOGS.split("= ")[1:]]
NVIDIA = {"gpus": {"devices": {"NVIDIA": 1}}, "versions": {"cuda": "13.2", "torch": "2.15.0"}}


def view(count: int = 2, **facts: Any) -> GateView:
    """Nodes at 10.0.0.1 and on; all have these facts."""
    hub = {"hub": {"reached_at": "10.0.0.1"}}
    nodes = {
        node: CheckIn(node, f"n{node}", count, 1, f"10.0.0.{node + 1}", {}, 0.0, facts={**hub, **facts})
        for node in range(count)
    }
    return GateView(JobPlan("j", count, 1, [], [], names=[f"n{node}" for node in range(count)]), nodes)


def rank(number: int, backend: str = "gloo", stage: str = "done", **more: Any) -> SmokeRank:
    """One on each node."""
    return SmokeRank(number, number, backend, stage, **more)


def judge(*ranks: SmokeRank, backends: tuple[str, ...] = ("gloo",)) -> Verdict:
    """The only verdict on so many nodes."""
    (found,) = smoke_test.judge(view(len({each.node for each in ranks})), ranks, backends)
    return found


@pytest.mark.parametrize("section", SECTIONS, ids=[head for head, _, _ in SECTIONS])
def test_the_layer_is_read_from_nccls_own_log(section: tuple[str, str, str], tmp_path: Path) -> None:
    """Whatever a version calls its files; what is harmless, or an echo of a peer's end, decides nothing."""
    head, _, text = section
    name, _, words = head.split(" | ")
    (tmp_path / "log").write_text(text)
    found = smoke_test.nccl_layer([nccl_lines(str(tmp_path / "log"))], "", between_nodes=True)

    assert found is not None
    assert (name.removesuffix(", still"), not name.endswith("still")) == (found.name, found.sure)
    assert found.line.startswith(words)
    assert found.hint


def test_what_torch_raises_tells_where_there_is_no_log() -> None:
    """Its last line is the deepest reason."""
    text = (
        "NCCL error in: NCCLUtils.hpp:275, invalid usage\nLast error:\nDuplicate GPU detected : rank 1 and 0"
    )
    found = smoke_test.nccl_layer([[]], text, between_nodes=False)

    assert found is not None
    assert ("the choice of GPUs", "Duplicate GPU detected : rank 1 and 0") == found[:2]
    assert smoke_test.nccl_layer([[]], "KeyError: 'RANK'", between_nodes=False) is None


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, ["gloo"]),
        (NVIDIA, ["nccl", "gloo"]),
        ({**NVIDIA, "backend": {"says": "gloo"}}, ["gloo", "nccl"]),
        ({**NVIDIA, "versions": {"torch": "2.15.0+cpu"}}, ["gloo"]),
        ({"gpus": {"devices": {"Direct Rendering (AMD, Intel)": 1}}, "versions": {"torch": "2.9"}}, ["gloo"]),
        (
            {"gpus": {"devices": {"Direct Rendering (AMD, Intel)": 1}}, "versions": {"torch": "2.9+rocm6.4"}},
            ["nccl", "gloo"],
        ),
        ({"gpus": {"devices": {}}, "backend": {"says": "nccl"}}, ["nccl", "gloo"]),
    ],
)
def test_the_jobs_own_backend_is_tried_first(facts: dict[str, Any], expected: list[str]) -> None:
    """NCCL wherever a GPU and a torch made for it are; a desktop's display is none."""
    assert expected == smoke_test.backends(view(**facts))


def test_a_job_whose_own_backend_passes_starts() -> None:
    """However the other one did, which is only told."""
    ranks = [rank(0), rank(1), rank(0, "nccl", "store", error="no"), rank(1, "nccl", "store")]

    assert [] == smoke_test.judge(view(), ranks, ["gloo", "nccl"])
    own, other = smoke_test.notes(view(), ranks, ["gloo", "nccl"])
    assert own.startswith("smoke test: gloo all_reduce of 2 ranks: 4 B to ")
    assert "smoke test: nccl: ranks 0 and 1 stand in init_process_group: no" == other


def test_nccl_that_stands_still_where_gloo_passes() -> None:
    """The layer is where it was last, and that is not certain."""
    log = ["NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>", "NCCL INFO Channel 00/0 : 0 -> 1 via NET/IB/0"]
    ranks = [
        rank(n, b, *(() if b == "gloo" else ("group",)), log=log) for n in (0, 1) for b in ("gloo", "nccl")
    ]
    found = judge(*ranks, backends=("nccl", "gloo"))

    assert ("backend-unfit", [0, 1], 0.6) == (found.code, found.nodes, found.confidence)
    assert found.sentence.startswith(
        "nccl fails on ranks 0 and 1 in NET/IB, where gloo's all_reduce passes: "
    )
    assert "NCCL_IB_DISABLE" in found.hint


def test_what_stands_in_both_ways_is_told_of_gloo() -> None:
    """A network that swallows large packets is no fault of NCCL."""
    ranks = [
        rank(n, b, "group", size=1024, waits=["10.0.0.2"][: 1 - n]) for n in (0, 1) for b in ("gloo", "nccl")
    ]

    assert "mtu-black-hole" == judge(*ranks, backends=("nccl", "gloo")).code


@pytest.mark.parametrize(
    ("ranks", "code", "nodes"),
    [
        (
            [rank(0, stage="imported"), rank(1, stage="imported", kind="timeout", error="x")],
            "port-filtered",
            [0],
        ),
        (
            [rank(0, stage="imported"), rank(1, stage="imported", kind="refused", error="x")],
            "port-rejected",
            [0],
        ),
        (
            [
                rank(0, stage="store"),
                rank(1, stage="imported", kind="unreachable", error="x"),
                rank(2, stage="store"),
            ],
            "host-unreachable",
            [1],
        ),
        ([rank(0, stage="imported"), rank(1, stage="started", error="ImportError")], "image-lacks", [1]),
        ([rank(0, stage="started"), rank(1, stage="imported")], "image-lacks", [0]),
        (
            [rank(0, stage="started"), rank(1, stage="started", error="its process was killed by SIGKILL")],
            "memory-too-small",
            [1],
        ),
        ([rank(0, stage="store", waits=["10.0.0.2"]), rank(1, stage="store")], "port-filtered", [1]),
        (
            [rank(0, stage="store"), rank(1, stage="store", listens=["127.0.1.1"])],
            "gloo-interface-wrong",
            [1],
        ),
        (
            [rank(0, stage="group"), rank(1, stage="group", kind="sum", error="adds up to 7")],
            "backend-unfit",
            [1],
        ),
        (
            [rank(0, stage="store"), rank(1, stage="store", error="was killed by SIGSEGV")],
            "backend-unfit",
            [1],
        ),
    ],
)
def test_where_ranks_stand_tells_the_cause(ranks: list[SmokeRank], code: str, nodes: list[int]) -> None:
    """The earliest stage first."""
    found = judge(*ranks)

    assert (code, nodes) == (found.code, found.nodes)
    assert found.hint
    assert any(each.error in found.sentence + str(found.facts) for each in ranks)


def test_a_node_that_does_not_answer_is_named() -> None:
    """Its gate was heard before, and then no more."""
    (found,) = smoke_test.judge(view(3), [rank(0, stage="store"), rank(1, stage="store")], ["gloo"])

    assert ("node-missing", [2]) == (found.code, found.nodes)
