"""An API server with pods in which the agent is run, as far as it prints."""

from __future__ import annotations

import base64
import hashlib
import zlib
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.unit.backends.kubernetes.api_server import Server

from ddplaunch.agent.contract import NodeEvidence, Phase, RankEvidence, codec

JOB = "kubernetes://team/job/llm"
ABSENT = (
    "Internal error occurred: OCI runtime exec failed: exec failed: unable to start container process: "
    'exec: "python3": executable file not found in $PATH: unknown'
)


def pod(name: str, *containers: str, **more: Any) -> dict[str, Any]:
    """A pod that runs, as a list has it."""
    return {
        "metadata": {"name": name, "namespace": "team", **more.pop("metadata", {})},
        "spec": {"containers": [{"name": each} for each in containers or ("main",)], "nodeName": "worker1"},
        "status": {"phase": "Running", **more},
    }


def statuses(**state: Any) -> list[dict[str, Any]]:
    return [{"name": "main", "state": state}]


def evidence(*ranks: int, size: int = 2, missing: tuple[str, ...] = ()) -> NodeEvidence:
    """A container's, whose ranks have been still for a minute."""
    each = [
        RankEvidence(rank, 0, 7, True, stuck_for=60, still_for=60, world_size=size, numbered_by="environment")
        for rank in ranks
    ]
    return NodeEvidence(0, "a-host", 0.0, Phase.RUNNING, each, missing=list(missing))


class Pod:
    """What its containers do with a command, and the agent that it got."""

    def __init__(
        self, prints: NodeEvidence | None = None, fails: str = "", status: int = 101, wants: str = ""
    ) -> None:
        self.prints, self.fails, self.status, self.wants = prints, fails, status, wants
        self.container = ""
        self.words: list[str] = []
        self.got = b""


class Cluster(Server):
    """Pods of the Job llm."""

    protocol_version = "HTTP/1.1"
    pods: dict[str, Pod]
    listed: list[dict[str, Any]]
    states: dict[str, list[dict[str, Any]]]
    """By pod, those of the container that is added to it, one after the other; it runs, if there are none."""
    refuses: dict[str, tuple[int, str]]
    """By pod, how the server answers who wants to add a container."""

    def got(self) -> None:
        """List them, or run a command."""
        path, query = urlsplit(self.path)[2:4]
        if path.endswith("/exec"):
            return self.run(self.pods[path.split("/")[-2]], parse_qs(query))
        one = next((each for each in self.listed if path.endswith(f"/pods/{each['metadata']['name']}")), None)
        if one is not None:
            self.proceed(one)
            return self.answer(200, one)
        return self.answer(200, {"kind": "PodList", "items": self.listed})

    def proceed(self, pod: dict[str, Any]) -> None:
        """The container that was added last comes into its next state."""
        states = self.states.get(pod["metadata"]["name"], [])
        for each in pod["status"].get("ephemeralContainerStatuses", [])[-1:]:
            each["state"] = states.pop(0) if states else {"running": {}}

    def patched(self, body: dict[str, Any]) -> None:
        """Add a container, as the server does, which merges them by their names."""
        name = self.path.removesuffix("/ephemeralcontainers").rpartition("/")[2]
        if name in self.refuses:
            status, message = self.refuses[name]
            return self.answer(status, {"message": message})
        (added,) = body["spec"]["ephemeralContainers"]
        one = next(each for each in self.listed if each["metadata"]["name"] == name)
        one["spec"].setdefault("ephemeralContainers", []).append(added)
        one["status"].setdefault("ephemeralContainerStatuses", []).append({"name": added["name"]})
        return self.answer(200, one)

    def run(self, pod: Pod, query: dict[str, list[str]]) -> None:
        pod.container, pod.words = query["container"][0], query["command"]
        self.close_connection = True
        if pod.status != 101:
            user = 'User "ann" cannot get resource "pods/exec" in API group "" in the namespace "team"'
            return self.answer(pod.status, {"message": user})
        digest = hashlib.sha1(
            f"{self.headers['Sec-WebSocket-Key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()
        )
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(digest.digest()).decode())
        self.send_header("Sec-WebSocket-Protocol", "v4.channel.k8s.io")
        self.end_headers()
        if pod.prints is not None:
            self.send(1, b"rea")  # a line may come in parts
            self.send(1, f"dy. {pod.wants}\n".encode())
            py_spy, _, agent = pod.words[pod.words.index("-c") + 2 :][:3]
            size = int(agent) + (int(py_spy) if pod.wants else 0)
            while len(pod.got) < size:
                pod.got += self.received()
            packed = base64.b64encode(zlib.compress(codec.text(pod.prints).encode()))
            self.send(1, packed[:50] + b"\n")
            self.send(1, packed[50:] + b"\n")
            return self.send(3, b'{"status": "Success"}')
        self.send(3, codec.text({"status": "Failure", "message": pod.fails}).encode())
        self.wfile.write(bytes([0x88, 0]))  # close
        return None

    def send(self, channel: int, data: bytes) -> None:
        """Send a frame, which a server does not mask."""
        length = 1 + len(data)
        head = bytes([0x82, length]) if length < 126 else bytes([0x82, 126]) + length.to_bytes(2, "big")
        self.wfile.write(head + bytes([channel]) + data)
        self.wfile.flush()

    def received(self) -> bytes:
        """The next frame of standard input."""
        length = self.rfile.read(2)[1] & 0x7F
        if length >= 126:
            length = int.from_bytes(self.rfile.read(2 if length == 126 else 8), "big")
        mask, data = self.rfile.read(4), self.rfile.read(length)
        repeated = (mask * (len(data) // 4 + 1))[: len(data)]
        plain = (int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")).to_bytes(len(data), "big")
        assert 0 == plain[0]
        return plain[1:]


def add(cluster: type[Cluster], name: str, does: Pod, *containers: str, **status: Any) -> Pod:
    """A pod, in the order of their names."""
    cluster.pods[name] = does
    cluster.listed.append(pod(name, *containers, **status))
    return does
