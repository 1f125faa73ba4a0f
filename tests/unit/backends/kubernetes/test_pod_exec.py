"""A command in a pod, by an API server that is mute, that refuses, and that runs it."""

from __future__ import annotations

import base64
import hashlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import websocket
from tests.unit.backends.kubernetes.api_server import kubeconfig

from ddplaunch.backends.kubernetes import pod_exec
from ddplaunch.backends.kubernetes.api import Api


@pytest.mark.timeout(20)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_server_that_is_mute_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """It takes the connection, and neither shakes hands nor answers."""
    monkeypatch.setattr(pod_exec, "_CONNECT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        kubeconfig(tmp_path, f"{scheme}://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))

        assert pod_exec.run(Api(), "lab", "digits-0", "hub", ["true"]) is None


def answered(request: str, status: str) -> bytes:
    """A server's answer to `request`: a refusal, or the output and the end of a command that succeeded."""
    if not status.startswith("101"):
        return f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode()
    key = next(line.split(": ")[1] for line in request.splitlines() if "Sec-WebSocket-Key" in line)
    digest = hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()
    lines = [f"HTTP/1.1 {status}", "Upgrade: websocket", "Connection: Upgrade"]
    lines += [f"Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}"]
    lines += ["Sec-WebSocket-Protocol: v5.channel.k8s.io", "", ""]
    frames = [(b"\x01out", websocket.ABNF.OPCODE_BINARY), (b'\x03{"status": "Success"}', 2), (b"", 8)]
    sent = [websocket.ABNF.create_frame(data, opcode).format() for data, opcode in frames]
    return b"".join(["\r\n".join(lines).encode(), *sent])


@contextmanager
def api_server(status: str, asked: list[str]) -> Iterator[int]:
    """The port of a server that answers one request, which it notes."""

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            data = b""
            while b"\r\n\r\n" not in data:
                data += connection.recv(4096)
            asked.append(data.decode())
            connection.sendall(answered(asked[0], status))

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("status", ["403 Forbidden", "101 Switching Protocols", "500 Internal Server Error"])
def test_a_refusal_is_told_from_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    """The request carries the token and asks for both protocols; the client's own class stays what it was."""
    from kubernetes.stream import ws_client

    asked: list[str] = []
    found: object
    with api_server(status, asked) as port:
        kubeconfig(tmp_path, f"http://127.0.0.1:{port}")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        try:
            found = pod_exec.run(Api(), "lab", "digits-0", "hub", ["true"])
        except pod_exec.NotAllowedError:
            found = "refused"

    assert {"4": "refused", "1": pod_exec.Ran(0, "out"), "5": None}[status[0]] == found
    assert "\r\nauthorization: Bearer " in asked[0]
    assert "Sec-WebSocket-Protocol: v5.channel.k8s.io,v4.channel.k8s.io\r\n" in asked[0]
    assert websocket.WebSocket is ws_client.WebSocket  # type: ignore[attr-defined]
