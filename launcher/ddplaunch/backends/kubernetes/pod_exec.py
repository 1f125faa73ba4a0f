"""Runs a command in a container of a running pod."""

from __future__ import annotations

import ssl
import time
from typing import Any, NamedTuple
from urllib.parse import urlencode

from ddplaunch.backends import files
from ddplaunch.backends.kubernetes import objects
from ddplaunch.backends.kubernetes.api import Api

LIMIT = 45.0
"""Seconds for new evidence of all ranks, collected in a container with a tenth of a CPU."""
_CONNECT = 10.0
_OUT, _END = 1, 3
_TEXT, _BINARY, _CLOSE = 1, 2, 8


class NotAllowedError(Exception):
    """The user may not use pods/exec, or the server does not offer it."""


class Ran(NamedTuple):
    """Exit code and output of a command. `code` None: the connection ended first."""

    code: int | None
    out: str


def run(
    api: Api, namespace: str, pod: str, container: str, words: list[str], limit: float = LIMIT
) -> Ran | None:
    """Run a command in a container; return None where it cannot run now. Raises NotAllowedError."""
    import websocket

    query = [("command", word) for word in words]
    query += [("container", container), ("stdout", "true"), ("stderr", "false"), ("stdin", "false")]
    path = f"{objects.collection('v1', 'pods', namespace)}/{pod}/exec"
    url = f"{api.place.server.replace('http', 'ws', 1)}{path}?{urlencode(query)}"
    try:
        connection = _opened(api, url)
    except websocket.WebSocketBadStatusException as error:
        if error.status_code in (401, 403, 405):
            raise NotAllowedError from error
        return None
    except (websocket.WebSocketException, OSError):
        return None
    try:
        return _converse(connection, time.monotonic() + limit)
    except (websocket.WebSocketException, OSError, ValueError):
        return None
    finally:
        connection.shutdown()


def _opened(api: Api, url: str) -> Any:
    """Return a connected WebSocket with the client's credentials, proxy and subprotocols, and a time limit.

    The client's own create_websocket() has no limit: a silent server would block it for ever.
    """
    import certifi
    import websocket
    from kubernetes.stream import ws_client

    ours = api.configuration
    tls = {"certfile": ours.cert_file, "keyfile": ours.key_file, "server_hostname": ours.tls_server_name}
    if ours.verify_ssl:
        tls |= {"cert_reqs": ssl.CERT_REQUIRED, "ca_certs": ours.ssl_ca_cert or certifi.where()}
        tls |= {"check_hostname": ours.assert_hostname}
    else:
        tls |= {"cert_reqs": ssl.CERT_NONE}
    options: dict[str, Any] = {}
    if ours.proxy or ours.proxy_headers:
        options = ws_client.websocket_proxycare(options, ours, url, {})  # type: ignore[no-untyped-call]
    return websocket.create_connection(
        url,
        timeout=_CONNECT,
        sslopt={name: value for name, value in tls.items() if value is not None},
        header={name: value for name, value in api.headers().items() if name == "authorization"},
        subprotocols=[ws_client.V5_CHANNEL_PROTOCOL, ws_client.V4_CHANNEL_PROTOCOL],
        **options,
    )


def _converse(connection: Any, deadline: float) -> Ran:
    out = bytearray()
    code: int | None = None
    while (left := deadline - time.monotonic()) > 0:
        connection.settimeout(left)
        opcode, data = connection.recv_data()
        if opcode == _CLOSE:
            break
        if opcode not in (_TEXT, _BINARY) or not data:
            continue
        if data[0] == _OUT:
            out += data[1:]
            if len(out) > files.MAX_BYTES:
                break
        elif data[0] == _END:
            code = _code(data[1:])
    return Ran(code, out.decode("utf-8", "replace"))


def _code(data: bytes) -> int:
    result = files.parse(data)
    if result.get("status") == "Success":
        return 0
    causes = (result.get("details") or {}).get("causes") or []
    code = next((each["message"] for each in causes if each.get("reason") == "ExitCode"), "")
    return int(code) if code.isdecimal() else 126
