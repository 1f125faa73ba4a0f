"""Finds the hub, and waits for what may pass: a hub that is not up yet, a name that is not known yet."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Callable, Optional

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.diagnosis.gate.hub_unreached import unreached
from ddplaunch.agent.platforms import PLAIN, Platform, dns
from ddplaunch.agent.system.resolve import (
    UnansweredNameError,
    UnknownNameError,
    family,
    is_loopback,
    numeric,
    resolve,
)
from ddplaunch.agent.transport import endpoints, strangers
from ddplaunch.agent.transport.endpoints import Endpoint
from ddplaunch.agent.transport.protocol import Channel, RefusedError, StrangerError, UnreachableError

_CALL = 2.5
"""Seconds for one attempt."""
_PAUSE = 0.1
_LONGEST_PAUSE = 1.0
_BRIEF = 5.0
"""Seconds that do not outweigh what was met for longer before."""
_LONG = 2.0
"""Seconds without the hub that are worth a line, and at least so many between two; ever more of them."""
_ASK = 1.0
_ELSEWHERE = 9
"""A port on which nobody listens: a machine that says so is up, and so is the way to it and back."""


class HubUnreachedError(Exception):
    """Waiting for the hub is over; `verdict` says what stood in the way."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.sentence)
        self.verdict = verdict


@dataclass
class _Failure:
    kind: str  # of UnreachableError, or stranger | shared | key | silent | filtered
    detail: str
    since: float  # since when there was no other
    before: Optional[_Failure] = None  # what there was until then

    def lasting(self) -> _Failure:
        """Return the failure that has lasted: when another node gives up, its name vanishes as well."""
        now = time.monotonic()
        brief = now - self.since < min(_BRIEF, (now - self.before.since) / 2) if self.before else False
        return self.before if brief and self.before else self


