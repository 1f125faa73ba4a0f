"""A machine that is lost in mid-run: named soon, and whoever waits for the job is not kept for its pod."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.busy import BUSY
from tests.cluster.kubernetes.backend.conftest import Cli, Write
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.faults import Faults
from tests.cluster.training import TRAIN

Lose = Callable[[Faults, str], None]
WATCHDOG = {"notice_after": "5s", "kill_after": "12s"}


def freeze(faults: Faults, machine: str) -> None:
    """Its processes stand still, its connections stay open, and its kernel confirms what is sent to it."""
    faults.pause(machine)


def cut(faults: Faults, machine: str) -> None:
    """Nothing reaches its pods or leaves them, and nothing reaches the control plane."""
    for hook in ("forward", "output", "input"):
        faults.nft(machine, "drop", hook=hook)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("lose", "says"),
    [(freeze, "its processes are frozen or starved"), (cut, "stopped answering at")],
    ids=["frozen", "cut"],
)
@pytest.mark.fault("network-lost")
def test_a_machine_is_lost_in_mid_run(
    cluster: Cluster, faults: Faults, cli: Cli, write: Write, namespace: str, lose: Lose, says: str
) -> None:
    """The notice names it within seconds, the end comes at kill_after, and who waits hears it at once."""
    path = write("digits", TRAIN.format(before="", step="pass"), watchdog=WATCHDOG)
    with following(cli, path) as said:
        for line in said:
            if line.count("] up"):
                break
        (machine,) = machines(cluster, namespace, node=1)
        lose(faults, machine)
        lost = time.monotonic()
        noticed = first(said, "[hub] .*network-lost")
        over = first(said, r"\[hub\] .*the job has failed")
        told = first(said, r"ddplaunch: failed after")
    shown = json.loads(cli("status", f"kubernetes://{namespace}/digits", "--json")[1])

    assert noticed - lost < 15 + BUSY * 5
    assert told - over < 10 + BUSY * 5
    (verdict,) = shown["verdicts"]
    assert ("network-lost", [1]) == (verdict["code"], verdict["nodes"])
    assert says in verdict["sentence"]
    assert "look at the network between" not in verdict["hint"]
    assert "failed" == shown["state"]
    assert machine in shown["lingers"]


@contextmanager
def following(cli: Cli, path: object) -> Iterator[Iterator[str]]:
    """Lines of `submit --wait`."""
    waiting = cli.start("submit", str(path), "--to", "kubernetes", "--wait")
    assert waiting.stderr is not None
    try:
        yield iter(waiting.stderr)
    finally:
        waiting.kill()
        waiting.communicate()


def first(lines: Iterator[str], pattern: str) -> float:
    """When the first line came that holds this."""
    said = []
    for line in lines:
        said.append(line)
        print(f"{time.monotonic():.1f} {line}", end="")
        if re.search(pattern, line):
            return time.monotonic()
    raise AssertionError(f"nobody said {pattern}:\n{''.join(said)}")


def machines(cluster: Cluster, namespace: str, node: int) -> list[str]:
    """Where the pod of this node is."""
    label = f"batch.kubernetes.io/job-completion-index={node}"
    pods = cluster.get("pods", namespace=namespace, selector=label)
    return [pod["spec"]["nodeName"] for pod in pods]
