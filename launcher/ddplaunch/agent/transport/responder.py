"""Answers peers' probes, which proves that packets of every size reach this node. The gate runs it."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import socket
import threading
import time

from ddplaunch.agent.contract import messages
from ddplaunch.agent.contract.codec import ContractError
from ddplaunch.agent.contract.messages import Digest, Payload, Way
from ddplaunch.agent.system.background import Task
from ddplaunch.agent.transport.protocol import Channel, ProtocolError

PATIENCE = 5.0
"""Seconds that a peer may take for each of its messages."""
_CLOSED = (errno.EINVAL, errno.EBADF)
"""Errors from accept(2) when the listener has been closed."""
_PAUSE = 0.1
_AT_ONCE = 256
"""Probes to answer at the same time. More wait in the kernel's queue."""


class Responder:
    """Answers on each socket that is given to `listen`, until `close`. Each connection has a thread."""

    def __init__(self, key: bytes, attempt: int, job: str = "") -> None:
        self._key = key
        self._job = job
        self._attempt = attempt
        self._slots = threading.BoundedSemaphore(_AT_ONCE)
        self._threads: dict[socket.socket, threading.Thread] = {}

    def listen(self, listener: socket.socket) -> None:
        """Take over `listener`, which is listening already. If no more threads may be started, nothing
        answers.
        """
        thread = threading.Thread(target=self._accept, args=(listener,), daemon=True)
        with contextlib.suppress(RuntimeError):  # the gate's check `threads` will report that
            thread.start()
            self._threads[listener] = thread

    def close(self, listener: socket.socket) -> None:
        """Stop listening. On return another process can bind the port."""
        thread = self._threads.pop(listener, None)
        if thread is not None:
            with contextlib.suppress(OSError):
                # close() alone would leave accept() waiting, and the port held.
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
                time.sleep(_PAUSE)  # no file descriptors, for example; later there may be some
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
            pass  # the peer will report it
        finally:
            self._slots.release()


def digest(data: str) -> str:
    """Return the answer for `data`: its SHA-256 in hex."""
    return hashlib.sha256(data.encode()).hexdigest()
