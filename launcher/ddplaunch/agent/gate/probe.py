"""Both ends of a path: tries those that the hub asks for, in parallel, and answers the probes of peers.

That proves that packets of every size reach a node.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import socket
import threading
import time
from typing import Callable, NamedTuple, TypeVar

from ddplaunch.agent.contract import MeshResult, MeshTask, Outcome, messages
from ddplaunch.agent.contract.messages import Digest, Payload, Way
from ddplaunch.agent.plan.codec import ContractError
from ddplaunch.agent.system.background import Task
from ddplaunch.agent.transport.protocol import (
    Channel,
    LostError,
    ProtocolError,
    RefusedError,
    StrangerError,
    UnreachableError,
)
from ddplaunch.agent.transport.strangers import OURS, ask, describe, is_job

SECONDS = 3.0
"""Seconds to connect, and again for the payload: a lost packet is sent again after 1 s and after 3 s."""
PAYLOAD = 64 * 1024
"""Bytes, far more than any MTU: small messages alone pass through a black hole."""
_AGAIN = 4
"""Further tries of a silent path, all at once: a firewall drops them all, a lossy link does not."""
_AGAIN_SECONDS = 1.3
"""Seconds that each of these has to connect, and again for the payload: enough to send a packet twice."""
_PAUSE = 0.5
"""Seconds between tries of a path that refuses at once: firewall rules may be about to change. All the tries
together take at most SECONDS."""
_ANSWERED = ("refused", "reset", "unreachable")
_DOUBTS = 32
"""Silent paths of one node that are tried again. If there are more, single packets are not the cause."""
_MOVED = 4096
"""If the peer acknowledges more bytes than this, part of the payload has arrived: the handshake has fewer."""
_AT_ONCE = 256
"""Paths tried, or answered, at the same time. More probes wait in the kernel's queue."""
_GREETING_SECONDS = 1.0
_OUTCOMES: dict[str, Outcome] = {
    "refused": "refused",
    "rejected": "refused",
    "timeout": "timeout",
    "reset": "reset",
}

T = TypeVar("T")


class _Try(NamedTuple):
    outcome: Outcome
    detail: str = ""
    silent: bool = False  # no answer, or half of one: packets may have been lost
    met: bool = False  # a node of this job accepted the connection
    moved: bool = False  # part of the payload arrived
    link: tuple[int, ...] = (0, 0)  # see `Channel.link`


