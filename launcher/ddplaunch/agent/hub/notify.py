"""Tells nodes and people what happens in the job: nodes get notices, people outside get messages.

A notice is a verdict on a job that still runs; all nodes get it, once. Webhooks, commands and the scheduler
get messages, which must never hold the job up: each recipient has its own thread, which starts with the first
message, and a short queue. A message that does not arrive is dropped; the hub's log says so once for each
recipient. A URL is a secret, so no text here contains it.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Optional

from ddplaunch.agent import platforms
from ddplaunch.agent.contract import Exit, JobEvidence, JobPlan, NotifyPlan, Occasion, Verdict
from ddplaunch.agent.contract.messages import Alive, Notice
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.server import NodeSessions
from ddplaunch.agent.platforms import Platform
from ddplaunch.agent.system import phrases, secrets
from ddplaunch.agent.system.delivery import UndeliveredError, post, run
from ddplaunch.agent.text import saying

_SENTENCE = 1000
"""Characters of a sentence: part of it may be what a rank has written."""
_VERDICTS, _NUMBERS = 8, 64
"""Verdicts in a message, and nodes or ranks of each."""
_SLACK = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}
"""Slack would read text with these characters as a link or a mention."""


def compose(
    occasion: str,
    plan: JobPlan,
    attempt: int,
    handle: str,
    verdicts: Sequence[Verdict],
    exit_code: Optional[int],
    at: float,
    why: str = "",
) -> dict[str, Any]:
    """Return the message for an occasion as plain data, ready for JSON. `why`: of the job's evidence."""
    shown = [_short(each) for each in verdicts[:_VERDICTS]]
    return {
        "occasion": occasion,
        "text": _sentence(occasion, plan, attempt, shown, exit_code, why)
        + (f" ({handle})" if handle else ""),
        "job": plan.job,
        "handle": handle,
        "attempt": attempt,
        "nodes": plan.nodes,
        "exit_code": exit_code,
        "verdicts": [
            {
                "code": each.code,
                "sentence": each.sentence,
                "nodes": each.nodes[:_NUMBERS],
                "ranks": each.ranks[:_NUMBERS],
                "hint": each.hint,
            }
            for each in shown
        ],
        "at": round(at, 3),
    }


def _sentence(
    occasion: str,
    plan: JobPlan,
    attempt: int,
    verdicts: Sequence[Verdict],
    exit_code: Optional[int],
    why: str,
) -> str:
    which = f", attempt {attempt}," if plan.retries else ""
    if occasion == Occasion.WITHDRAWN:
        return f"{plan.job}{which} goes on: the notice is withdrawn"
    goes_on = occasion == Occasion.NOTICE
    what = "goes on, with a notice" if goes_on else phrases.ended(exit_code or Exit.OK, why)
    more = f", and {len(verdicts) - 1} more" if len(verdicts) > 1 else ""
    cause = f": {verdicts[0].code}: {verdicts[0].sentence}{more}" if verdicts else ""
    return f"{plan.job}{which} {what}{cause}"


def _short(verdict: Verdict) -> Verdict:
    return replace(verdict, text=saying.cut(verdict.text, _SENTENCE, verdict.machines))


def encode(message: dict[str, Any], form: str) -> bytes:
    """Return the bytes that a recipient gets. `form`: "slack", or any other for the whole message as JSON."""
    body = {"text": message["text"].translate(_SLACK)} if form == "slack" else message
    return json.dumps(body).encode()


ALIVE_EVERY = 2.0
"""Seconds between two Alive messages to every supervisor. Without them it detects stalls by itself."""

STARTS = 300.0
"""Seconds without any rank after which that alone is worth a notice. Before, only the log mentions it."""


