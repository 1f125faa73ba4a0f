"""An API server of the test's own, and a configuration that leads to it."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml


def kubeconfig(folder: Path, server: str = "https://127.0.0.1:1", **user: Any) -> Path:
    """A file as providers write it."""
    path = folder / "config"
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "lab",
                "contexts": [{"name": "lab", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": user or {"token": "secret"}}],
            }
        )
    )
    return path


class Clock:
    """Stands in for `time`: what passes is what was slept, however busy this machine is."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    time = monotonic

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Server(http.server.BaseHTTPRequestHandler):
    """An API server, as far as it answers."""

    def do_GET(self) -> None:
        self.got()

    def do_PATCH(self) -> None:
        self.patched(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def do_POST(self) -> None:
        """Named by http.server. Whatever a user asks to be allowed is."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(201, {"status": {"allowed": True}})

    def do_DELETE(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.deleted()

    def deleted(self) -> None:
        raise NotImplementedError

    def patched(self, body: dict[str, Any]) -> None:
        raise NotImplementedError

    def got(self) -> None:
        raise NotImplementedError

    def answer(self, status: int, told: dict[str, Any]) -> None:
        body = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """No word of it in the tests' output."""


@contextmanager
def served(server: type[Server], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """KUBECONFIG leads to this server meanwhile."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), server) as running:
        path = kubeconfig(folder, f"http://127.0.0.1:{running.server_address[1]}")
        monkeypatch.setenv("KUBECONFIG", str(path))
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield
        running.shutdown()
