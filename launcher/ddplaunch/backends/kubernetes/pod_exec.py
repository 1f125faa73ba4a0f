"""Runs a command in a container of a running pod. All modules that ask a pod use it."""

from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlencode

from ddplaunch.backends import files
from ddplaunch.backends.kubernetes import objects
from ddplaunch.backends.kubernetes.api import Api

LIMIT = 45.0
"""Seconds for new evidence of all ranks, when it is collected in a container that has a tenth of a CPU."""
_CONNECT = 10.0
_CHUNK = 32 << 10
_MOST_ERRORS = 4 << 10
_IN, _OUT, _ERRORS, _END = 0, 1, 2, 3
_TEXT, _BINARY, _CLOSE = 1, 2, 8


class NotAllowedError(Exception):
    """The user may not use pods/exec, or the server does not offer it. The text is the server's message."""


class UnusableError(Exception):
    """The command could not be run in the pod. The text says why."""


class Ran(NamedTuple):
    """Exit code and output of a command. `code` None: the connection ended first.

    `errors`: what it wrote to stderr; if it did not start, why not.
    """

    code: int | None
    out: str
    errors: str = ""


def run(
    api: Api, namespace: str, pod: str, container: str, words: list[str], limit: float = LIMIT
) -> Ran | None:
    """Run a command in a container. Returns None if it cannot run now. Raises NotAllowedError."""
    try:
        return execute(api, namespace, pod, container, words, limit)
    except UnusableError:
        return None


def execute(
    api: Api,
    namespace: str,
    pod: str,
    container: str,
    words: list[str],
    limit: float = LIMIT,
    stdin: Callable[[str], bytes] | None = None,
) -> Ran:
    """Run a command in a container. Raises NotAllowedError and UnusableError.

    `stdin` gets the first line that the command prints and returns what the command is to read. So we know at
    once if a command does not start. The end of the input is not marked, because version 4 of the protocol
    cannot do that: the command counts the bytes.
    """
    connection = _connected(api, namespace, pod, container, words, with_input=stdin is not None)
    with _ended(connection, limit):
        return _converse(connection, time.monotonic() + limit, stdin)


def stream(
    api: Api, namespace: str, pod: str, container: str, words: list[str], silence: float
) -> Generator[bytes]:
    """Run a command in a container, and yield its output as it comes, of any length.

    Raises NotAllowedError, and UnusableError if it fails or is silent for so many seconds.
    """
    connection = _connected(api, namespace, pod, container, words, with_errors=True)
    errors = bytearray()
    with _ended(connection, silence):
        connection.settimeout(silence)
        while True:
            opcode, data = connection.recv_data()
            if opcode == _CLOSE:
                raise UnusableError("the connection was closed before the end")
            if opcode not in (_TEXT, _BINARY) or not data:
                continue
            if data[0] == _OUT:
                yield bytes(data[1:])
            elif data[0] == _ERRORS and len(errors) < _MOST_ERRORS:
                errors += data[1:]
            elif data[0] == _END:
                code, why = _end(data[1:])
                if code != 0:
                    text = objects.line(errors.decode("utf-8", "replace"))
                    raise UnusableError(text or why or f"the command ended with exit code {code}")
                return


@contextlib.contextmanager
def _ended(connection: Any, seconds: float) -> Iterator[None]:
    """Shut down a connection at the end. Raises UnusableError if it breaks or times out."""
    import websocket

    try:
        yield
    except websocket.WebSocketTimeoutException as error:
        raise UnusableError(f"nothing came within {seconds:.0f} s") from error
    except (websocket.WebSocketException, OSError, ValueError) as error:
        raise UnusableError(f"the connection broke: {objects.line(error)}") from error
    finally:
        connection.shutdown()


def _connected(
    api: Api,
    namespace: str,
    pod: str,
    container: str,
    words: list[str],
    *,
    with_input: bool = False,
    with_errors: bool = False,
) -> Any:
    """Return a WebSocket to a command that has been started. Raises NotAllowedError and UnusableError."""
    import websocket

    query = [("command", word) for word in words]
    query += [("container", container), ("stdout", "true")]
    query += [("stderr", str(with_input or with_errors).lower()), ("stdin", str(with_input).lower())]
    path = f"{objects.collection('v1', 'pods', namespace)}/{pod}/exec"
    url = f"{api.place.server.replace('http', 'ws', 1)}{path}?{urlencode(query)}"
    try:
        return _opened(api, url)
    except websocket.WebSocketBadStatusException as error:
        message = _message(error.resp_body or b"") or f"HTTP status {error.status_code}"
        if error.status_code in (401, 403, 405):
            raise NotAllowedError(message) from error
        raise UnusableError(message) from error
    except (websocket.WebSocketException, OSError) as error:
        raise UnusableError(f"no connection: {objects.line(error)}") from error


def _message(body: bytes) -> str:
    """Return the message of an API error; for a proxy's error, the beginning of its text."""
    try:
        return objects.line(files.parse(body).get("message"))
    except (ValueError, AttributeError):
        return objects.line(body[:200].decode("utf-8", "replace"))


def _opened(api: Api, url: str) -> Any:
    """Return a connected WebSocket with the client's credentials, proxy, subprotocols and a time limit.

    The client's own create_websocket() has no time limit: a silent server would block it for ever.
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


def _converse(connection: Any, deadline: float, stdin: Callable[[str], bytes] | None) -> Ran:
    import websocket

    out, errors = bytearray(), bytearray()
    code: int | None = None
    try:
        for data in _messages(connection, deadline):
            if data[0] == _OUT:
                out += data[1:]
                if len(out) > files.MAX_BYTES:
                    break
                if stdin is not None and b"\n" in out:
                    _send(connection, stdin(out.decode("utf-8", "replace")))
                    stdin = None
            elif data[0] == _ERRORS and len(errors) < _MOST_ERRORS:
                errors += data[1:]
            elif data[0] == _END:
                code, why = _end(data[1:])
                errors = errors or bytearray(why.encode())
    except websocket.WebSocketConnectionClosedException:
        if code is None:  # otherwise the end is known, but this server does not close as it should
            raise
    return Ran(code, out.decode("utf-8", "replace"), errors.decode("utf-8", "replace"))


def _messages(connection: Any, deadline: float) -> Iterator[bytes]:
    """Yield what the server sends until it closes. Each message begins with its channel."""
    while (left := deadline - time.monotonic()) > 0:
        connection.settimeout(left)
        opcode, data = connection.recv_data()
        if opcode == _CLOSE:
            return
        if opcode in (_TEXT, _BINARY) and data:
            yield bytes(data)


def _send(connection: Any, stdin: bytes) -> None:
    for at in range(0, len(stdin), _CHUNK):
        connection.send_binary(bytes([_IN]) + stdin[at : at + _CHUNK])


def _end(data: bytes) -> tuple[int, str]:
    """Return the exit code, and why the command ended with a code other than 0 or did not start."""
    result = files.parse(data)
    if result.get("status") == "Success":
        return 0, ""
    causes = (result.get("details") or {}).get("causes") or []
    code = next((each["message"] for each in causes if each.get("reason") == "ExitCode"), "")
    return int(code) if code.isdecimal() else 126, objects.line(result.get("message"))
