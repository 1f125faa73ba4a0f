"""Lines of containers: known by their time, labelled as the agent labels them elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.backends.bundles import BUNDLE, block

from ddplaunch.agent.contract import Bundle
from ddplaunch.backends.job import EVERYTHING, Selection
from ddplaunch.backends.kubernetes import objects, output
from ddplaunch.backends.kubernetes.api import Api
from ddplaunch.backends.kubernetes.output import Output, Stream
from ddplaunch.backends.kubernetes.queries import ApiState

NOTHING = ApiState("lab", "digits", None)


def tail(container: str, kept: list[Bundle] | None = None) -> Any:
    """Of node 3's container of that name."""
    keep = (kept if kept is not None else []).append
    source = Output(Api(), lambda: NOTHING, EVERYTHING, follow=False, over=lambda: True, keep=keep)
    return output._ContainerLog(source._api, "/log", Stream(3, "digits-3-x", container, 0), source)


@pytest.mark.parametrize(
    ("stamp", "at"),
    [
        (b"1970-01-01T00:00:01.000000002Z", (1.0, 2)),
        (b"1970-01-01T00:00:01.5Z", (1.0, 500_000_000)),
        (b"1970-01-01T00:00:01Z", (1.0, 0)),
        (b"1970-01-01T02:00:01.25+02:00", (1.0, 250_000_000)),
    ],
)
def test_a_line_is_known_by_its_time(stamp: bytes, at: tuple[float, int]) -> None:
    assert (at, b"a b ") == output.stamped(stamp + b" a b ")


def test_a_line_without_a_time_is_shown_all_the_same() -> None:
    assert ((0.0, 0), b"unable to retrieve logs") == output.stamped(b"unable to retrieve logs")


@pytest.mark.parametrize(
    ("container", "text", "line"),
    [
        ("trainer", b"[3/7] loss 2.2", b"[3/7] loss 2.2"),
        ("trainer", b"[3/ddplaunch] told to stop", b"[3/ddplaunch] told to stop"),
        ("trainer", b"[W1121 socket.cpp] from outside", b"[3] [W1121 socket.cpp] from outside"),
        ("gate", b"  ok  port", b"[3/gate]   ok  port"),
        ("hub", b"08:24:49 node 1 checked in", b"[hub] 08:24:49 node 1 checked in"),
    ],
)
def test_every_line_says_who_speaks(container: str, text: bytes, line: bytes) -> None:
    """The supervisor labels its ranks itself; the rest is labelled here."""
    assert line == tail(container)._labelled(text)


def test_the_printed_bundle_is_kept_and_not_shown() -> None:
    """Nobody reads base64; but the hub's pod may be deleted a moment later."""
    kept: list[Bundle] = []
    hub = tail("hub", kept)
    shown = [hub._labelled(line.encode()) for line in ["before", *block(BUNDLE), "after"]]

    assert [b"[hub] before", b"[hub] after"] == [line for line in shown if line is not None]
    assert [BUNDLE] == kept


def test_lines_are_whole_however_they_come() -> None:
    class Response:
        def stream(self, size: int) -> Iterator[bytes]:
            yield from (b"on", b"e\ntwo\nth", b"ree")

    assert [b"one", b"two", b"three"] == list(output._lines(Response()))


@pytest.mark.parametrize(
    ("ended", "nodes", "said"),
    [
        (
            True,
            None,
            [b"[ddplaunch] the output of nodes 0, 2 is gone: Kubernetes deleted it with the pod"],
        ),
        (
            True,
            frozenset({1, 2}),
            [b"[ddplaunch] the output of node 2 is gone: Kubernetes deleted it with the pod"],
        ),
        (True, frozenset({1}), []),
        (False, None, []),
    ],
    ids=["all", "one of two", "one that is there", "not yet created"],
)
def test_output_that_was_deleted_is_named(
    ended: bool, nodes: frozenset[int] | None, said: list[bytes]
) -> None:
    """The Job controller deletes the other pods of a job as soon as one has failed."""
    pod = {"metadata": {"name": "digits-1-x", "labels": {objects.INDEX: "1"}}}
    state = ApiState("lab", "digits", {}, {"spec": {"completions": 3}}, (pod,))
    source = Output(Api(), lambda: state, Selection(nodes=nodes), follow=False, over=lambda: ended)

    assert said == list(source.present())


def test_pods_that_an_elastic_job_went_on_without_may_have_said_nothing() -> None:
    """Kubernetes deletes those that still wait for room, beside pods that have run."""
    job = {"spec": {"completions": 2, "successPolicy": {"rules": [{"succeededIndexes": "0"}]}}}
    state = ApiState("lab", "digits", job, job, ())
    logs = Output(Api(), lambda: state, Selection(), follow=False, over=lambda: True)

    line = (
        b"[ddplaunch] the output of nodes 0-1 is gone, if there was any: Kubernetes deleted it with the pod"
    )
    assert [line] == list(logs.present())


def test_all_containers_of_a_job_of_others_are_read_and_named() -> None:
    """Whether its pods are numbered or not; none is said to be gone, as nobody knows how many there were."""
    running: Any = {"state": {"running": {}}}
    statuses = [{"name": "pytorch", **running}, {"name": "sidecar", "state": {"waiting": {}}}]
    pods = [
        {"metadata": {"name": "llm-x", "labels": labels}, "status": {"containerStatuses": statuses}}
        for labels in ({objects.INDEX: "0"}, {})
    ]
    state = ApiState("lab", "llm", {}, {"spec": {"completions": 3}}, (pods[0],), others=(pods[1],))
    source = Output(Api(), lambda: state, EVERYTHING, follow=False, foreign=True, over=lambda: True)

    streams = source._streams(state)
    log = output._ContainerLog(source._api, "/log", streams[0], source)
    assert [(None, "llm-x", "pytorch", 0)] * 2 == streams
    assert b"[llm-x/pytorch] [3/7] loss 2.2" == log._labelled(b"[3/7] loss 2.2")
    assert set() == source._without_pod(state)
