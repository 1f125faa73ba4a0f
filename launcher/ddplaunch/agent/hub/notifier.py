"""Sends messages about the job to webhooks and commands, and never gets in the job's way.

Each recipient has a thread of its own, which begins with its first message, and a short queue. What does not
arrive is dropped, which the hub's log says once for each recipient. A URL is a secret: no text here has it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from ddplaunch.agent.contract import Env, NotifyPlan
from ddplaunch.agent.hub import message
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.system import secrets

TIMEOUT = 5.0
"""Seconds for a webhook to answer."""
COMMAND = 10.0
"""Seconds for a command to end."""
AT_END = 5.0
"""Seconds that the end of the job is held up for messages, all together."""
_PAUSES = (1.0, 4.0, None)
"""Seconds after each try."""
_QUEUE = 16
_PASSING = (408, 429)
"""Answers of a webhook, below 500, after which another try may go well."""


class UndeliveredError(Exception):
    """A message did not arrive. `lasts`: another try would not change that."""

    def __init__(self, why: str, lasts: bool = False) -> None:
        super().__init__(why)
        self.lasts = lasts


class Notifier:
    """Tells the recipients. `handle`: the job's."""

    def __init__(self, record: JobRecord, handle: str, recipients: Sequence[NotifyPlan]) -> None:
        self._record, self._handle = record, handle
        self._closing = threading.Event()
        self._recipients = [_Recipient(n, each, self._closing) for n, each in enumerate(recipients)]

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
    def __init__(self, index: int, plan: NotifyPlan, closing: threading.Event) -> None:
        self.failure = ""
        self._name, self._plan, self._closing = f"notify[{index}]", plan, closing
        self._queue: queue.Queue[Optional[bytes]] = queue.Queue(_QUEUE)
        self._thread: Optional[threading.Thread] = None

    def put(self, occasion: str, made: dict[str, Any]) -> None:
        if occasion not in self._plan.when:
            return
        if self._thread is None:  # only now: threads do not survive the fork of the hub
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        try:
            self._queue.put_nowait(message.encoded(made, self._plan.format))
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
        while (body := self._queue.get()) is not None:
            self._deliver(body)

    def _deliver(self, body: bytes) -> None:
        for pause in _PAUSES:
            try:
                return self._send(body)
            except UndeliveredError as error:
                if pause is None or error.lasts:
                    return self._fail(str(error))
            except Exception as error:  # the next message may arrive
                return self._fail(type(error).__name__)
            self._closing.wait(pause)
        return None

    def _send(self, body: bytes) -> None:
        if self._plan.command:
            _run(self._plan.command, body)
        elif self._plan.webhook:
            try:
                url = secrets.value(f"{self._name}.webhook", self._plan.webhook, os.environ)
            except secrets.MissingSecretError as error:
                raise UndeliveredError(str(error), lasts=True) from error
            _post(url.strip(), body)


def _post(url: str, body: bytes) -> None:
    """Send the body to the URL. Raises UndeliveredError."""
    from http.client import HTTPException  # which most jobs do without
    from urllib import error, request

    if not url.lower().startswith(("http://", "https://")):
        raise UndeliveredError("its URL does not begin with http:// or https://", lasts=True)
    headers = {"Content-Type": "application/json", "User-Agent": "ddplaunch"}

    class NoRedirect(request.HTTPRedirectHandler):
        """Follows nowhere: what the URL lets in is for its own server alone."""

        def redirect_request(self, *_: Any) -> None:
            return None

    try:
        post = request.Request(url, body, headers)  # noqa: S310 - the scheme is known
        request.build_opener(NoRedirect).open(post, timeout=TIMEOUT).close()
    except error.HTTPError as answer:
        answer.close()
        lasts = answer.code < 500 and answer.code not in _PASSING
        raise UndeliveredError(f"its webhook answers {answer.code}", lasts) from None
    except (OSError, HTTPException, ValueError) as failed:
        raise UndeliveredError(f"its webhook does not answer: {_reason(failed)}") from None


def _reason(error: BaseException) -> str:
    """Return the system's own words, or the kind of the error: its text may quote the URL."""
    inner = getattr(error, "reason", None)
    if isinstance(inner, OSError):
        return _reason(inner)
    if isinstance(error, TimeoutError) or type(error).__name__ == "timeout":  # before Python 3.10
        return f"not within {TIMEOUT:.0f} s"
    known = inner if type(error).__name__.startswith("SSL") else getattr(error, "strerror", None)
    return str(known or type(error).__name__)


def _run(command: list[str], body: bytes) -> None:
    """Run the command with the body on its standard input. Raises UndeliveredError."""
    environment: Mapping[str, str] = {k: v for k, v in os.environ.items() if k not in (Env.KEY, Env.UID)}
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise UndeliveredError(f"its command does not start: {_reason(error)}", lasts=True) from error
    try:
        child.communicate(body, COMMAND)
    except subprocess.TimeoutExpired:
        raise UndeliveredError(f"its command has not ended within {COMMAND:.0f} s") from None
    finally:
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    if child.returncode:
        raise UndeliveredError(f"its command ends with exit code {child.returncode}")