class Reach:
    """Calls the hub of one job from one node.

    Now and then `say` gets a line, what we wait for and how long, and `cry` what would be the verdict by now.
    `dead` is asked why the hub will never come, where that can be known.

    `hub` are its name and addresses. These come first: while there are some, a name that leads nowhere is
    no reason to wait, nor what the verdict is about, but a fact beside it.

    `twin`: the job's name, where its user has given each node the key, and may have given another.
    """

    def __init__(
        self,
        node: int,
        names: Sequence[str],
        hub: Sequence[Endpoint],
        key: bytes,
        attempt: int,
        say: Callable[[str], None],
        report: Callable[[Verdict, float], None],
        dead: Callable[[], Optional[Verdict]] = lambda: None,
        twin: Optional[str] = None,
        platform: Platform = PLAIN,
    ) -> None:
        self._node = node
        self._names = names
        self._hub = sorted(hub, key=lambda each: not numeric(each.host))
        self._decisive = [each for each in self._hub if numeric(each.host)] or self._hub
        self._key = key
        self._attempt = attempt
        self._say = say
        self._cry = report
        self._dead = dead
        self._twin = twin
        self._failures: dict[Endpoint, _Failure] = {}
        self._platform = platform
        self._names_appear = platform.name_delay is not None and bool(names)
        self.before = ""  # what was met until the hub was, if that took long
        self.nameless = 0.0  # seconds for which the hub's name was denied before it was known
        self.met: Optional[Endpoint] = None
        self._started = self._said = 0.0  # this waiting, and the last word about it
        self.round_trip = 0.0  # seconds of the last introduction

    @property
    def detours(self) -> dict[str, str]:
        """Return what was tried in vain before the address that was met, and how it went."""
        return {str(address): failure.detail for address, failure in self._failures.items()}

    def connect(self, deadline: float) -> Channel:
        """Raises HubUnreachedError at the deadline, or sooner when more waiting would not help."""
        self._started = self._said = time.monotonic()
        self._failures, self.before = {}, ""
        pause = _PAUSE
        while True:
            for address in self._hub:
                channel = self._call(address, deadline)
                if channel is not None:
                    denied = self._failures.pop(address, None)
                    if denied is not None and self.nameless and self._names_appear:
                        why = self._platform.hint("name-denied", "")
                        self._say(f"node 0's name was not known for {self.nameless:.0f} s; {why}")
                    seconds = time.monotonic() - self._started
                    if denied is not None and seconds > _LONG:
                        self.before = f"{denied.lasting().detail}, for {seconds:.0f} s"
                        self._say(f"reached the hub; until now: {self.before}")
                    self.met = address
                    return channel
                self._tell()
            dead = self._dead()
            if dead is not None:
                raise HubUnreachedError(dead)
            now = time.monotonic()
            if all(self._is_over(address, now, deadline) for address in self._decisive):
                if now >= deadline:
                    self._failures = {each: found.lasting() for each, found in self._failures.items()}
                raise HubUnreachedError(self.verdict(now - self._started))
            time.sleep(min(pause, max(deadline - now, 0)))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _tell(self) -> None:
        """Print what stands in the way by now, if that was not printed for a while."""
        now = time.monotonic()
        failure = self._failures.get(self._decisive[0])
        if failure is not None and now - self._said >= max(_LONG, (self._said - self._started) / 4):
            self._said, seconds = now, now - self._started
            self._say(f"waiting for the hub on node 0 ({seconds:.0f} s): {failure.detail}")
            self._cry(self.verdict(seconds), seconds)

    def verdict(self, seconds: float, gone: str = "") -> Verdict:
        """Return why the hub was not reached in so many seconds; `gone`: what it did not do any more."""
        address = self.met or self._decisive[0]
        failure = _Failure("gone", gone, 0.0) if gone else self._failures[address]
        kind = "stranger" if failure.kind == "silent" else failure.kind
        if self.met is not None and kind in ("refused", "reset"):
            kind = "gone"
        if kind == "not-found" and self._own_record().status == dns.FOUND:
            kind = "absent"
        where, own = self._addresses(address), endpoints.own()
        if kind == "unreachable" and own and not set(map(family, own)) & set(map(family, where)):
            kind = "family"
        found = unreached(
            self._node, address, where, kind, failure.detail, seconds, self._names, self._platform
        )
        found.facts.extend(
            f"{other}: {text}" for other, text in self.detours.items() if other != str(address)
        )
        if self._names_appear and kind in ("not-found", "unanswered", "absent"):
            hub = dns.ask(address.host, time.monotonic() + _ASK)
            found.facts.append(f"of {address.host}: {hub.said}")
            found.facts.append(
                f"of this node's own name, {self._names[self._node]}: {self._own_record().said}"
            )
        return found

    def _own_record(self) -> dns.Answer:
        """Return what the name server says of this node's own name, if that is a Service's to give."""
        if not self._names_appear:
            return dns.Answer(dns.NO_NAME, [], "", "")
        return dns.ask(self._names[self._node], time.monotonic() + _ASK)

    def _call(self, address: Endpoint, deadline: float) -> Optional[Channel]:
        """One attempt; what became of it is in `_failures`.

        A name with several addresses is that of several machines, of which one may be about to end.
        """
        begun = time.monotonic()
        before = self._failures.get(address)
        for host in self._hosts_of(address):
            patience = min(time.monotonic() + _CALL, deadline)
            try:
                channel = Channel.connect(host, address.port, self._key, self._attempt, patience)
                self.round_trip = time.monotonic() - begun
                return channel
            except UnreachableError as error:
                kind, detail = error.kind, error.detail
                if kind == "timeout" and self._answers_elsewhere(address, deadline):
                    kind = "filtered"
            except StrangerError as error:
                kind, detail = self._who(address, error.said, deadline)
            except RefusedError as error:
                kind, detail = self._refused(error), str(error)
            if before is not None and kind in ("unanswered", "timeout") and patience - begun < _CALL:
                continue  # the deadline cut it short: what was found before says more
            if before is not None and before.kind == kind:
                since, last = before.since, before.before
            else:
                since, last = begun, before and replace(before, before=None)
            self._failures[address] = _Failure(kind, detail, since, last)
            if kind == "not-found":
                self.nameless = time.monotonic() - since
        return None

    def _refused(self, error: RefusedError) -> str:
        if error.why != "key":
            return "stranger"
        if self._twin is not None and error.job == self._twin:
            return "key"
        return "stale" if self._names_appear else "shared"

    def _hosts_of(self, address: Endpoint) -> list[str]:
        found = self._addresses(address) if self._names_appear else []
        return found if len(found) > 1 else [address.host]

    def _who(self, address: Endpoint, said: bytes, deadline: float) -> tuple[str, str]:
        patience = min(_ASK, max(deadline - time.monotonic(), 0.1))
        said = said or strangers.ask(address.host, address.port, patience)
        if said:
            return "shared" if strangers.is_job(said) else "stranger", strangers.describe(said)
        return "silent", "it accepts connections and is silent"

    def _answers_elsewhere(self, address: Endpoint, deadline: float) -> bool:
        patience = min(_ASK, max(deadline - time.monotonic(), 0.1))
        return any(strangers.is_up(host, _ELSEWHERE, patience) for host in self._addresses(address)[:1])

    def _is_over(self, address: Endpoint, now: float, deadline: float) -> bool:
        failure = self._failures[address]
        if self._is_nameless(failure, now):
            # While we have a record ourselves, node 0 is what is missing, and may still come.
            return now >= deadline or self._own_record().status != dns.FOUND
        return now >= min(deadline, failure.since + self._patience(address, failure.kind))

    def _is_nameless(self, failure: _Failure, now: float) -> bool:
        """Whether the hub's name has been unknown for longer than new names take."""
        delay = self._platform.name_delay if self._names_appear else None
        return failure.kind == "not-found" and delay is not None and now >= failure.since + delay

    def _patience(self, address: Endpoint, kind: str) -> float:
        patience = self._platform.hub_patience
        if self.met is not None and kind in ("refused", "reset"):
            return patience["gone"]
        if kind == "refused" and self._node != 0 and all(map(is_loopback, self._addresses(address) or [""])):
            return patience["loopback"]
        return patience.get(kind, float("inf"))

    def _addresses(self, address: Endpoint) -> list[str]:
        try:
            return resolve(address.host, time.monotonic() + _ASK)
        except (UnknownNameError, UnansweredNameError):
            return []
