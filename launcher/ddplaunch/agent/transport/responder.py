"""Answers the probes of peers, which proves that packets of every size reach this node."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import socket
import threading
import time

from ddplaunch.agent.transport.protocol import Channel, ProtocolError

PATIENCE = 5.0
"""Seconds a peer may take for each of its messages."""
_CLOSED = (errno.EINVAL, errno.EBADF)
"""What accept(2) gives for a listener that was closed."""
_PAUSE = 0.1
_AT_ONCE = 256
"""Probes answered at the same time; more wait in the kernel's queue."""


class Responder:
    """Listens wherever `listen` was called, until `close`. A thread for each peer: they come once."""

    def __init__(self, key: bytes, attempt: int, job: str = "") -> None:
        self._key = key
        self._job = job
        self._attempt = attempt
        self._slots = threading.BoundedSemaphore(_AT_ONCE)
        self._threads: dict[socket.socket, threading.Thread] = {}

    def listen(self, listener: socket.socket) -> None:
        """Take over `listener`, which listens already."""
        thread = threading.Thread(target=self._accept, args=(listener,), daemon=True)
        self._threads[listener] = thread
        thread.start()

    def close(self, listener: socket.socket) -> None:
        """When this returns, the port can be bound by somebody else."""
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
                time.sleep(_PAUSE)  # no more files, say; the next one may come when there are
                continue
            self._slots.acquire()
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        try:
            channel = Channel.accept(
                connection, self._key, self._attempt, time.monotonic() + PATIENCE, self._job
            )
            try:
                message = channel.receive(PATIENCE)
                if message is not None and message[0] == "payload":
                    channel.send("digest", {"digest": digest(str(message[1].get("data")))}, PATIENCE)
                channel.receive(PATIENCE)  # the peer hangs up first: his port, not ours, stays in TIME_WAIT
            finally:
                channel.close()
        except (ProtocolError, OSError):
            pass  # whatever it was, the peer reports it
        finally:
            self._slots.release()


def digest(data: str) -> str:
    """Return what a peer gets back for `data`."""
    return hashlib.sha256(data.encode()).hexdigest()
