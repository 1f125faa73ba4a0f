"""The hub's process, from its socket to its last output, which is the verdict and the bundle."""

from __future__ import annotations

import asyncio
import base64
import errno
import os
import resource
import socket
import time
import zlib
from collections.abc import Sequence
from typing import Callable, NamedTuple, Optional

from ddplaunch.agent import platforms
from ddplaunch.agent.checks.port import in_use
from ddplaunch.agent.contract import Exit, Files, JobPlan, Verdict, codec
from ddplaunch.agent.diagnosis import verdict_text
from ddplaunch.agent.diagnosis.gate.hub_unreached import ANOTHER_GATE_PORT
from ddplaunch.agent.hub import parent, recovery
from ddplaunch.agent.hub.gate_session import GateSession
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.run_session import RunSession
from ddplaunch.agent.hub.server import TICK, MessageHandler, Server, Session
from ddplaunch.agent.hub.sidecar import Orders, bury_children
from ddplaunch.agent.platforms import physical_host, termination
from ddplaunch.agent.platforms.holder import holder_of_port
from ddplaunch.agent.system import ports
from ddplaunch.agent.system.resolve import UnansweredNameError, UnknownNameError, resolve
from ddplaunch.agent.transport import endpoints
from ddplaunch.agent.transport.endpoints import Endpoint
from ddplaunch.agent.transport.protocol import Body

BEGIN = "-----BEGIN DDPLAUNCH BUNDLE-----"
END = "-----END DDPLAUNCH BUNDLE-----"
_DRAIN = 2.0
"""Seconds for clients to read the last messages."""
LAST = 35.0
"""Seconds, in a pod, from being told to end to our last words, whoever has not ended by then: with the time
that node 0's supervisor took before us, it stays within the pod's grace period."""
_COLUMNS = 120
_LOCAL = "127.0.0.1"
_HELD = 4.0
"""Seconds for whoever holds our port, say the hub of an earlier attempt, to let go of it."""
_PAUSE = 0.2
_RESOLVE = 1.0
_FILES = 65536
"""Open files, as far as the system lets us."""
_OPEN_FILES = "raise the limit of open files on that node: /etc/security/limits.conf, or of its container"
_OWN_FILES = 64
"""Of these for the hub itself, and for those who ask it how the job stands."""


class ListenAddress(NamedTuple):
    """Address on which the hub listens, and the name under which others reach it."""

    host: Optional[str] = None  # None: on all addresses
    port: Optional[int] = None  # None: the first free one of the job's own sequence
    name: Optional[str] = None  # by which other machines know this one


def main(
    plan: JobPlan,
    folder: str,
    attempt: int,
    key: bytes,
    place: ListenAddress,
    gate_only: bool = False,
    again: bool = False,
) -> int:
    """Serve the job until it is over. Returns its exit code (`contract.Exit`).

    `again`: another hub was killed together with its parent, and what it knew is in the folder.

    Where it listens is in `Files.HUB`, and how others reach it in `Files.HUB_ADDRESS`. In a container it is
    over only when we are told so, and then went well, however the job did.
    """
    orders = Orders()
    in_container = termination.wanted()
    # A container is always started again whole, and finds the folder as it was.
    left = recovery.left(plan, folder, attempt) if in_container or again else None
    record = JobRecord(plan, folder, attempt)
    files = _raise_file_limit()
    if files < plan.nodes + _OWN_FILES:
        _too_few_files(record, files)
    else:
        try:
            listener = _listen(record, attempt, key, place)
        except OSError as error:
            _cannot_listen(record, place.port, error)
        else:
            serving = Serving(plan, record, listener, files - _OWN_FILES, attempt, key, place, gate_only)

            def hub(alive: Callable[[], None], again: bool) -> int:
                found = recovery.left(plan, folder, attempt) if again else left
                asyncio.run(serving.run(orders, found, alive))
                return _last_words(record)

            with listener:
                code = parent.keep(hub, orders)
            return _stay(orders) if in_container else code
    code = _last_words(record)
    return _stay(orders) if in_container else code