class Notices:
    """Sends notices to all nodes that are connected."""

    def __init__(self, record: JobRecord, sessions: NodeSessions) -> None:
        self._record = record
        self._sessions = sessions
        self._given: list[object] = []  # codes and ranks of the notices so far, until one is withdrawn
        self._alive_sent = float("-inf")

    def send_alive(self, now: float) -> None:
        """Send Alive to all nodes when it is due; `now` is the monotonic clock."""
        if now - self._alive_sent >= ALIVE_EVERY:
            self._alive_sent = now
            self._sessions.send_to_all(Alive())

    def give(
        self,
        verdicts: list[Verdict],
        evidence: JobEvidence,
        launching_for: float = 0.0,
        deadline_text: str = "",
    ) -> None:
        """Send a notice, unless one with the same codes and ranks was sent before or the job has ended.

        `launching_for`: seconds for which no rank has been seen on any node, which alone is no reason for a
        notice before STARTS. `deadline_text`: when the job will be ended, as a fact of the first verdict.
        """
        notice = [(verdict.code, verdict.ranks) for verdict in verdicts]
        if notice == [("unknown", [])] and 0 < launching_for < STARTS:
            span = phrases.span(launching_for)
            self._record.add_event(
                "waiting", f"waiting for the ranks to start: none has been seen for {span}"
            )
            return
        if not verdicts or notice in self._given or self._record.exit_code is not None:
            return
        self._given.append(notice)
        verdicts = self._record.with_machines(verdicts)
        for verdict in verdicts:
            self._record.add_event("notice", f"{verdict.code}: {verdict.sentence}")
        if all(verdict.code.startswith("slow") for verdict in verdicts):
            return  # slowness is no alarm
        self._record.set_verdicts(verdicts, evidence, until_end=deadline_text)
        self._record.send_message(Occasion.NOTICE)
        self._sessions.send_to_all(Notice(self._record.verdicts, evidence.why))

    def forget(self) -> None:
        """Let the next notice be sent, even if it equals the last."""
        self._given.clear()

    def withdraw(self) -> bool:
        """Clear the verdicts, because the job moves again. Returns whether there were any."""
        known = self._record.verdicts
        self._given.clear()
        self._record.set_verdicts([])
        if known:
            self._record.send_message(Occasion.WITHDRAWN)
        return bool(known)


AT_END = 15.0
"""Seconds for which all messages together may hold up the end of the job."""
_PAUSES = (1.0, 2.0, 4.0, 8.0, None)
"""Seconds after each try."""
_QUEUE = 16


class Notifier:
    """Sends messages to all recipients. `handle`: the job's handle, by which people find it."""

    def __init__(self, record: JobRecord, handle: str, recipients: Sequence[NotifyPlan]) -> None:
        self._record, self._handle = record, handle
        self._closing = threading.Event()
        self._recipients = [
            _Recipient(number, each, platforms.named(record.plan.platform), self._closing)
            for number, each in enumerate(recipients)
        ]

    def send(self, occasion: str) -> None:
        """Queue a message for every recipient that wants this occasion, with what the record says now."""
        record = self._record
        made = compose(
            occasion,
            record.plan,
            record.attempt,
            self._handle,
            record.verdicts,
            record.exit_code,
            time.time(),
            record.why,
        )
        for each in self._recipients:
            each.put(occasion, made)

    def report(self) -> None:
        """Log, once, each recipient that did not get a message."""
        for each in self._recipients:
            if each.failure:
                self._record.complain(each.failure)

    def close(self) -> None:
        """Wait for the last messages to arrive, at most AT_END seconds in all."""
        until = time.monotonic() + AT_END
        self._closing.set()
        for each in self._recipients:
            each.join(until)
        self.report()


class _Recipient:
    def __init__(self, index: int, plan: NotifyPlan, platform: Platform, closing: threading.Event) -> None:
        self.failure = ""
        self._plan, self._platform, self._closing = plan, platform, closing
        self._name = platform.place if plan.events else f"notify[{index}]"
        self._queue: queue.Queue[Optional[dict[str, Any]]] = queue.Queue(_QUEUE)
        self._thread: Optional[threading.Thread] = None

    def put(self, occasion: str, made: dict[str, Any]) -> None:
        if occasion not in self._plan.when:
            return
        if self._thread is None:  # not earlier, because threads do not survive the hub's fork
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        try:
            self._queue.put_nowait(made)
        except queue.Full:
            self._fail("too many messages wait for it")

    def join(self, until: float) -> None:
        """Return when all messages have been sent, or at `until`."""
        if self._thread is None:
            return
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=max(0.0, until - time.monotonic()))
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive():
            self._fail("the job's end does not wait for it")

    def _fail(self, why: str) -> None:
        self.failure = self.failure or f"{self._name} got no message: {why}"

    def _run(self) -> None:
        while (made := self._queue.get()) is not None:
            self._deliver(made)

    def _deliver(self, made: dict[str, Any]) -> None:
        for pause in _PAUSES:
            try:
                return self._send(made)
            except UndeliveredError as error:
                if pause is None or error.lasts:
                    return self._fail(str(error))
            except Exception as error:  # the next message may still arrive
                return self._fail(type(error).__name__)
            self._closing.wait(pause)
        return None

    def _send(self, made: dict[str, Any]) -> None:
        plan = self._plan
        if plan.events and self._platform.show:
            return self._platform.show(made)
        body = encode(made, plan.format)
        if plan.command:
            run(plan.command, body)
        elif plan.webhook:
            try:
                url = secrets.value(f"{self._name}.webhook", plan.webhook, os.environ).strip()
            except secrets.MissingSecretError as error:
                raise UndeliveredError(str(error), lasts=True) from error
            if not url.lower().startswith(("http://", "https://")):
                raise UndeliveredError("its URL does not begin with http:// or https://", lasts=True)
            post(url, body)
        return None
