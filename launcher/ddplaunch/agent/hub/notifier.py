"""Sends messages about the job to webhooks, commands and the scheduler, and never gets in the job's way.

Each recipient has a thread of its own, which begins with its first message, and a short queue. What does not
arrive is dropped, which the hub's log says once for each recipient. A URL is a secret: no text here has it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Sequence
from typing import Any, Optional

from ddplaunch.agent import platforms
from ddplaunch.agent.contract import NotifyPlan
from ddplaunch.agent.hub import message
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.platforms import Platform
from ddplaunch.agent.system import secrets
from ddplaunch.agent.system.delivery import UndeliveredError, post, run

AT_END = 15.0
"""Seconds that the end of the job is held up for messages, all together."""
_PAUSES = (1.0, 2.0, 4.0, 8.0, None)
"""Seconds after each try."""
_QUEUE = 16


class Notifier:
    """Tells the recipients. `handle`: the job's."""

    def __init__(self, record: JobRecord, handle: str, recipients: Sequence[NotifyPlan]) -> None:
        self._record, self._handle = record, handle
        self._closing = threading.Event()
        self._recipients = [
            _Recipient(number, each, platforms.named(record.plan.platform), self._closing)
            for number, each in enumerate(recipients)
        ]

    def send(self, occasion: str) -> None:
        """Send a message of what the record says now."""
        record = self._record
        made = message.of(
            occasion,
            record.plan,
            record.attempt,
            self._handle,
            record.verdicts,
            record.exit_code,
            time.time(),
        )
        for each in self._recipients:
            each.put(occasion, made)

    def report(self) -> None:
        """Write into the hub's log which recipient got no message, once."""
        for each in self._recipients:
            if each.failure:
                self._record.complain(each.failure)

    def close(self) -> None:
        """Let the last messages arrive, within AT_END."""
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
        if self._thread is None:  # only now: threads do not survive the fork of the hub
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
            except Exception as error:  # the next message may arrive
                return self._fail(type(error).__name__)
            self._closing.wait(pause)
        return None

    def _send(self, made: dict[str, Any]) -> None:
        plan = self._plan
        if plan.events and self._platform.show:
            return self._platform.show(made)
        body = message.encoded(made, plan.format)
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
