"""Tries the paths that the hub asks for, in parallel, and reports the result of each."""

from __future__ import annotations

import os
import threading
import time
from typing import Callable, NamedTuple, TypeVar

from ddplaunch.agent.contract import MeshResult, MeshTask
from ddplaunch.agent.transport.protocol import (
    Channel,
    LostError,
    ProtocolError,
    RefusedError,
    StrangerError,
    UnreachableError,
)
from ddplaunch.agent.transport.responder import digest
from ddplaunch.agent.transport.strangers import OURS, ask, describe, is_job

SECONDS = 3.0
"""For connecting, and again for the payload: one lost packet is sent again after 1 s, and after 2 s more."""
PAYLOAD = 64 * 1024
"""Bytes, far beyond any MTU: small messages alone pass through a black hole."""
_AGAIN = 4
"""Further tries, together, of a path on which there was silence: a firewall swallows them all, a lossy link
does not."""
_AGAIN_SECONDS = 1.3
"""For each of these, likewise: the kernel sends a packet twice in that time."""
_PAUSE = 0.5
"""Between tries of a path that is refused at once: rules of a firewall may be on their way. All of them last
no longer than what is silent is given."""
_ANSWERED = ("refused", "reset", "unreachable")
_DOUBTS = 32
"""Paths of one node that are tried again; where more are silent it is no matter of single packets."""
_MOVED = 4096
"""Bytes that the peer must have acknowledged for more than our introduction to have come through."""
_AT_ONCE = 256
_ASK = 1.0
_OUTCOMES = {"refused": "refused", "timeout": "timeout", "reset": "reset"}

T = TypeVar("T")


class _Try(NamedTuple):
    outcome: str  # of `contract.MeshResult`
    detail: str = ""
    silent: bool = False  # nothing was answered, or the answer stopped: packets may have been lost
    met: bool = False  # it was a peer of ours that answered, as far as it did
    moved: bool = False  # part of the payload came through


def run(node: int, tasks: list[MeshTask], key: bytes, attempt: int) -> list[MeshResult]:
    """One result for each task, in their order."""
    data = os.urandom(PAYLOAD // 2).hex()
    slots = threading.BoundedSemaphore(_AT_ONCE)
    doubts = threading.BoundedSemaphore(_DOUBTS)  # taken, and not given back

    def work(task: MeshTask) -> MeshResult:
        time.sleep(task.after)
        with slots:
            started = time.monotonic()
            found = _patient(task, key, attempt, data)
            if found.silent and doubts.acquire(blocking=False):
                again = [lambda: _try(task, key, attempt, data, _AGAIN_SECONDS)] * _AGAIN
                found = _together_with(found, _all_at_once(again))
            seconds = time.monotonic() - started
        words = (task.peer, task.address, task.port, task.what, found.outcome, found.detail)
        return MeshResult(node, *words, seconds)

    return _all_at_once([lambda task=task: work(task) for task in tasks])  # type: ignore[misc]


def _all_at_once(works: list[Callable[[], T]]) -> list[T]:
    """Return the results of all works, in their order."""
    found: dict[int, T] = {}

    def work(index: int) -> None:
        found[index] = works[index]()

    threads = [threading.Thread(target=work, args=(index,), daemon=True) for index in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[index] for index in sorted(found)]


def _together_with(first: _Try, again: list[_Try]) -> _Try:
    """Return what several tries of one path show. Only where none comes through at all is the path closed."""
    tries = [first, *again]
    failed = sum(each.outcome != "ok" for each in tries)
    if failed < len(tries):
        return _Try("ok", f"packets are lost, {failed} of {len(tries)} tries failed")
    partly = [each for each in tries if each.met]
    if any(each.moved for each in partly) or (partly and len(partly) < len(tries)):
        return _Try("lossy", f"none of {len(tries)} tries came through whole, {len(partly)} did in part")
    return first


def _patient(task: MeshTask, key: bytes, attempt: int, data: str) -> _Try:
    """Try the path again while the network answers that there is none, no longer than silence would take."""
    started = time.monotonic()
    first = found = _try(task, key, attempt, data, SECONDS)
    while found.outcome in _ANSWERED and time.monotonic() - started + _PAUSE < SECONDS:
        time.sleep(_PAUSE)
        found = _try(task, key, attempt, data, _AGAIN_SECONDS)
        if found.outcome == "ok":
            return _Try("ok", f"{first.outcome} for {time.monotonic() - started:.1f} s before it was open")
    return first


def _try(task: MeshTask, key: bytes, attempt: int, data: str, seconds: float) -> _Try:
    """`seconds`: for connecting, and again for the payload."""
    try:
        channel = Channel.connect(task.address, task.port, key, attempt, time.monotonic() + seconds)
    except UnreachableError as error:
        outcome = _OUTCOMES.get(error.kind, "unreachable")
        return _Try(outcome, error.detail, silent=outcome == "timeout")
    except StrangerError as error:
        said = error.said or ask(task.address, task.port, _ASK)
        if not error.said and said.startswith(OURS):
            return _Try("stalled", "it answers, and too late", silent=True, met=True)
        return _Try("shared" if is_job(said) else "stranger", describe(said) or str(error), silent=not said)
    except RefusedError as error:
        return _Try("shared" if error.why == "key" else "stranger", str(error))
    except ProtocolError as error:
        return _Try("reset", str(error))
    try:
        channel.send("payload", {"data": data}, seconds)
        answer = channel.receive(seconds)
        moved = channel.acknowledged > _MOVED
    except LostError as error:
        if "does not read" not in str(error):
            return _Try("reset", str(error))
        return _Try("stalled", str(error), silent=True, met=True, moved=channel.acknowledged > _MOVED)
    finally:
        channel.close()
    if answer is None:
        detail = f"{PAYLOAD // 1024} kB were sent and no answer came"
        return _Try("stalled", detail, silent=True, met=True, moved=moved)
    if answer[1].get("digest") != digest(data):
        return _Try("reset", "what came through was not what was sent")
    return _Try("ok")
