"""Connects to the hub, and waits while a failure may pass: the hub or its name may not exist yet.

The gate calls it once, and again when the connection is lost. It opens no other connection, and blames only
the hub's address: what is wrong with the hub itself is said in the hub's own verdict.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Callable, Optional

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.diagnosis.gate import hub_unreached
from ddplaunch.agent.platforms import PLAIN, Platform, dns
from ddplaunch.agent.platforms.scheduler_log import UnreachedReport
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
"""Seconds. A failure that has lasted less than this does not replace a longer one before it."""
_LONG = 2.0
"""Seconds without the hub before the first line in the log. From there, the pause between two lines grows."""
_LOOKUP_SECONDS = 1.0
_ELSEWHERE = 9
"""A port where nobody listens: if a machine refuses it, the machine is up, and so are the paths there and
back."""


class HubUnreachedError(Exception):
    """We stop waiting for the hub. `verdict` has the reason."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.sentence)
        self.verdict = verdict


_SAME_ID = "if --rdzv-id differs between the nodes, give all of them the same, or none"


@dataclass
class _Failure:
    kind: str  # of UnreachableError, or stranger | shared | key | silent | filtered
    detail: str
    since: float  # since when all calls have failed in this way
    before: Optional[_Failure] = None  # the failure until then

    def lasting(self) -> _Failure:
        """Return the failure that has lasted: a brief one may only show that node 0 gives up as well."""
        now = time.monotonic()
        brief = now - self.since < min(_BRIEF, (now - self.before.since) / 2) if self.before else False
        return self.before if brief and self.before else self


