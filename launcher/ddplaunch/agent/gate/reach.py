"""The way to the hub, with patience for what passes: a hub that is not up, a name that is not known yet."""

from __future__ import annotations

import time
from typing import Callable

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.gate import stranger
from ddplaunch.agent.protocol import Channel, RefusedError, StrangerError, UnreachableError
from ddplaunch.agent.resolve import UnansweredNameError, UnknownNameError, is_loopback, resolve
from ddplaunch.agent.verdicts.gate_hub import unreached

PATIENCE = {"stranger": 3.0, "reset": 4.0, "silent": 10.0, "loopback": 4.0, "gone": 4.0}
"""Seconds for what seldom passes. A hub that serves a thousand nodes may be silent for a moment."""
_CALL = 2.5
"""Seconds for one attempt."""
_PAUSE = 0.1
_LONGEST_PAUSE = 1.0
_SAY_EVERY = 5.0
_ASK = 1.0


class HubUnreachedError(Exception):
    """Waiting for the hub is over; `verdict` says what stood in the way."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.sentence)
        self.verdict = verdict


class Reach:
    """Calls the hub of one job from one node. `say` gets a line now and then: what we wait for, how long."""

    def __init__(
        self, node: int, host: str, port: int, key: bytes, attempt: int, say: Callable[[str], None]
    ) -> None:
        self._node = node
        self._host = host
        self._port = port
        self._key = key
        self._attempt = attempt
        self._say = say
        self._met = False
        self.round_trip = 0.0  # seconds of the last introduction

    def connect(self, deadline: float) -> Channel:
        """Raises HubUnreachedError at the deadline, or sooner when more waiting would not help."""
        started = time.monotonic()
        since: dict[str, float] = {}  # kind of failure -> since when there was no other
        pause, said = _PAUSE, started
        while True:
            begun = time.monotonic()
            try:
                channel = Channel.connect(
                    self._host, self._port, self._key, self._attempt, min(begun + _CALL, deadline)
                )
                self.round_trip = time.monotonic() - begun
                self._met = True
                return channel
            except UnreachableError as error:
                kind, detail = error.kind, error.detail
            except StrangerError as error:
                kind, detail = self._who(error.said, deadline)
            except RefusedError as error:
                kind, detail = "stranger", str(error)
            now = time.monotonic()
            since = {kind: since.get(kind, begun)}
            if now >= min(deadline, since[kind] + self._patience(kind)):
                raise HubUnreachedError(self._verdict(kind, detail, now - started))
            if now - said > _SAY_EVERY:
                said = now
                self._say(f"waiting for the hub on node 0 ({now - started:.0f} s): {detail}")
            time.sleep(min(pause, max(deadline - now, 0)))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _who(self, said: bytes, deadline: float) -> tuple[str, str]:
        said = said or stranger.ask(self._host, self._port, min(_ASK, max(deadline - time.monotonic(), 0.1)))
        if said:
            return "stranger", stranger.describe(said)
        return "silent", "it accepts connections and is silent"

    def _patience(self, kind: str) -> float:
        if self._met and kind in ("refused", "reset"):
            return PATIENCE["gone"]
        if kind == "refused" and self._node != 0 and all(map(is_loopback, self._addresses() or [""])):
            return PATIENCE["loopback"]
        return PATIENCE.get(kind, float("inf"))

    def _verdict(self, kind: str, detail: str, seconds: float) -> Verdict:
        if self._met and kind in ("refused", "reset"):
            kind = "gone"
        kind = "stranger" if kind == "silent" else kind
        return unreached(self._node, self._host, self._port, self._addresses(), kind, detail, seconds)

    def _addresses(self) -> list[str]:
        try:
            return resolve(self._host, time.monotonic() + _ASK)
        except (UnknownNameError, UnansweredNameError):
            return []
