"""The hub's process, from its socket to its last output: the verdict and the bundle.

`agent.cli` starts it on node 0 through `process`. It makes the record, the server and the sessions, and
decides nothing about the job itself.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
import time
from collections.abc import Sequence
from functools import partial
from typing import Callable, NamedTuple, Optional

from ddplaunch.agent import platforms
from ddplaunch.agent.checks.port import in_use
from ddplaunch.agent.contract import (
    REGROUP,
    Exit,
    Files,
    JobPlan,
    Marks,
    Occasion,
    Verdict,
    bundle_file,
    codec,
)
from ddplaunch.agent.contract.messages import AskStatus, Message, StatusAnswer, Stop
from ddplaunch.agent.diagnosis import catalogue, verdict_text
from ddplaunch.agent.diagnosis.gate.hub_unreached import ANOTHER_GATE_PORT
from ddplaunch.agent.hub import process, recovery
from ddplaunch.agent.hub.gate import GateSession
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.membership import Newcomers
from ddplaunch.agent.hub.metrics import Exporter
from ddplaunch.agent.hub.notify import Notifier
from ddplaunch.agent.hub.process import StopSignals, reap_children
from ddplaunch.agent.hub.run import RunSession, RunState
from ddplaunch.agent.hub.server import TICK, MessageHandler, Server, Session
from ddplaunch.agent.platforms import places, termination
from ddplaunch.agent.platforms.holder import holder_of_port
from ddplaunch.agent.platforms.places import handle
from ddplaunch.agent.system import phrases, ports
from ddplaunch.agent.system.resolve import UnansweredNameError, UnknownNameError, resolve
from ddplaunch.agent.text.quantities import count
from ddplaunch.agent.transport import endpoints
from ddplaunch.agent.transport.endpoints import Endpoint

_DRAIN = 2.0
"""Seconds that clients have to read the last messages."""
LAST = 35.0
"""Seconds, in a pod, from SIGTERM to our last output, even if nodes have not ended by then. Together with the
time that node 0's supervisor takes before, this stays within the pod's grace period."""
_COLUMNS = 120
_PRINTED_DUMPS = 1 << 20
"""Bytes of flight recorders in the log: a machine keeps ten megabytes of a container's log."""
_LOCAL = "127.0.0.1"
_HELD = 4.0
"""Seconds to wait for a port that is held: its holder, such as the hub of an earlier attempt, may be about to
end."""
_PAUSE = 0.2
_RESOLVE = 1.0
_FILES = 65536
"""Open files to ask for, as far as the system allows."""
_OPEN_FILES = "raise the limit of open files on that node: /etc/security/limits.conf, or of its container"
_OWN_FILES = 32
"""Open files for the hub itself and for commands that ask for the job's status."""


class ListenAddress(NamedTuple):
    """The address on which the hub listens, and the name by which others reach it."""

    host: Optional[str] = None  # None: all addresses
    port: Optional[int] = None  # None: the first free one in the job's own sequence
    name: Optional[str] = None  # the name by which other machines know this one


def main(
    plan: JobPlan,
    folder: str,
    attempt: int,
    key: bytes,
    place: ListenAddress,
    gate_only: bool = False,
    again: bool = False,
    refused: Sequence[Verdict] = (),
) -> int:
    """Serve the job until it is over. Returns its exit code (`contract.Exit`).

    `again`: another hub was killed together with its parent, and what it knew is in the folder. `refused`:
    the verdicts on the job file itself; if there are any, the job is over at once.

    Writes the address on which it listens to `Files.HUB`, and its addresses for others to
    `Files.HUB_ADDRESS`. In a container it returns only after a signal, and then returns Exit.OK, whatever the
    job's exit code is.
    """
    stop = StopSignals()
    in_container = termination.wanted()
    # A container is always restarted as a whole, and finds the folder as it was.
    again = again or in_container
    regroups = recovery.count_regroups(plan, folder, attempt) if again else 0
    left = recovery.read_left(plan, folder, attempt + regroups) if again else None
    record, notifier = _make_record(plan, folder, attempt, regroups)
    files = _raise_file_limit()
    if refused:
        _end(record, refused)
    elif files < plan.nodes + _OWN_FILES:
        _too_few_files(record, files)
    else:
        try:
            listener = _listen(record, attempt, key, place)
        except OSError as error:
            _judge_cannot_listen(record, place.port, error)
        else:
            connections = files - _OWN_FILES
            serving = Serving(plan, record, notifier, listener, connections, attempt, key, place, gate_only)
            with listener:
                while (
                    code := process.run_and_restart(partial(serving.begin, stop, folder, left), stop)
                ) == REGROUP:
                    record, notifier = _make_record(plan, folder, attempt, serving.record.regroups + 1)
                    serving, left = serving._replace(record=record, notifier=notifier), None
            return _wait_for_signal(stop) if in_container else code
    code = _print_result(record, notifier)
    return _wait_for_signal(stop) if in_container else code


