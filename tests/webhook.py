"""A real HTTP server on loopback in the place of somebody's webhook, for tests."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.busy import BUSY

SECRET = "T0K3N-of-the-channel"


class Webhook:
    """Answers each request with the next of `answers`, the last one for ever after.

    An answer is a status, or "slow" for none as long as the server is up, or "hang up".
    """

    def __init__(self, *answers: int | str) -> None:
        self.got: list[dict[str, Any]] = []
        self.over = threading.Event()
        webhook, left = self, list(answers or (200,))

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                webhook.got.append({"path": self.path, **json.loads(body)})
                answer = left.pop(0) if len(left) > 1 else left[0]
                if answer == "slow":
                    webhook.over.wait()
                elif answer != "hang up":
                    self.send_response(int(answer))
                    self.send_header("Location", f"{webhook.url}/elsewhere")
                    self.end_headers()

            def log_message(self, *_: object) -> None:
                """Stay silent."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/{SECRET}"

    def texts(self) -> list[str]:
        return [each["text"] for each in self.got]

    def wait_for(self, count: int) -> None:
        """Wait until so many requests have come, and fail when they do not."""
        deadline = time.monotonic() + BUSY * 20.0
        while len(self.got) < count:
            assert time.monotonic() < deadline, self.got
            time.sleep(0.02)


@contextmanager
def webhook(*answers: int | str) -> Iterator[Webhook]:
    """A webhook that is up meanwhile."""
    made = Webhook(*answers)
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    try:
        yield made
    finally:
        made.over.set()
        made.server.shutdown()
        thread.join()
        made.server.server_close()
