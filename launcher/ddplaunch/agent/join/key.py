"""The job's shared secret, for nodes that are started by hand.

The key is given (DDPLAUNCH_KEY, --key-file), or made for this run and sent from node 0 to the others through
MUNGE, which every Slurm has, or read from a file in the user's home folder. A node without a key does not
join: a hub without one would obey strangers.

A MUNGE credential proves to any machine of the cluster which user made it, and can be encrypted for one user.
A node sends one as its request. Node 0 answers with one that has the key, encrypted for its own user. So
another user can neither open the answer nor make one in node 0's place. A nonce ties the answer to the
request. One connection: a line {credential of {"ask": job, "nonce": …}}, answered by {credential of {"key",
"nonce"}}.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple, Optional

from ddplaunch.agent.checks.port import in_use
from ddplaunch.agent.contract import Env, Verdict
from ddplaunch.agent.diagnosis.gate.hub_unreached import ANOTHER_GATE_PORT, unreached
from ddplaunch.agent.join.spot import CannotJoinError, Spot
from ddplaunch.agent.platforms import scheduler_variables, slurm
from ddplaunch.agent.platforms.holder import holder_of_port
from ddplaunch.agent.system import ports
from ddplaunch.agent.system.resolve import UnansweredNameError, UnknownNameError, resolve
from ddplaunch.agent.transport.endpoints import Endpoint
from ddplaunch.agent.transport.protocol import UnreachableError, dial

_SHORTEST = 16
"""Characters. A shorter key can be guessed from recorded traffic."""
_MAKE = "head -c 32 /dev/urandom | base64"


class Key(NamedTuple):
    secret: str
    port: Optional[int] = None  # node 0's key server's; None: the other nodes have the key


def obtain(
    spot: Spot,
    file: Optional[str],
    port: int,
    environment: Mapping[str, str],
    seconds: float,
    log: Callable[[str], None],
) -> Key:
    """Return the job's key, the same on all nodes. May wait `seconds` for node 0, at its `server_port`.

    Raises CannotJoinError, or NoKeyError if the key cannot get from node 0 to the others.
    """
    given = environment.get(Env.KEY)
    if given is not None:
        return Key(_of_job(_checked(given, Env.KEY), spot))
    if file is not None:
        return Key(_of_job(_checked(read(file), file), spot))
    if spot.nodes == 1:
        return Key(os.urandom(32).hex())
    if scheduler_variables.is_slurms(environment) and has_munge():
        if spot.node == 0:
            check_key_port(port)
            return Key(os.urandom(32).hex(), port)
        return Key(ask_node_zero(spot, port, seconds, log))
    home = home_file(environment)
    if os.path.exists(home):
        return Key(_of_job(_checked(read(home), home), spot))
    raise CannotJoinError(
        f"this node cannot join without a key: there is no {Env.KEY}, no --key-file and no {home}",
        f"make one with `(umask 077; mkdir -p {os.path.dirname(home)}; {_MAKE} > {home})` on one node, and "
        f"copy it to the others unless they share the folder; or give all nodes the same {Env.KEY}",
    )


def home_file(environment: Mapping[str, str]) -> str:
    """Return the path of the user's key, which is for all jobs."""
    config = environment.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(config, "ddplaunch", "key")


def server_port(spot: Spot, gate_port: Optional[int], hub_port: int) -> int:
    """Return node 0's port for the key: the one after the hub's if that is set, otherwise one by job and
    user.
    """
    if gate_port is not None:
        return gate_port + 1
    seed = f"ddplaunch key {os.geteuid()} {spot.occasion} {spot.attempt}"
    # One job in 23000 would also have its hub there.
    return next(port for port in ports.sequence(seed.encode(), ports.EPHEMERAL) if port != hub_port)


def read(path: str) -> str:
    """Return the key from a file that only its user can read, as ssh requires. Raises CannotJoinError."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            status = os.fstat(file.fileno())
            text = file.read(4096)
    except OSError as error:
        raise CannotJoinError(
            f"this node cannot join: the key in {path} cannot be read: {error.strerror}",
            "give --key-file a file that exists on every node",
        ) from error
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise CannotJoinError(
            f"this node cannot join: the key in {path} is open to other users",
            f"`chown {os.geteuid()} {path}; chmod 600 {path}`; make a new key if somebody may have read it",
        )
    return text.strip()


def _checked(key: str, source: str) -> str:
    if len(key) < _SHORTEST:
        raise CannotJoinError(
            f"this node cannot join: the key of {source} has {len(key)} characters, wanted {_SHORTEST}",
            f"`{_MAKE}` prints a good key",
        )
    return key


def _of_job(key: str, spot: Spot) -> str:
    """Return a key for this job alone, so that two jobs with the same key do not meet."""
    return hmac.new(key.encode(), f"join {spot.occasion}".encode(), hashlib.sha256).hexdigest()


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
    """The key does not get from node 0 to the others. `verdict` has the reason."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.sentence)
        self.verdict = verdict


class MungeError(Exception):
    """MUNGE made or opened no credential. The message is MUNGE's own."""


def has_munge() -> bool:
    """Whether this machine has MUNGE's programs."""
    return all(shutil.which(tool) for tool in _TOOLS)


def check_key_port(port: int) -> None:
    """Refuse a port on which `serve_key` cannot listen. Raises CannotJoinError and NoKeyError."""
    try:
        ports.listen(None, port).close()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise CannotJoinError(
                f"node 0 cannot hand out the key on port {port}: {error.strerror}", ANOTHER_GATE_PORT
            ) from error
        taken = in_use("key", port, holder_of_port(port))
        sentence = f"node 0: {taken.observed}; the other nodes ask for the key there"
        raise NoKeyError(
            Verdict.of(taken.code, sentence, "gate", nodes=[0], hint=ANOTHER_GATE_PORT)
        ) from error


def serve_key(port: int, job: str, key: str, log: Callable[[str], None]) -> None:
    """Answer requests for `key` as long as this process lives. Raises OSError if it cannot listen."""
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


def ask_node_zero(spot: Spot, port: int, seconds: float, log: Callable[[str], None]) -> str:
    """Return the key from node 0. Raises CannotJoinError and NoKeyError."""
    begun = logged = time.monotonic()
    place = slurm.munge_socket(_EXCHANGE)
    while True:
        now = time.monotonic()
        try:
            # The end must not cut this short: a try without time would fail for the wrong reason.
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
        raise ValueError("it answered another request")
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
    """Return, as a line, a credential that only processes of our own user can open. Raises MungeError."""
    restrict = f"--restrict-uid={os.geteuid()}"
    return _run(["munge", restrict], json.dumps(body).encode(), place).strip() + b"\n"


def _opened(credential: bytes, place: Optional[str]) -> dict[str, Any]:
    """Return the body of a credential from our own user. Raises MungeError and ValueError."""
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