def _make_record(plan: JobPlan, folder: str, attempt: int, regroups: int) -> tuple[JobRecord, Notifier]:
    """Return the record of an attempt, and the notifier that tells the user what happens in it."""
    before = recovery.read_status(folder) if regroups else None
    record = JobRecord(plan, folder, attempt, regroups)
    recovery.restore_members(record, before)
    notifier = Notifier(record, handle(plan, folder, os.environ), plan.notify or [])
    record.send_message = notifier.send
    return record, notifier


def _wait_for_signal(stop: StopSignals) -> int:
    """Keep the container alive until a signal ends it, because a sidecar that ends is started again."""
    reap_children()
    stop.wait()
    return Exit.OK


class Serving(NamedTuple):
    """Everything that a hub process needs to serve, whether it is the first one or a replacement."""

    plan: JobPlan
    record: JobRecord
    notifier: Notifier
    listener: socket.socket
    connections: int
    attempt: int
    key: bytes
    place: ListenAddress
    gate_only: bool

    def begin(
        self,
        stop: StopSignals,
        folder: str,
        left: Optional[recovery.Left],
        alive: Callable[[], None],
        again: bool,
    ) -> int:
        """Serve one attempt in this process. Returns its exit code, or REGROUP if another attempt follows."""
        if again:
            left = recovery.read_left(self.plan, folder, self.record.attempt)
        asyncio.run(self.run(stop, left, alive))
        return _print_result(self.record, self.notifier)

    async def run(self, stop: StopSignals, left: Optional[recovery.Left], alive: Callable[[], None]) -> None:
        """Serve until the job is over. `left`: state of an earlier hub; `alive` is called at every tick."""
        plan, record = self.plan, self.record
        run = RunSession(plan, record)
        newcomers = Newcomers(record, run) if plan.newcomers else None
        gates = GateSession(plan, record, self.gate_only, newcomers=newcomers)
        server = Server(
            self.key,
            self.attempt,
            (*filter(None, [newcomers]), gates, run, ControlHandler(record, (gates, run))),
            record.log,
            nodes=plan.nodes,
            connections=self.connections,
            job=plan.job,
            refused=record.refused,
        )
        stopper = asyncio.get_running_loop().create_task(_stop_on_signal(stop, server, run, record))
        port = ports.number(self.listener)
        where = [Endpoint(each, port) for each in _own_places(self.place)]
        shown = where[0].host
        size = count(plan.nodes, "node")
        if left is not None:
            recovery.restore(record, left)
            gates.resume()
            run.resume()
        exporter = Exporter(record, lambda: run.stalls.since_progress(run.clock()))
        await exporter.start()
        back = " again" if left is not None else ""
        record.add_event("phase", f"the hub of {plan.job} listens{back} on {shown} port {port}, for {size}")
        try:
            codec.replace(record.path(Files.HUB_ADDRESS), endpoints.to_text(where) + "\n")
            codec.write(record.path(Files.HUB), {"host": shown, "port": port, "pid": os.getpid()})
        except OSError as error:
            if left is None:
                _judge_cannot_write_address(record, error)
                return

        def over() -> bool:
            alive()
            self.notifier.report()
            record.flush(patient=True)
            return record.exit_code is not None

        await server.serve(self.listener, over, lambda: _is_calm(run))
        await server.drain(_DRAIN)
        exporter.close()
        stopper.cancel()


def _is_calm(run: RunSession) -> bool:
    """Whether all members are training and nothing is due within a second."""
    ends = run.record.finished or run.is_deliberating or run.ending is not None or run.eviction.has_begun
    return run.state == RunState.WATCHING and run.record.members == run.sessions.nodes and not ends


async def _stop_on_signal(stop: StopSignals, server: Server, run: RunSession, record: JobRecord) -> None:
    """At a signal, have the sessions end the job, in a pod within LAST seconds. Evidence comes first."""
    loop, given = asyncio.get_running_loop(), asyncio.Event()
    stop.on_signal = lambda: loop.call_soon_threadsafe(given.set)
    if not stop.given:
        await given.wait()
    # When a whole container is killed, its connection ends just before the signal arrives: read that first.
    await asyncio.sleep(TICK)
    await server.stop("SIGTERM")
    since = time.monotonic()
    while not (termination.wanted() and time.monotonic() > since + LAST):
        await asyncio.sleep(2 * TICK)  # the sessions' own end goes first
        if not server.sessions and not run.is_deliberating:
            break  # no node is left that could send anything
    record.end(Exit.STOPPED if run.closing.exit_code is None else run.closing.exit_code)


def _own_places(place: ListenAddress) -> list[str]:
    """Return the names and addresses at which others may reach this machine, in the order to try them."""
    if place.host not in (None, "", "0.0.0.0", "::"):
        return [place.host]
    if place.name is None:
        return [_LOCAL]
    try:
        known = resolve(place.name, time.monotonic() + _RESOLVE)
    except (UnknownNameError, UnansweredNameError):
        known = []
    # Put the name's addresses before those of container bridges, which other machines have as well.
    own = sorted(endpoints.own_addresses(), key=lambda address: address not in known)
    return list(dict.fromkeys([place.name, *own]))


