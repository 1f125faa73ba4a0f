"""Serves the page of `watch --web` on loopback, at an address that nobody can guess."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections import deque
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import IO, Self

from ddplaunch.backends.job import Job
from ddplaunch.errors import UsageError
from ddplaunch.report import board, html, live
from ddplaunch.report.live import Changes

HOST = "127.0.0.1"
_FAREWELL = 3.0
"""Seconds for a browser to fetch the end of the job. Its page asks once a second."""
_REQUEST = 10.0
"""Seconds within which a request must have been sent."""
_KEPT = 50
"""Changes that the page lists, at the most."""
_PAGE, _PART = "", "board"
_HEADERS = {
    "Content-Security-Policy": html.security_policy(),
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class WebView:
    """The page, and lines on a stream with its address and each change.

    `port` 0: the kernel picks one. Raises UsageError if the port is not available.
    """

    def __init__(self, stream: IO[str], port: int = 0) -> None:
        self._server = _listen(port)
        self._lines = live.Lines(stream, with_output=False)
        self._changes = Changes()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)

    @property
    def url(self) -> str:
        """Return the address of the page."""
        return f"http://{HOST}:{self._server.port}/{self._server.token}/"

    def __enter__(self) -> Self:
        self._lines.__enter__()
        port = self._server.port
        self._lines.line(
            f"ddplaunch: {self.url} shows the job until it ends; Ctrl-C stops the page, not the job"
        )
        self._lines.line(
            f"ddplaunch: from another machine, run `ssh -L {port}:{HOST}:{port} {socket.gethostname()}` and "
            "open the same address"
        )
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        job = self._server.job
        if job is not None and job.state.ended and self._server.was_read:
            self._server.end_was_read.wait(_FAREWELL)
        self._server.shutdown()
        self._server.server_close()
        self._lines.__exit__(kind, error, trace)

    def show(self, job: Job) -> None:
        now = time.time()
        clock = time.strftime("%H:%M:%S", time.localtime(now))
        self._server.changes.extendleft(f"{clock}  {line}" for line in self._changes.lines(job, now))
        self._server.job = job
        self._lines.show(job)


class _Server(ThreadingHTTPServer):
    """The server, with what its requests need. `job`: as it is now; None: not known yet."""

    daemon_threads = True  # a client that sends nothing must not delay the end

    def __init__(self, port: int) -> None:
        super().__init__((HOST, port), _Request)
        self.port: int = self.server_address[1]
        self.token = secrets.token_urlsafe(24)
        self.job: Job | None = None
        self.changes: deque[str] = deque(maxlen=_KEPT)
        self.was_read = False
        self.end_was_read = threading.Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a client that has gone away."""


class _Request(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "ddplaunch", ""
    timeout = _REQUEST

    def do_GET(self) -> None:
        """Answer with the page, or with the part of it that changes; 404 for anybody who does not know the
        address.
        """
        token, _, name = self.path.removeprefix("/").partition("/")
        job = self.server.job
        known = secrets.compare_digest(token.encode("utf-8", "replace"), self.server.token.encode())
        if not known or name not in (_PAGE, _PART):
            self._answer(HTTPStatus.NOT_FOUND, "not found\n", "text/plain")
        elif job is None:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "nothing is known about the job yet\n", "text/plain")
        else:
            render = html.live_page if name == _PAGE else html.live_part
            text = render(board.make_board(job, time.time()), list(self.server.changes))
            self.server.was_read = True  # set at once: the job may end while this is being sent
            self._answer(HTTPStatus.OK, text, "text/html")
            if job.state.ended:
                self.server.end_was_read.set()

    do_HEAD = do_GET  # noqa: N815 - so http.server calls it

    def _answer(self, status: HTTPStatus, text: str, kind: str) -> None:
        body = text.encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in its base class
        """Print nothing, because the log would contain the address."""


def _listen(port: int) -> _Server:
    try:
        return _Server(port)
    except OSError as error:
        raise UsageError(
            f"port {port} on {HOST} is not available: {error.strerror}",
            hint="leave out --port to use any free port",
        ) from error
