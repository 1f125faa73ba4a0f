"""A hub that lies, as gates, supervisors and the command line meet it; and what node 0's key desk is sent."""

from __future__ import annotations

import contextlib
import io
import json
import socket
import struct
import time
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

from tests.fuzz import mutate
from tests.fuzz.target import Target

from ddplaunch.agent.checks.context import Context
from ddplaunch.agent.contract import VERSION, JobPlan, NodeEvidence, RendezvousSettings, Verdict, codec
from ddplaunch.agent.contract.messages import Message
from ddplaunch.agent.gate.gate import Gate
from ddplaunch.agent.gate.hub_connection import HubUnreachedError
from ddplaunch.agent.join import key
from ddplaunch.agent.supervisor import hub_link
from ddplaunch.agent.supervisor.hub_link import HubLink
from ddplaunch.agent.supervisor.rank_tracker import RankTracker
from ddplaunch.agent.supervisor.supervisor import Supervisor
from ddplaunch.agent.transport.protocol import Channel, LostError, ProtocolError, Seal

_KEY = b"the job's key"
_PLAN = JobPlan("digits", 2, 1, [], [])
_VERDICT = codec.dump(Verdict.of("rank-in-user-code", "rank 0 is in evaluate()", "run", [0], [0], [1]))
_AGREED = codec.dump(RendezvousSettings("10.0.0.1", 29500, {"A": "b"}, {"A": "it was free"}))
_GATE: tuple[tuple[str, Any], ...] = (
    ("waiting", {"missing": [1], "more": 3, "passing": ["node 0: held"], "seconds": 3.0}),
    ("unbind", {}),
    ("release", {"agreed": _AGREED, "notes": ["clocks differ"]}),
    ("verdict", {"verdicts": [_VERDICT], "exit_code": 30}),
)
_RUN = (
    ("collect", {"id": 1, "why": "still", "deadline": 3.0}),
    ("notice", {"verdicts": [_VERDICT], "why": "still"}),
    ("end", {"verdicts": [_VERDICT], "exit_code": 50, "grace": 30.0}),
)
_LONGEST = 600.0
_RESET = struct.pack("ii", 1, 0)
_GREETING = {"ddplaunch": VERSION, "nonce": "0" * 32}
_WELCOME: Any = {"kind": "welcome", "body": {}}
_REFUSED = {"refused": "key", "job": "other"}


class Lies(Target):
    """Greetings and refusals of a stranger; then orders of a hub that has the key, changed by structure."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        (folder / "run" / "node-0").mkdir(parents=True)

    def make(self, random: Random) -> Any:
        greeting = [
            mutate.as_json(random, mutate.tree(random, random.choice((_GREETING, _WELCOME, _REFUSED))), ())
            for _ in range(2)
        ]
        return {
            "greeting": greeting,
            "sealed": random.random() < 0.5,
            "gate": [[kind, mutate.tree(random, body)] for kind, body in _GATE],
            "run": [[kind, mutate.tree(random, body)] for kind, body in _RUN],
        }

    def feed(self, given: Any) -> None:
        with contextlib.suppress(ProtocolError):
            self._introduced(given)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            for kind, body in given["gate"]:
                self._gate(kind, body)
            for kind, body in given["run"]:
                _supervisor(kind, body)
        assert "Traceback" not in out.getvalue()

    def _introduced(self, given: Any) -> None:
        ours, theirs = _pair()
        with theirs:
            first, second = (each.encode("utf-8", "surrogatepass") for each in given["greeting"])
            seal = Seal(_KEY, 0, server=True)
            theirs.sendall(first + b"\n" + (seal.seal_text(second) if given["sealed"] else second + b"\n"))
            theirs.shutdown(socket.SHUT_WR)
            channel = Channel(ours)
            try:
                channel._introduce(_KEY, 0, time.monotonic() + 1)
            finally:
                channel.close()

    def _gate(self, kind: str, body: Any) -> None:
        if not isinstance(body, dict):
            return  # the channel lets none through
        gate = Gate(Context(_PLAN, self._folder, 0, 0, _KEY), [])
        gate._channel = cast("Channel", _Wire(kind, body))
        gate._deadline = time.monotonic() - 29.9
        with contextlib.suppress(ProtocolError, HubUnreachedError, codec.ContractError):  # as Gate.run does
            gate._converse()


def _pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    for each in (ours, theirs):
        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)  # no port stays taken
    return ours, theirs


class KeyDesk(Target):
    """Requests at node 0's key desk and its answers, as MUNGE would open them."""

    def __init__(self, _: Path) -> None:
        uid = "UID:          root (0)\n"
        body = json.dumps({"ask": "digits 7", "key": "k" * 64, "nonce": "0" * 32})
        self._opened = f"STATUS: Success (0)\n{uid}GID: root (0)\n\n{body}"

    def make(self, random: Random) -> str:
        return mutate.text(random, self._opened, (self._opened,))

    def feed(self, given: str) -> None:
        shown = given.encode("utf-8", "surrogatepass")
        ours, theirs = socket.socketpair()
        with ours, theirs, mock.patch.object(key, "_run", return_value=shown):
            theirs.sendall(shown[:1000].replace(b"\n", b" ") + b"\n")
            theirs.shutdown(socket.SHUT_WR)
            for read in (_asked, _answered):
                with contextlib.suppress(key.MungeError, OSError, ValueError):
                    read(ours)


def _asked(connection: socket.socket) -> None:
    key._answer(connection, "digits 7", "k" * 64, None)


def _answered(connection: socket.socket) -> None:
    key._request(connection, "digits 7", None)


def _supervisor(kind: str, body: Any) -> None:
    if isinstance(body, dict):  # the channel lets nothing else through
        supervisor = _Supervisor()
        for order in hub_link.read_orders([(kind, body)], supervisor.log):
            supervisor._obey(order)


class _Supervisor(Supervisor):
    """One whose node is not there: it looks at what it is ordered to do."""

    def __init__(self) -> None:
        self.plan = _PLAN
        self.node = 0
        self.verdict = self.stop_code = None
        self.noted = False
        self.link = cast("HubLink", _Link())
        self.tracker = cast("RankTracker", SimpleNamespace(launch_exit=None))

    def collect_evidence(
        self, seconds: float, why: str = "", dumps: int = 0, quick: bool = False
    ) -> NodeEvidence:
        assert 0 <= seconds <= _LONGEST
        return NodeEvidence(0, "n0", 1.0, "running")

    def log(self, text: str) -> None:
        text.encode("utf-8", "backslashreplace")

    def _stop(self, code: int, grace: float, sent: object = None) -> None:
        assert 0 <= code <= 255
        assert 0 <= grace <= _LONGEST


class _Wire:
    """A channel on which one message comes."""

    local_address = "127.0.0.1"

    def __init__(self, kind: str, body: Any) -> None:
        self._told = [(kind, body)]

    def receive(self, timeout: float) -> Any:
        if not self._told:
            raise LostError("the other side closed the connection")
        return self._told.pop()

    def send(self, kind: str, body: Any, timeout: float = 0.0) -> bool:
        json.dumps(body)
        return True


class _Link:
    """A supervisor's way to a hub that lies."""

    def send(self, message: Message) -> None:
        json.dumps(message.pack())

    def expect_hang_up(self) -> None:
        """Called after the last word of a hub."""