class ControlHandler:
    """Answers any client that knows the job's key: it tells the job's status, and takes the order to stop."""

    takes = (AskStatus, Stop)

    def __init__(self, record: JobRecord, handlers: Sequence[MessageHandler]) -> None:
        self._record = record
        self._handlers = handlers

    async def received(self, session: Session, message: Message) -> None:
        if isinstance(message, AskStatus):
            session.send(StatusAnswer(self._record.status()))
        elif isinstance(message, Stop):
            for handler in self._handlers:
                await handler.stop(message.why)

    async def lost(self, session: Session) -> None:
        """Do nothing: there is nothing to forget."""

    async def tick(self, now: float) -> None:
        """Do nothing: nothing is due."""

    async def stop(self, why: str) -> None:
        """Do nothing: there is nothing to end."""


def _listen(record: JobRecord, attempt: int, key: bytes, place: ListenAddress) -> socket.socket:
    """Return the hub's socket. Raises OSError if no port is free, or a fixed port is held for too long."""
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
            record.add_event("waiting", f"waiting for port {place.port}{by}")
        time.sleep(_PAUSE)


def _judge_cannot_listen(record: JobRecord, port: Optional[int], error: OSError) -> None:
    """Give the verdict on a hub that cannot listen. It is the whole job's: no node can reach the hub."""
    if error.errno != errno.EADDRINUSE or port is None:
        where = f"port {port}" if port else "any port"
        hint = "the address given to the hub must be one of node 0's own"
        _give_up(record, "host-unreachable", f"the hub cannot listen on {where}: {error.strerror}", hint)
        return
    result = in_use("hub", port, holder_of_port(port), key="gate.port")
    hint = ANOTHER_GATE_PORT if record.plan.gate.joined else result.hint
    facts = [f"{name}: {value}" for name, value in result.facts.get("holder", {}).items() if value]
    _give_up(record, result.code, f"{result.observed}; the gate needs it", hint, facts)


def _judge_cannot_write_address(record: JobRecord, error: OSError) -> None:
    """Give the verdict on a hub that cannot write its address: no node would find it."""
    sentence = f"the hub cannot write {record.path(Files.HUB_ADDRESS)}: {error.strerror}"
    hint = "`df -h` and `df -i` of that folder on node 0: make room there, or give the job another folder"
    _give_up(record, "disk-full", sentence, hint)


def _give_up(record: JobRecord, code: str, sentence: str, hint: str, facts: Sequence[str] = ()) -> None:
    """End the job with one verdict on node 0."""
    _end(record, [Verdict.of(code, f"node 0: {sentence}", "gate", nodes=[0], facts=list(facts), hint=hint)])


def _end(record: JobRecord, verdicts: Sequence[Verdict]) -> None:
    """End the job with `verdicts` before any node has checked in."""
    for verdict in verdicts:
        record.add_event("verdict", f"{verdict.code}: {verdict.sentence}", 0)
    record.set_verdicts(list(verdicts))
    record.end(catalogue.exit_code(verdicts[0]))


def _print_result(record: JobRecord, notifier: Notifier) -> int:
    """Print the verdict and then the bundle, for the log of a finished pod. Returns the job's exit code."""
    assert record.exit_code is not None
    if record.exit_code != REGROUP:
        notifier.send(Occasion.END)
        termination.write(record.exit_code or Exit.OK, record.verdicts)
    if record.verdicts:
        names = places.names_with_machines(record.plan.names, places.known_machines(record.nodes.values()))
        record.log("\n".join(verdict_text.block(record.verdicts, True, names)))
    what = "attempt" if record.exit_code == REGROUP else "job"
    record.add_event("end", f"the {what} {phrases.ended(record.exit_code, record.why)}")
    text = bundle_file.as_text(record.save(), _PRINTED_DUMPS)
    lines = [text[start : start + _COLUMNS] for start in range(0, len(text), _COLUMNS)]
    record.log("\n".join([Marks.BUNDLE, *lines, Marks.BUNDLE_END]))
    notifier.close()
    record.close()
    return record.exit_code


def _raise_file_limit() -> int:
    """Raise the limit of open files, usually 1024: each connection takes one. Returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return _FILES if soft == resource.RLIM_INFINITY else soft


def _too_few_files(record: JobRecord, files: int) -> None:
    """Give the verdict on a hub that may open fewer files than there are nodes, before any connects."""
    nodes = record.plan.nodes
    sentence = f"the hub may open {files} files, and needs {nodes + _OWN_FILES} for {nodes} nodes"
    hint = platforms.named(record.plan.platform).hint("open-files", _OPEN_FILES)
    facts = ["`ulimit -Hn` gives the limit that a process cannot raise by itself"]
    _give_up(record, "files-too-few", sentence, hint, facts)
