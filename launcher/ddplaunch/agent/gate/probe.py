"""Tries the paths that the hub asks for, all at once, and says of each how it went."""

from __future__ import annotations

import os
import threading
import time

from ddplaunch.agent.contract import MeshResult, MeshTask
from ddplaunch.agent.gate.responder import digest
from ddplaunch.agent.gate.stranger import ask, describe
from ddplaunch.agent.protocol import (
    Channel,
    LostError,
    ProtocolError,
    RefusedError,
    StrangerError,
    UnreachableError,
)

SECONDS = 3.0
"""For connecting, and again for the payload: one lost packet is sent again after 1 s, and after 2 s more."""
PAYLOAD = 64 * 1024
"""Bytes, far beyond any MTU: small messages alone pass through a black hole."""
_AT_ONCE = 64
_ASK = 1.0
_OUTCOMES = {"refused": "refused", "timeout": "timeout", "reset": "reset"}


def run(node: int, tasks: list[MeshTask], key: bytes, attempt: int) -> list[MeshResult]:
    """One result for each task, in their order."""
    results: list[MeshResult] = []
    slots = threading.BoundedSemaphore(_AT_ONCE)
    data = os.urandom(PAYLOAD // 2).hex()

    def work(index: int, task: MeshTask) -> None:
        with slots:
            started = time.monotonic()
            outcome, detail = _try(task, key, attempt, data)
            seconds = time.monotonic() - started
        result = MeshResult(node, task.peer, task.address, task.port, task.what, outcome, detail, seconds)
        found[index] = result

    found: dict[int, MeshResult] = {}
    threads = [
        threading.Thread(target=work, args=(index, task), daemon=True) for index, task in enumerate(tasks)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.extend(found[index] for index in sorted(found))
    return results


def _try(task: MeshTask, key: bytes, attempt: int, data: str) -> tuple[str, str]:
    """(outcome, detail) of `contract.MeshResult`."""
    try:
        channel = Channel.connect(task.address, task.port, key, attempt, time.monotonic() + SECONDS)
    except UnreachableError as error:
        return _OUTCOMES.get(error.kind, "unreachable"), error.detail
    except StrangerError as error:
        said = error.said or ask(task.address, task.port, _ASK)
        return "stranger", describe(said) or str(error)
    except RefusedError as error:
        return "stranger", str(error)
    except ProtocolError as error:
        return "reset", str(error)
    try:
        channel.send("payload", {"data": data}, SECONDS)
        answer = channel.receive(SECONDS)
    except LostError as error:
        return "stalled" if "does not read" in str(error) else "reset", str(error)
    finally:
        channel.close()
    if answer is None:
        return "stalled", f"{PAYLOAD // 1024} kB were sent and no answer came"
    if answer[1].get("digest") != digest(data):
        return "reset", "what came through was not what was sent"
    return "ok", ""