class HubConnection:
    """Connects one node to the hub of one job.

    While it waits, it passes lines to `log`, and to `report` the verdict so far with its seconds. `dead`
    returns the verdict of a hub that can never be reached, or None.

    `hub` are the hub's name and addresses. Addresses come first. If there are any, a name that does not
    resolve is only a fact in the verdict, neither its subject nor a reason to wait.

    `parted_by`: facts about what may have led this node to the hub of another job.

    `twin`: the job's name, if the user has given the key to each node and may have given a wrong one.
    """

    def __init__(
        self,
        node: int,
        names: Sequence[str],
        hub: Sequence[Endpoint],
        key: bytes,
        attempt: int,
        log: Callable[[str], None],
        report: Callable[[UnreachedReport], None],
        dead: Callable[[], Optional[Verdict]] = lambda: None,
        twin: Optional[str] = None,
        platform: Platform = PLAIN,
        parted_by: Sequence[str] = (),
    ) -> None:
        self._node = node
        self._names = names
        self._hub = sorted(hub, key=lambda each: not numeric(each.host))
        self._decisive = [each for each in self._hub if numeric(each.host)] or self._hub
        self._key = key
        self._attempt = attempt
        self._log = log
        self._report = report
        self._dead = dead
        self._twin = twin
        self._parted_by = parted_by
        self._failures: dict[Endpoint, _Failure] = {}
        self._platform = platform
        self._names_appear = platform.name_delay is not None and bool(names)
        self.before = ""  # the failure until the hub was reached, if that took long
        self.nameless = 0.0  # seconds for which the hub's name was denied before it became known
        self.reached: Optional[Endpoint] = None
        self._started = self._logged = 0.0  # the beginning of this wait, and the last line about it
        self.round_trip = 0.0  # seconds of the last handshake

    @property
    def detours(self) -> dict[str, str]:
        """Return the addresses that failed before one was reached, each with its failure."""
        return {str(address): failure.detail for address, failure in self._failures.items()}

    def connect(self, deadline: float) -> Channel:
        """Connect to the hub. Raises HubUnreachedError at the deadline, or if waiting cannot help."""
        self._started = self._logged = time.monotonic()
        self._failures, self.before = {}, ""
        pause = _PAUSE
        while True:
            for address in self._hub:
                channel = self._call(address, deadline)
                if channel is not None:
                    denied = self._failures.pop(address, None)
                    if denied is not None and self.nameless and self._names_appear:
                        why = self._platform.hint("name-denied", "")
                        self._log(f"node 0's name was not known for {self.nameless:.0f} s; {why}")
                    seconds = time.monotonic() - self._started
                    if denied is not None and seconds > _LONG:
                        self.before = f"{denied.lasting().detail}, for {seconds:.0f} s"
                        self._log(f"reached the hub; until now: {self.before}")
                    self.reached = address
                    return channel
                self._log_waiting()
            dead = self._dead()
            if dead is not None:
                raise HubUnreachedError(dead)
            now = time.monotonic()
            if all(self._is_over(address, now, deadline) for address in self._decisive):
                if now >= deadline:
                    self._failures = {each: failure.lasting() for each, failure in self._failures.items()}
                raise HubUnreachedError(self.verdict(now - self._started))
            time.sleep(min(pause, max(deadline - now, 0)))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _log_waiting(self) -> None:
        """Log and report the present failure, if it is time to."""
        now = time.monotonic()
        failure = self._failures.get(self._decisive[0])
        if failure is not None and now - self._logged >= max(_LONG, (self._logged - self._started) / 4):
            self._logged, seconds = now, round(now - self._started, 1)  # with one digit, as in the report
            self._log(f"waiting for the hub on node 0 ({seconds:.0f} s): {failure.detail}")
            verdict, address = self.verdict(seconds), self.reached or self._decisive[0]
            refused = verdict.code == "port-refused"
            hub = hub_unreached.place(address, self._addresses(address)) if refused else ""
            self._report(UnreachedReport(self._node, seconds, verdict, hub))

    def verdict(self, seconds: float, gone: str = "") -> Verdict:
        """Return why the hub was not reached in so many seconds. `gone`: how it failed once it was
        connected.
        """
        address = self.reached or self._decisive[0]
        failure = _Failure("gone", gone, 0.0) if gone else self._failures[address]
        kind = "stranger" if failure.kind == "silent" else failure.kind
        if self.reached is not None and kind in ("refused", "reset"):
            kind = "gone"
        if kind == "not-found" and self._own_record().status == dns.RESOLVED:
            kind = "absent"
        where, own = self._addresses(address), endpoints.own_addresses()
        if kind == "unreachable" and own and not set(map(family, own)) & set(map(family, where)):
            kind = "family"
        verdict = hub_unreached.unreached(
            self._node, address, where, kind, failure.detail, seconds, self._names, self._platform
        )
        facts = [f"{other}: {text}" for other, text in self.detours.items() if other != str(address)]
        if self._parted_by and kind in ("key", "refused"):
            facts += self._parted_by
            verdict = replace(verdict, hint=f"{_SAME_ID}; {verdict.hint}")
        if self._names_appear and kind in ("not-found", "unanswered", "absent"):
            hub = dns.ask(address.host, time.monotonic() + _LOOKUP_SECONDS)
            facts.append(f"of {address.host}: {hub.text}")
            facts.append(f"of this node's own name, {self._names[self._node]}: {self._own_record().text}")
        return verdict.with_facts(facts)

    def _own_record(self) -> dns.DnsAnswer:
        """Return the name server's answer for this node's own name, if a Service gives names."""
        if not self._names_appear:
            return dns.DnsAnswer(dns.NO_NAME, [], "", "")
        return dns.ask(self._names[self._node], time.monotonic() + _LOOKUP_SECONDS)

    def _call(self, address: Endpoint, deadline: float) -> Optional[Channel]:
        """Try one address once, and keep a failure in `_failures`.

        A name with several addresses belongs to several pods, and one of them may be about to end.
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
                kind, detail = self._kind_of_stranger(address, error.greeting, deadline)
            except RefusedError as error:
                kind, detail = self._kind_of_refusal(error), str(error)
            if before is not None and kind in ("unanswered", "timeout") and patience - begun < _CALL:
                continue  # the deadline cut it short, so the failure before is the real one
            if before is not None and before.kind == kind:
                since, last = before.since, before.before
            else:
                since, last = begun, before and replace(before, before=None)
            self._failures[address] = _Failure(kind, detail, since, last)
            if kind == "not-found":
                self.nameless = time.monotonic() - since
        return None

    def _kind_of_refusal(self, error: RefusedError) -> str:
        if error.why != "key":
            return "stranger"
        if self._twin is not None and error.job == self._twin:
            return "key"
        return "stale" if self._names_appear else "shared"

    def _hosts_of(self, address: Endpoint) -> list[str]:
        addresses = self._addresses(address) if self._names_appear else []
        return addresses if len(addresses) > 1 else [address.host]

    def _kind_of_stranger(self, address: Endpoint, greeting: bytes, deadline: float) -> tuple[str, str]:
        patience = min(_LOOKUP_SECONDS, max(deadline - time.monotonic(), 0.1))
        late = b"" if greeting else strangers.ask(address.host, address.port, patience)
        if late.startswith(strangers.OURS):
            return "silent", "it answers, and too late"  # it may be the hub of this job
        greeting = greeting or late
        if greeting:
            return "shared" if strangers.is_job(greeting) else "stranger", strangers.describe(greeting)
        return "silent", "it accepts connections and is silent"

    def _answers_elsewhere(self, address: Endpoint, deadline: float) -> bool:
        patience = min(_LOOKUP_SECONDS, max(deadline - time.monotonic(), 0.1))
        return any(strangers.is_up(host, _ELSEWHERE, patience) for host in self._addresses(address)[:1])

    def _is_over(self, address: Endpoint, now: float, deadline: float) -> bool:
        failure = self._failures[address]
        if self._is_nameless(failure, now):
            # As long as we have a DNS record ourselves, only node 0 is missing, and it may still come.
            return now >= deadline or self._own_record().status != dns.RESOLVED
        return now >= min(deadline, failure.since + self._patience(address, failure.kind))

    def _is_nameless(self, failure: _Failure, now: float) -> bool:
        """Whether the hub's name has been unknown for longer than new names need to appear."""
        delay = self._platform.name_delay if self._names_appear else None
        return failure.kind == "not-found" and delay is not None and now >= failure.since + delay

    def _patience(self, address: Endpoint, kind: str) -> float:
        patience = self._platform.hub_patience
        if self.reached is not None and kind in ("refused", "reset"):
            return patience["gone"]
        if kind == "refused" and self._node != 0 and all(map(is_loopback, self._addresses(address) or [""])):
            return patience["loopback"]
        return patience.get(kind, float("inf"))

    def _addresses(self, address: Endpoint) -> list[str]:
        try:
            return resolve(address.host, time.monotonic() + _LOOKUP_SECONDS)
        except (UnknownNameError, UnansweredNameError):
            return []