def _stay(orders: Orders) -> int:
    """Keep the container alive until a signal ends it. Returns Exit.OK."""
    bury_children()
    orders.wait()
    return Exit.OK


class Serving(NamedTuple):
    """State that a hub process needs to serve: the same for the first one and for its replacements."""

    plan: JobPlan
    record: JobRecord
    listener: socket.socket
    connections: int
    attempt: int
    key: bytes
    place: ListenAddress
    gate_only: bool

    async def run(self, orders: Orders, left: Optional[recovery.Left], alive: Callable[[], None]) -> None:
        """Serve until the job is over. `left`: state of an earlier hub; `alive` is called at every tick."""
        plan, record = self.plan, self.record
        gates, run = GateSession(plan, record, self.gate_only), RunSession(plan, record)
        server = Server(
            self.key,
            self.attempt,
            (gates, run, ControlHandler(record, (gates, run))),
            record.say,
            nodes=plan.nodes,
            connections=self.connections,
            job=plan.job,
            refused=record.refused,
        )
        stopper = asyncio.get_running_loop().create_task(_obey(orders, server, run, record))
        port = ports.number(self.listener)
        where = [Endpoint(each, port) for each in _places(self.place)]
        shown = where[0].host
        size = f"{plan.nodes} node{'s' * (plan.nodes > 1)}"
        if left is not None:
            recovery.restore(record, left)
            gates.resume()
            run.resume()
        back = " again" if left is not None else ""
        record.event("phase", f"the hub of {plan.job} listens{back} on {shown} port {port}, for {size}")
        try:
            codec.replace(record.path(Files.HUB_ADDRESS), endpoints.spell(where) + "\n")
            codec.write(record.path(Files.HUB), {"host": shown, "port": port, "pid": os.getpid()})
        except OSError as error:
            if left is None:
                _cannot_tell_where(record, error)
                return

        def over() -> bool:
            alive()
            record.flush(patient=True)
            return record.exit_code is not None

        await server.serve(self.listener, over)
        await server.drain(_DRAIN)
        stopper.cancel()


async def _obey(orders: Orders, server: Server, run: RunSession, record: JobRecord) -> None:
    """Let the sessions end the job, in a pod within limits. Evidence comes first, however often asked."""
    while not orders.given:
        await asyncio.sleep(TICK)
    await server.stop("SIGTERM")
    told = time.monotonic()
    while not (termination.wanted() and time.monotonic() > told + LAST):
        await asyncio.sleep(2 * TICK)  # the sessions' own word comes first
        if not server.sessions and not run.deliberates:
            break  # nobody is there who could still say something
    record.end(Exit.STOPPED if run.exit_code is None else run.exit_code)


def _places(place: ListenAddress) -> list[str]:
    """Under which names and addresses others may reach this machine, in the order in which to try them."""
    if place.host not in (None, "", "0.0.0.0", "::"):
        return [place.host]
    if place.name is None:
        return [_LOCAL]
    try:
        known = resolve(place.name, time.monotonic() + _RESOLVE)
    except (UnknownNameError, UnansweredNameError):
        known = []
    # What the name leads to, before the bridges of containers, which other machines have as well.
    own = sorted(endpoints.own(), key=lambda address: address not in known)
    return list(dict.fromkeys([place.name, *own]))


class ControlHandler:
    """Anybody of the job may ask how it stands, and have it stopped."""

    kinds = frozenset({"status", "stop"})

    def __init__(self, record: JobRecord, handlers: Sequence[MessageHandler]) -> None:
        self._record = record
        self._handlers = handlers

    async def received(self, session: Session, kind: str, body: Body) -> None:
        if kind == "status":
            session.send("status", codec.dump(self._record.status()))
            return
        for handler in self._handlers:
            await handler.stop(str(body.get("why", "")))

    async def lost(self, session: Session) -> None:
        """Nothing to remember."""

    async def tick(self, now: float) -> None:
        """Nothing to do."""

    async def stop(self, why: str) -> None:
        """Nothing to end."""