def run(node: int, tasks: list[MeshTask], key: bytes, attempt: int) -> list[MeshResult]:
    """Return one result for each task, in their order."""
    data = os.urandom(PAYLOAD // 2).hex()
    slots = threading.BoundedSemaphore(_AT_ONCE)
    doubts = threading.BoundedSemaphore(_DOUBTS)  # each is taken once, and never given back

    def work(task: MeshTask) -> MeshResult:
        time.sleep(task.after)
        with slots:
            started = time.monotonic()
            result = _try_patiently(task, key, attempt, data)
            if result.silent and doubts.acquire(blocking=False):
                again = [lambda: _try(task, key, attempt, data, _AGAIN_SECONDS)] * _AGAIN
                result = _combine(result, _all_at_once(again))
            seconds = time.monotonic() - started
        path = (task.peer, task.address, task.port, task.what)
        rtt, mtu = result.link
        return MeshResult(node, *path, result.outcome, result.detail, seconds, rtt or None, mtu or None)

    return _all_at_once([lambda task=task: work(task) for task in tasks])  # type: ignore[misc]


def _all_at_once(works: list[Callable[[], T]]) -> list[T]:
    """Return the results of all works, in their order."""
    results: dict[int, T] = {}

    def work(index: int) -> None:
        results[index] = works[index]()

    for task in [Task(work, index) for index in range(len(works))]:
        task.join()
    return [results[index] for index in sorted(results)]


def _combine(first: _Try, again: list[_Try]) -> _Try:
    """Return the result of several tries of one path. A path is closed only if every try fails."""
    tries = [first, *again]
    failed = sum(each.outcome != "ok" for each in tries)
    if failed < len(tries):
        link = next(each.link for each in tries if each.outcome == "ok")
        return _Try("ok", f"packets are lost, {failed} of {len(tries)} tries failed", link=link)
    partly = [each for each in tries if each.met]
    if any(each.moved for each in partly) or (partly and len(partly) < len(tries)):
        return _Try("lossy", f"none of {len(tries)} tries came through whole, {len(partly)} did in part")
    return first


def _try_patiently(task: MeshTask, key: bytes, attempt: int, data: str) -> _Try:
    """Try the path. While the network refuses it, try again for at most SECONDS."""
    started = time.monotonic()
    first = result = _try(task, key, attempt, data, SECONDS)
    while result.outcome in _ANSWERED and time.monotonic() - started + _PAUSE < SECONDS:
        time.sleep(_PAUSE)
        result = _try(task, key, attempt, data, _AGAIN_SECONDS)
        if result.outcome == "ok":
            how = f"{first.outcome} for {time.monotonic() - started:.1f} s before it was open"
            return result._replace(detail=how)
    return first


def _try(task: MeshTask, key: bytes, attempt: int, data: str, seconds: float) -> _Try:
    """Try the path once. `seconds`: to connect, and again for the payload."""
    try:
        channel = Channel.connect(task.address, task.port, key, attempt, time.monotonic() + seconds)
    except UnreachableError as error:
        outcome = _OUTCOMES.get(error.kind, "unreachable")
        return _Try(outcome, error.detail, silent=outcome == "timeout")
    except StrangerError as error:
        greeting = error.greeting or ask(task.address, task.port, _GREETING_SECONDS)
        if not error.greeting and greeting.startswith(OURS):
            return _Try("stalled", "it answers, and too late", silent=True, met=True)
        return _Try(
            "shared" if is_job(greeting) else "stranger",
            describe(greeting) or str(error),
            silent=not greeting,
        )
    except RefusedError as error:
        return _Try("shared" if error.why == "key" else "stranger", str(error))
    except ProtocolError as error:
        return _Try("reset", str(error))
    try:
        channel.send(*Payload(data).pack(), seconds)
        answer = channel.receive(seconds)
        moved, link = channel.acknowledged > _MOVED, channel.link()
    except LostError as error:
        if "does not read" not in str(error):
            return _Try("reset", str(error))
        return _Try("stalled", str(error), silent=True, met=True, moved=channel.acknowledged > _MOVED)
    finally:
        channel.close()
    if answer is None:
        detail = f"{PAYLOAD // 1024} kB were sent and no answer came"
        return _Try("stalled", detail, silent=True, met=True, moved=moved, link=link)
    if answer != Digest(digest(data)).pack():
        return _Try("reset", "what came through was not what was sent")
    return _Try("ok", link=link)


# --- answers

PATIENCE = 5.0
"""Seconds a peer may take for each of its messages."""
_CLOSED = (errno.EINVAL, errno.EBADF)
"""Errors of accept(2) for a listener that was closed."""
_FULL = 0.1
"""Seconds until the next try where no more connections may be opened."""


class Responder:
    """Answers on each socket given to `listen`, until `close`. Each connection has a thread."""

    def __init__(self, key: bytes, attempt: int, job: str = "") -> None:
        self._key = key
        self._job = job
        self._attempt = attempt
        self._slots = threading.BoundedSemaphore(_AT_ONCE)
        self._threads: dict[socket.socket, threading.Thread] = {}

    def listen(self, listener: socket.socket) -> None:
        """Take over `listener`, which listens already. Where no more threads may be started, none answers."""
        thread = threading.Thread(target=self._accept, args=(listener,), daemon=True)
        with contextlib.suppress(RuntimeError):  # the gate's check `threads` reports that
            thread.start()
            self._threads[listener] = thread

    def close(self, listener: socket.socket) -> None:
        """Stop listening. On return another process can bind the port."""
        thread = self._threads.pop(listener, None)
        if thread is not None:
            with contextlib.suppress(OSError):
                # close() alone leaves accept() waiting, and the port held.
                listener.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE)
        listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except ConnectionError:
                continue  # the peer was gone before we looked
            except OSError as error:
                if error.errno in _CLOSED:
                    return
                time.sleep(_FULL)  # no file descriptors, say; later there may be some
                continue
            self._slots.acquire()
            Task(self._answer, connection)

    def _answer(self, connection: socket.socket) -> None:
        try:
            channel = Channel.accept(
                connection, self._key, self._attempt, time.monotonic() + PATIENCE, self._job
            )
            try:
                received = channel.receive(PATIENCE)
                payload = None if received is None else messages.load(*received, Way.PEER_TO_PEER)
                if isinstance(payload, Payload):
                    channel.send(*Digest(digest(payload.data)).pack(), PATIENCE)
                channel.receive(PATIENCE)  # the peer closes first: its port, not ours, stays in TIME_WAIT
            finally:
                channel.close()
        except (ProtocolError, OSError, ContractError):
            pass  # the peer reports it
        finally:
            self._slots.release()


def digest(data: str) -> str:
    """Return the answer for `data`: its SHA-256 in hex."""
    return hashlib.sha256(data.encode()).hexdigest()
