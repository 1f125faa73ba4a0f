"""What a webhook, or a cluster's API server, answers to a message of the hub's: a real server on loopback."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz import mutate
from tests.fuzz.target import Target
from tests.webhook import SECRET

from ddplaunch.agent.platforms import kubernetes
from ddplaunch.agent.system import delivery

_BODY = '{"kind": "Status", "message": "events is forbidden: cannot create", "code": 403}'
_ANSWERS = (
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    f"HTTP/1.1 302 Found\r\nLocation: /elsewhere/{SECRET}\r\n\r\n",
    "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=x\r\n\r\n",
    f"HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n50\r\n{_BODY}\r\n0\r\n\r\n",
    "HTTP/1.0 500 Oh\r\n\r\n",
)
_WAIT = 5.0


class Answer(Target):
    """Status lines, headers and bodies that are broken, cut or too long; and the API server's sentence."""

    def __init__(self, folder: Path) -> None:
        self._answer = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/{SECRET}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def make(self, random: Random) -> Any:
        return [mutate.text(random, random.choice(_ANSWERS), ()), mutate.text(random, _BODY, ())]

    def feed(self, given: Any) -> None:
        answer, body = given
        self._answer = answer.encode("utf-8", "surrogatepass")
        try:
            delivery.post(self._url, b"{}")
            said = ""
        except delivery.UndeliveredError as error:
            said = str(error)
        assert SECRET not in said
        assert len(kubernetes._answer_words(body.encode("utf-8", "surrogatepass"))) <= 1000

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection, contextlib.suppress(OSError):
                    connection.settimeout(_WAIT)
                    connection.recv(1 << 16)
                    connection.sendall(self._answer)
