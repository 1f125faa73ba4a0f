"""Shapes and messages to JSON and back."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from ddplaunch.agent import contract
from ddplaunch.agent.contract import (
    Beat,
    Bundle,
    CheckIn,
    JobEvidence,
    JobPlan,
    NodeEvidence,
    RankEvidence,
    Verdict,
    WatchdogPlan,
    codec,
    messages,
)
from ddplaunch.agent.contract.messages import Alive, AskStatus, Collect, End, StatusAnswer, Way, load

BUNDLE = Bundle(
    job="digits",
    attempt=1,
    nodes=2,
    nproc_per_node=None,
    started=1.5,
    written=2,
    check_ins=[CheckIn(0, "n0", 2, 4, "10.0.0.1", {"responder": 40000}, 1.0, facts={"shm": {"x": [None]}})],
    evidence=JobEvidence(
        "digits", 2, 8, "still", 2.0, [NodeEvidence(0, "n0", 2.0, "running", [RankEvidence(0, 0, 17, True)])]
    ),
    verdicts=[Verdict.of("unknown", "grüße 🎉", "run", ranks=[3])],
)


@pytest.mark.parametrize("given", [BUNDLE, WatchdogPlan(kill_after=None)])  # whose default is another
def test_what_goes_through_json_comes_back_and_a_newer_agents_extra_keys_are_ignored(given: Any) -> None:
    data = json.loads(json.dumps({**codec.dump(given), "colour": "blue"}))

    assert codec.load(type(given), data) == given


VERDICT = {"code": "x", "sentence": "y", "where": "run"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "Verdict: wanted an object, found list"),
        ({"code": "x", "sentence": "y"}, "Verdict: the key where is missing"),
        ({**VERDICT, "code": 1}, "Verdict.code: wanted str, found int"),
        ({**VERDICT, "ranks": [0, "1"]}, "Verdict.ranks[1]: wanted int, found str"),
        ({**VERDICT, "ranks": [True]}, "Verdict.ranks[0]: wanted int, found bool"),
        ({**VERDICT, "confidence": "1"}, "Verdict.confidence: wanted a number, found str"),
    ],
)
def test_a_wrong_shape_is_named_with_its_place(data: object, message: str) -> None:
    with pytest.raises(codec.ContractError) as caught:
        codec.load(Verdict, data)

    assert message == str(caught.value)


def test_a_file_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("{")

    with pytest.raises(codec.ContractError, match=r"plan\.json: not JSON"):
        codec.read(JobPlan, str(path))


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "status.json")
    small, large = (Verdict.of("unknown", "x" * size, "run") for size in (1, 300_000))
    codec.write(path, small)
    done = threading.Event()

    def write() -> None:
        for _ in range(100):
            codec.write(path, large)
            codec.write(path, small)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
        assert codec.read(Verdict, path) in (small, large)
    writer.join()
    assert ["status.json"] == os.listdir(tmp_path)


def test_a_written_file_can_be_private_from_its_first_byte_on(tmp_path: Path) -> None:
    codec.write(str(tmp_path / "key.json"), Verdict.of("unknown", "x", "run"), mode=0o600)

    assert (tmp_path / "key.json").stat().st_mode & 0o777 == 0o600


def test_every_shape_of_the_contract_can_be_loaded() -> None:
    shapes = [each for each in vars(contract).values() if hasattr(each, "__dataclass_fields__")]

    for shape in shapes:
        with pytest.raises(codec.ContractError):
            codec.load(shape, [])
    assert len(shapes) > 25


@pytest.mark.parametrize("phase", ["dreaming", 7, None])
def test_a_word_that_a_field_does_not_know_is_refused_with_those_it_knows(phase: object) -> None:
    told = {**codec.dump(Beat(0, "running", 1.0, [])), "phase": phase}

    with pytest.raises(codec.ContractError, match=r"Beat\.phase: wanted one of starting, gate, .*, found "):
        codec.load(Beat, told)


def test_a_place_is_named_however_deep_it_lies() -> None:
    deep, by_key = codec.dump(BUNDLE), codec.dump(BUNDLE)
    deep["evidence"]["evidence"][0]["ranks"][0]["pid"] = "17"
    by_key["check_ins"][0]["ports"]["master"] = 1.5

    with pytest.raises(
        codec.ContractError, match=r"^Bundle\.evidence\.evidence\[0\]\.ranks\[0\]\.pid: wanted int"
    ):
        codec.load(Bundle, deep)
    with pytest.raises(codec.ContractError, match=r"^Bundle\.check_ins\[0\]\.ports\.master: wanted int"):
        codec.load(Bundle, by_key)


END = End(40, [Verdict.of("rank-failed", "rank 1 raised ValueError", "run", ranks=[1])], 5.0)


@pytest.mark.parametrize("message", [END, Collect(3, "death", 3.0), Alive()])
def test_what_is_packed_is_read_again(message: messages.Message) -> None:
    assert message == load(*message.pack(), Way.HUB_TO_SUPERVISOR)


def test_a_message_that_goes_the_other_way_is_refused() -> None:
    assert load(*END.pack(), Way.SUPERVISOR_TO_HUB) is None
    assert load(*END.pack(), Way.HUB_TO_GATE) is None
    assert load("nonsense", {}, *Way) is None
    # A kind may be a question one way and its answer the other.
    assert AskStatus.kind == StatusAnswer.kind
    assert AskStatus() == load("status", {}, Way.COMMAND_TO_HUB)


def test_a_body_of_another_shape_is_refused_with_its_place() -> None:
    with pytest.raises(codec.ContractError, match=r"Collect\.deadline: wanted a number, found str"):
        load("collect", {"id": 1, "why": "still", "deadline": "soon"}, Way.HUB_TO_SUPERVISOR)
