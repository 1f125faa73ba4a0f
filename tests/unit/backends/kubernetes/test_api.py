"""Finding the cluster, and what is said when that fails: with the real client, and sockets of our own."""

from __future__ import annotations

import http.server
import logging
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.unit.backends.kubernetes.api_server import Clock, Server, kubeconfig

from ddplaunch.backends.kubernetes import api as apis
from ddplaunch.backends.kubernetes.api import Api, RefusedError, SilentError
from ddplaunch.backends.local.host import wait_until
from ddplaunch.cli import main as cli
from ddplaunch.errors import ClusterError, UsageError


@pytest.fixture(name="deaf")
def _deaf() -> Iterator[int]:
    """A port that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


def test_the_current_context_says_where(tmp_path: Path) -> None:
    """Server, context and namespace are those that kubectl would take; nothing is asked for that."""
    kubeconfig(tmp_path)

    assert ("https://127.0.0.1:1", "lab", "team") == Api().place


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("current-context: gone\ncontexts: []\nclusters: []\nusers: []\n", "Expected object with name gone"),
        ("{", "is not YAML"),
        ("contexts: []\n", "current-context"),
    ],
)
def test_a_kubeconfig_that_names_no_cluster(tmp_path: Path, text: str, said: str) -> None:
    """A wrong context, a broken file: each says what, and how to choose."""
    (tmp_path / "config").write_text(text)
    with pytest.raises(ClusterError) as error:
        _ = Api().place

    assert said in error.value.message
    assert "kubectl config" in error.value.hint or "fetch it again" in error.value.hint


def test_a_credential_plugin_that_fails_is_told(tmp_path: Path) -> None:
    """The client only logs it, and would go on as nobody."""
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}
    kubeconfig(tmp_path, exec={**plugin, "command": "no-such-plugin"})
    with pytest.raises(ClusterError) as error:
        _ = Api().place

    assert "context lab gives no credentials" in error.value.message
    assert "no-such-plugin" in error.value.message
    assert "log in again" in error.value.hint


def test_what_other_threads_log_is_no_error_of_the_credentials(tmp_path: Path) -> None:
    """A program that trains, or serves, logs errors of its own while a plugin works."""
    version = "client.authentication.k8s.io/v1"
    token = f'{{"apiVersion": "{version}", "kind": "ExecCredential", "status": {{"token": "t"}}}}'
    plugin = f"touch begun; while [ ! -e go ]; do sleep 0.01; done; echo '{token}'"
    words = {"command": "sh", "args": ["-c", f"cd {tmp_path}; {plugin}"]}
    kubeconfig(tmp_path, exec={"apiVersion": version, "interactiveMode": "Never", **words})

    def log() -> None:
        wait_until((tmp_path / "begun").exists, 30)
        logging.getLogger("training").error("the loss is not a number")
        (tmp_path / "go").touch()

    with ThreadPoolExecutor() as pool:
        logged = pool.submit(log)
        place = Api().place
        logged.result()

    assert "lab" == place.context


@pytest.mark.parametrize(
    ("server", "why"),
    [
        ("https://127.0.0.1:1", "the connection is refused"),
        ("https://no-such-host.invalid", "its name does not resolve"),
        ("http://127.0.0.1:{deaf}", "it does not answer"),
    ],
)
def test_a_server_that_cannot_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaf: int, server: str, why: str
) -> None:
    """Within bounds, with the reason, and with the context that names it."""
    monkeypatch.setattr(apis, "FIRST_PATIENCE", 1.0)
    monkeypatch.setattr(apis, "_READ", 1.0)
    address = server.format(deaf=deaf)
    kubeconfig(tmp_path, address)
    with pytest.raises(SilentError) as error:
        Api().get("/version", "tell its version")

    assert f"the API server {address} (context lab) cannot be reached: {why}" in error.value.message


class _Broken(Server):
    """One that must ask a webhook which is gone."""

    asked = 0

    def got(self) -> None:
        type(self).asked += 1
        said = 'Internal error occurred: failed calling webhook "pods.example.com": connection refused'
        self.answer(500, {"message": said, "reason": "InternalError"})


def test_a_broken_webhook_is_not_waited_for_as_long_as_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is well, and nobody knows whether the webhook will ever be: that is said, and soon."""
    clock = Clock()
    begun = clock.now
    monkeypatch.setattr(apis, "time", clock)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Broken) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        kubeconfig(tmp_path, f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(RefusedError) as error:
            Api().get("/version", "tell its version", patience=apis.PATIENCE)
        server.shutdown()

    assert 10.0 == clock.now - begun  # of 120
    assert 11 == _Broken.asked
    assert "admission webhook pods.example.com does not answer" in error.value.message


class _Young(Server):
    """One that has just started, and has not read yet who may do what; then one that allows nothing else."""

    asked = 0

    def got(self) -> None:
        type(self).asked += 1
        said = 'User "me" cannot get resource "jobs" in API group "batch" in the namespace "team"'
        status = 200 if _Young.asked == 3 else 403
        self.answer(status, {} if status == 200 else {"message": said, "reason": "Forbidden"})


def test_a_refusal_is_believed_once_the_server_has_allowed_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it has read all roles, it refuses everybody."""
    clock = Clock()
    begun = clock.now
    monkeypatch.setattr(apis, "time", clock)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Young) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        kubeconfig(tmp_path, f"http://127.0.0.1:{server.server_port}")
        api = Api()
        api.get("/", "look")
        assert (3, 2.0) == (_Young.asked, clock.now - begun)
        with pytest.raises(RefusedError, match=r"you \(me\) may not get jobs\.batch"):
            api.get("/", "look")
        assert 4 == _Young.asked
        with pytest.raises(RefusedError, match=r"you \(me\) may not get jobs\.batch"):
            Api().get("/", "look")
        assert (8, 5.0) == (_Young.asked, clock.now - begun)
        server.shutdown()


def test_without_the_client_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever installed the launcher alone is told what to add."""
    kubeconfig(tmp_path)
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(UsageError) as error:
        _ = Api().place

    assert "the Python package `kubernetes`" in error.value.message
    assert error.value.hint.startswith("`pip install '.[kubernetes]'` in a clone of ddplaunch installs it; ")


def test_the_command_line_ends_with_106(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In one sentence, with a hint, and without a traceback."""
    assert 106 == cli.main(["list", "--to", "kubernetes"])

    said = capsys.readouterr()
    assert "" == said.out
    assert said.err.startswith(f"error: there is no kubeconfig at {tmp_path / 'config'}")
    assert "KUBECONFIG" in said.err.partition("\n\nhint: ")[2]
