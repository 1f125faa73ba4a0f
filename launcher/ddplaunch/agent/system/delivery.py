"""Hands over one message, to a server or to a command, within seconds.

A URL is a secret, so no text here contains it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from ddplaunch.agent.contract import Env

TIMEOUT = 5.0
"""Seconds for a server to answer."""
COMMAND = 10.0
"""Seconds for a command to end."""
_PASSING = (408, 429)
"""Answers of a server, below 500, after which another try may succeed."""
_ANSWER = 1 << 13
"""Bytes to read of an answer."""


class UndeliveredError(Exception):
    """A message did not arrive. `lasts`: another try would not change that. `answer`: the API server's."""

    def __init__(self, why: str, lasts: bool = False, answer: bytes = b"") -> None:
        super().__init__(why)
        self.lasts, self.answer = lasts, answer


def post(url: str, body: bytes, who: str = "its webhook", token: str = "", tls: Any = None) -> None:
    """Send the body to the URL. Raises UndeliveredError.

    `token`, `tls`: for the API server, which is reached past any proxy and whose answer is read.
    """
    from http.client import HTTPException  # most jobs do without it
    from urllib import error, request

    class NoRedirect(request.HTTPRedirectHandler):
        """Follows no redirect: what the URL gives access to is for its own server alone."""

        def redirect_request(self, *_: Any) -> None:
            return None

    handlers: list[Any] = [NoRedirect]
    headers = {"Content-Type": "application/json", "User-Agent": "ddplaunch"}
    if tls:
        handlers += [request.HTTPSHandler(context=tls), request.ProxyHandler({})]
        headers["Authorization"] = f"Bearer {token}"
    try:
        made = request.Request(url, body, headers)  # noqa: S310 - the callers know the scheme
        request.build_opener(*handlers).open(made, timeout=TIMEOUT).close()
    except error.HTTPError as answer:
        text = b""
        with contextlib.suppress(OSError, HTTPException, ValueError), answer:
            text = answer.read(_ANSWER) if tls else b""
        lasts = answer.code < 500 and answer.code not in _PASSING
        raise UndeliveredError(f"{who} answers {answer.code}", lasts, text) from None
    except (OSError, HTTPException, ValueError) as failed:
        raise UndeliveredError(f"{who} does not answer: {reason(failed)}") from None


def reason(error: BaseException) -> str:
    """Return the system's own words, or the kind of the error, because its text may quote the URL."""
    inner = getattr(error, "reason", None)
    if isinstance(inner, OSError):
        return reason(inner)
    if isinstance(error, TimeoutError) or type(error).__name__ == "timeout":  # before Python 3.10
        return f"not within {TIMEOUT:.0f} s"
    known = inner if type(error).__name__.startswith("SSL") else getattr(error, "strerror", None)
    return str(known or type(error).__name__)


def run(command: Sequence[str], body: bytes, who: str = "its command") -> None:
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
        raise UndeliveredError(f"{who} does not start: {reason(error)}", lasts=True) from error
    try:
        child.communicate(body, COMMAND)
    except subprocess.TimeoutExpired:
        raise UndeliveredError(f"{who} has not ended within {COMMAND:.0f} s") from None
    finally:
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    if child.returncode:
        raise UndeliveredError(f"{who} ends with exit code {child.returncode}")
