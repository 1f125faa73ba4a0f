"""Node 0 gives the job's key to the same user's processes on other nodes, authenticated by MUNGE.

A credential of MUNGE proves to any machine of the cluster which user has made it, and can be encrypted for
one user. A node sends one as its request; node 0 answers with one that has the key, encrypted for its own
user. So another user cannot open the answer, and cannot make one in node 0's place. A nonce ties the answer
to the request.

One connection: a line {credential of {"ask": job, "nonce": …}}, answered by {credential of {"key", "nonce"}}.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from typing import Any, Callable, Optional

from ddplaunch.agent.checks.port import in_use
from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.diagnosis.gate.hub_unreached import ANOTHER_GATE_PORT, unreached
from ddplaunch.agent.join.spot import CannotJoinError, Spot
from ddplaunch.agent.platforms import slurm
from ddplaunch.agent.platforms.holder import holder_of_port
from ddplaunch.agent.system import ports
from ddplaunch.agent.system.resolve import UnansweredNameError, UnknownNameError, resolve
from ddplaunch.agent.transport.endpoints import Endpoint
from ddplaunch.agent.transport.protocol import UnreachableError, dial

_EXCHANGE = 10.0
"""Seconds for one request and its answer."""
_CALL = 5.0
"""Seconds for one try to connect."""
_LIMIT = 16 * 1024
_AT_ONCE = 16
_PAUSE = 0.5
_LOG_EVERY = 5.0
_RESOLVE = 1.0
_TOOLS = ("munge", "unmunge")


class NoKeyError(Exception):
    """The key does not pass from node 0 to the others; `verdict` has the reason."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.sentence)
        self.verdict = verdict


class MungeError(Exception):
    """MUNGE made or opened no credential; the message is its own."""


def is_there() -> bool:
    """Whether this machine has MUNGE's programs."""
    return all(shutil.which(tool) for tool in _TOOLS)


def check_port(port: int) -> None:
    """Refuse a port on which `serve` cannot listen. Raises CannotJoinError, NoKeyError."""
    try:
        ports.listen(None, port).close()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise CannotJoinError(
                f"node 0 cannot hand out the key on port {port}: {error.strerror}", ANOTHER_GATE_PORT
            ) from error
        taken = in_use("key", port, holder_of_port(port))
        sentence = f"node 0: {taken.observed}; the other nodes ask for the key there"
        raise NoKeyError(Verdict(taken.code, sentence, "gate", nodes=[0], hint=ANOTHER_GATE_PORT)) from error


def serve(port: int, job: str, key: str, log: Callable[[str], None]) -> None:
    """Answer requests for `key` for as long as this process lives. Raises OSError when it cannot listen."""
    turns = threading.BoundedSemaphore(_AT_ONCE)
    place = slurm.munge_socket(_EXCHANGE)

    def answer(connection: socket.socket, peer: str) -> None:
        try:
            with connection:
                _answer(connection, job, key, place)
        except (MungeError, OSError, ValueError) as error:
            log(f"no key for {peer}: {error}")
        finally:
            turns.release()

    with ports.listen(None, port) as listener:
        while True:
            turns.acquire()
            connection, peer = listener.accept()
            threading.Thread(target=answer, args=(connection, str(peer[0])), daemon=True).start()


def ask(spot: Spot, port: int, seconds: float, log: Callable[[str], None]) -> str:
    """Return the key from node 0. Raises CannotJoinError, NoKeyError."""
    begun = logged = time.monotonic()
    place = slurm.munge_socket(_EXCHANGE)
    while True:
        now = time.monotonic()
        try:
            # Never cut short by the end: a try without time would fail for the wrong reason.
            connection = dial(spot.master, port, now + _CALL)
        except UnreachableError as error:
            if now - begun > seconds:
                raise NoKeyError(_verdict(spot, port, error, now - begun)) from error
            if now - logged > _LOG_EVERY:
                logged = now
                log(f"waiting for the key from node 0 ({spot.master}), {now - begun:.0f} s: {error.detail}")
            time.sleep(_PAUSE)
            continue
        try:
            with connection:
                return _request(connection, spot.occasion, place)
        except (MungeError, OSError, ValueError) as error:
            raise CannotJoinError(
                f"this node cannot join: node 0 ({spot.master}) gave no key on port {port}: {error}",
                "`munge -n | unmunge` on both nodes shows whether MUNGE works there; start both as the same "
                "user; another program on that port: give all nodes another --gate-port",
            ) from error


def _request(connection: socket.socket, job: str, place: Optional[str]) -> str:
    nonce = os.urandom(16).hex()
    connection.settimeout(_EXCHANGE)
    connection.sendall(_sealed({"ask": job, "nonce": nonce}, place))
    answer = _opened(_line(connection), place)
    if answer.get("nonce") != nonce or not isinstance(answer.get("key"), str):
        raise ValueError("its answer is not to this request")
    return str(answer["key"])


def _answer(connection: socket.socket, job: str, key: str, place: Optional[str]) -> None:
    connection.settimeout(_EXCHANGE)
    request = _opened(_line(connection), place)
    if request.get("ask") != job:
        raise ValueError(f"it is a process of another job, {request.get('ask')!r}")
    connection.sendall(_sealed({"key": key, "nonce": request.get("nonce")}, place))


def _line(connection: socket.socket) -> bytes:
    deadline = time.monotonic() + _EXCHANGE
    data = b""
    while not data.endswith(b"\n"):
        more = connection.recv(_LIMIT)
        data += more
        if not more or len(data) > _LIMIT or time.monotonic() > deadline:
            raise ValueError("it closed the connection, or sent no credential")
    return data


# -------------------------------------------------------------------- credentials


def _sealed(body: dict[str, Any], place: Optional[str]) -> bytes:
    """Return a credential that only processes of our own user can open, as a line. Raises MungeError."""
    restrict = f"--restrict-uid={os.geteuid()}"
    return _run(["munge", restrict], json.dumps(body).encode(), place).strip() + b"\n"


def _opened(credential: bytes, place: Optional[str]) -> dict[str, Any]:
    """Return the body of a credential of our own user. Raises MungeError, ValueError."""
    shown = _run(["unmunge"], credential, place)
    head, _, payload = shown.partition(b"\n\n")
    user = re.search(rb"^UID:.*\((\d+)\)$", head, re.MULTILINE)
    if user is None or int(user[1]) != os.geteuid():
        raise ValueError(
            f"it is a process of user {user[1].decode() if user else '?'}, not of {os.geteuid()}"
        )
    try:
        body = json.loads(payload)
    except RecursionError:
        return {}
    return body if isinstance(body, dict) else {}


def _run(words: list[str], data: bytes, place: Optional[str]) -> bytes:
    where = [f"--socket={place}"] if place else []
    try:
        done = subprocess.run([*words, *where], input=data, capture_output=True, timeout=_EXCHANGE)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MungeError(f"{words[0]}: {error}") from error
    if done.returncode != 0:
        raise MungeError(done.stderr.decode(errors="replace").strip() or f"{words[0]}: {done.returncode}")
    return done.stdout


def _verdict(spot: Spot, port: int, error: UnreachableError, seconds: float) -> Verdict:
    try:
        addresses = resolve(spot.master, time.monotonic() + _RESOLVE)
    except (UnknownNameError, UnansweredNameError):
        addresses = []
    return unreached(
        spot.node, Endpoint(spot.master, port), addresses, error.kind, error.detail, seconds, spot.names
    )