def _listen(record: JobRecord, attempt: int, key: bytes, place: ListenAddress) -> socket.socket:
    """Raises OSError when nothing is free, or the port that it must be is held for too long."""
    if place.port is None:
        return ports.first_free(place.host, record.plan.job, attempt, key, "hub")
    begun, announced = time.monotonic(), False
    while True:
        try:
            return ports.listen(place.host, place.port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() - begun > _HELD:
                raise
        if not announced:
            announced, holder = True, holder_of_port(place.port)
            by = f", held by {holder.text}" if holder else ""
            record.event("waiting", f"waiting for port {place.port}{by}")
        time.sleep(_PAUSE)


def _cannot_listen(record: JobRecord, port: Optional[int], error: OSError) -> None:
    """The verdict of a hub that nobody will ever reach: node 0's alone, and the whole job's."""
    if error.errno == errno.EADDRINUSE and port is not None:
        result = in_use("hub", port, holder_of_port(port))
        verdict = Verdict(
            result.code,
            f"node 0: {result.observed}; the gate needs it",
            "gate",
            nodes=[0],
            facts=[f"{name}: {value}" for name, value in result.facts.get("holder", {}).items() if value],
            hint=ANOTHER_GATE_PORT
            if record.plan.gate.joined
            else result.hint.replace("leave it out", "leave gate.port out"),
        )
    else:
        verdict = Verdict(
            "host-unreachable",
            f"node 0: the hub cannot listen on {f'port {port}' if port else 'any port'}: {error.strerror}",
            "gate",
            nodes=[0],
            hint="the address given to the hub must be one of node 0's own",
        )
    _give_up(record, verdict)


def _cannot_tell_where(record: JobRecord, error: OSError) -> None:
    """The verdict of a hub that nobody would find."""
    verdict = Verdict(
        "disk-full",
        f"node 0: the hub cannot write {record.path(Files.HUB_ADDRESS)}: {error.strerror}",
        "gate",
        nodes=[0],
        hint="`df -h` and `df -i` of that folder on node 0: make room there, or give the job another folder",
    )
    _give_up(record, verdict)


def _give_up(record: JobRecord, verdict: Verdict) -> None:
    record.event("verdict", f"{verdict.code}: {verdict.sentence}", 0)
    record.judge([verdict])
    record.end(Exit.NODE_AT_FAULT)


def _last_words(record: JobRecord) -> int:
    """The verdict for people; then the bundle, so that it can be had from a finished pod's log.

    Returns the job's exit code.
    """
    assert record.exit_code is not None
    termination.write(record.exit_code or Exit.OK, record.verdicts)
    if record.verdicts:
        names = physical_host.names(record.plan.names, physical_host.known(record.nodes.values()))
        record.say("\n".join(verdict_text.block(record.verdicts, True, names)))
    record.event("end", f"the job has ended with exit code {record.exit_code}")
    data = codec.text(record.save()).encode()
    text = base64.b64encode(zlib.compress(data, 9)).decode()
    lines = [text[start : start + _COLUMNS] for start in range(0, len(text), _COLUMNS)]
    record.say("\n".join([BEGIN, *lines, END]))
    record.close()
    return record.exit_code


def _raise_file_limit() -> int:
    """One connection per node; the usual soft limit of 1024 would end a job of 1000 nodes. What it is now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return _FILES if soft == resource.RLIM_INFINITY else soft


def _too_few_files(record: JobRecord, files: int) -> None:
    """The verdict of a hub that could not hear all of its nodes; better now than when the last ones come."""
    nodes = record.plan.nodes
    verdict = Verdict(
        "files-too-few",
        f"node 0: the hub may open {files} files, and needs {nodes + _OWN_FILES} for {nodes} nodes",
        "gate",
        nodes=[0],
        facts=["`ulimit -Hn` gives the limit that a process cannot raise by itself"],
        hint=platforms.named(record.plan.platform).hint("open-files", _OPEN_FILES),
    )
    _give_up(record, verdict)
