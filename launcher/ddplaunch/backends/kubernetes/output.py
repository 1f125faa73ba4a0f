"""Reads the logs of a job's containers: first all that is there, by time, then new lines, without a gap.

Each line has a time, so a stream that breaks can go on after the last line that was read.
"""

from __future__ import annotations

import heapq
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, NamedTuple

from ddplaunch.agent.contract import Bundle, Marks
from ddplaunch.agent.text.quantities import some
from ddplaunch.backends import files
from ddplaunch.backends.job import Selection
from ddplaunch.backends.kubernetes import objects
from ddplaunch.backends.kubernetes.api import Api, RefusedError, SilentError
from ddplaunch.backends.kubernetes.objects import GATE, HUB, TRAINER, Json
from ddplaunch.backends.kubernetes.queries import ApiState

FOLLOWED = 128
"""Nodes whose logs are followed. Each takes a connection."""
_AT_ONCE = 8
_SILENCE = 3600.0
_PAUSE = 1.0
_DRAIN = 10.0
"""Seconds for streams to end after their containers have ended."""
_OWN = re.compile(rb"\[\d+(?:/\w+)?\]")
_CHUNK = 1 << 16

Stamp = tuple[float, int]
"""Seconds and nanoseconds: one float is too coarse for both."""


class Stream(NamedTuple):
    """One run of one container. `node`: None for a job of others."""

    node: int | None
    pod: str
    container: str
    life: int  # restarts before this run; -1: the previous run

    @property
    def key(self) -> tuple[str, str, int]:
        return self.pod, self.container, self.life


class Output:
    """A `lines.LogSource` of all wanted containers. `fetch` is called often, so it must not block.

    `foreign`: the job is not ours, so that all containers of all its pods are wanted.
    """

    def __init__(
        self,
        api: Api,
        fetch: Callable[[], ApiState],
        wanted: Selection,
        *,
        follow: bool,
        foreign: bool = False,
        over: Callable[[], bool],
        wake: Callable[[], None] = lambda: None,
        keep: Callable[[Bundle], None] = lambda _: None,
    ) -> None:
        self._api = api
        self._fetch = fetch
        self._wanted = wanted
        self._follow = follow
        self._foreign = foreign
        self._over = over
        self.wake = wake
        self.keep = keep
        self._logs: dict[tuple[str, str, int], _ContainerLog] = {}
        self.fresh: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._state: ApiState | None = None

    def present(self) -> Iterator[bytes]:
        over = self._over()
        begun = self._state is not None
        state = self._state = self._fetch()
        if not begun:
            yield from self._everything(state)
        else:
            for stream in self._streams(state):
                if stream.key not in self._logs:
                    self._log(state, stream).follow()
        if over:
            deadline = time.monotonic() + _DRAIN
            for log in self._logs.values():
                # A container that still runs after the job's end is on a machine that does not answer.
                log.join(0.0 if self.runs(log.stream) else max(0.0, deadline - time.monotonic()))
        while True:
            try:
                yield self.fresh.get_nowait()
            except queue.Empty:
                return

    def rest(self) -> Iterator[bytes]:
        return iter(())  # `present` yields whole lines only

    def _everything(self, state: ApiState) -> Iterator[bytes]:
        """Yield what all containers have printed so far, by time, and then follow each one from there."""
        streams = self._streams(state)
        logs = [self._log(state, stream) for stream in streams]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            texts = list(pool.map(lambda log: log.present(), logs))
        for _, line in heapq.merge(*texts, key=lambda each: each[0]):
            yield line
        if self._over() and (lost := self._without_pod(state)):
            whose = some("node", lost)
            may = ", if there was any" if objects.is_elastic(state.job) else ""
            # When a Job fails, its controller deletes the pods that still run, and their logs with them.
            gone = f"the output of {whose} is gone{may}: Kubernetes deleted it with the pod"
            yield f"[ddplaunch] {gone}".encode()
        if self._follow:
            for log in logs:
                log.follow()
            if len(self._pods(state)) > FOLLOWED:
                others = b"" if self._foreign else b"; --node names others"
                yield b"[ddplaunch] only the first %d pods are followed%s" % (FOLLOWED, others)

    def _pods(self, state: ApiState) -> Sequence[Json]:
        return (*state.pods, *state.others) if self._foreign else state.pods

    def _without_pod(self, state: ApiState) -> set[int]:
        if self._foreign:
            return set()
        nodes = set(range(state.nodes)) - {objects.node(pod) for pod in state.pods}
        return nodes if self._wanted.nodes is None else nodes & self._wanted.nodes

    def _log(self, state: ApiState, stream: Stream) -> _ContainerLog:
        base = objects.collection("v1", "pods", state.namespace)
        log = _ContainerLog(self._api, f"{base}/{stream.pod}/log", stream, self)
        self._logs[stream.key] = log
        return log

    def _streams(self, state: ApiState) -> list[Stream]:
        """Return the streams of all wanted containers that have started, and of their previous runs."""
        found = []
        pods = [pod for pod in self._pods(state) if self._is_wanted(pod)]
        for pod in pods[:FOLLOWED] if self._follow else pods:
            node = None if self._foreign else objects.node(pod)
            statuses = objects.containers(pod)
            for name in statuses if node is None else self._containers(node):
                status = statuses.get(name) or {}
                life = int(status.get("restartCount") or 0)
                if (status.get("state") or {}).keys() & {"running", "terminated"}:
                    found.append(Stream(node, objects.name(pod), name, life))
                if life and (objects.name(pod), name, life - 1) not in self._logs:
                    found.append(Stream(node, objects.name(pod), name, life - 1)._replace(life=-1))
        return found

    def runs(self, stream: Stream) -> bool:
        """Whether this run of the container goes on, by the last state. The streams' threads call this."""
        pods = self._pods(self._state) if self._state is not None and self._state.owner is not None else ()
        pod = next((each for each in pods if objects.name(each) == stream.pod), {})
        status = objects.containers(pod).get(stream.container) or {}
        return "running" in (status.get("state") or {}) and status.get("restartCount", 0) == stream.life

    def _is_wanted(self, pod: Json) -> bool:
        nodes = self._wanted.nodes
        return nodes is None or objects.node(pod) in nodes

    def _containers(self, node: int) -> Sequence[str]:
        if self._wanted.ranks is not None:
            return (TRAINER,)
        hub = [HUB] if node == 0 and self._wanted.nodes is None else []
        # While you follow the job, the hub prints what the gates of all nodes find.
        gate = [GATE] if not self._follow or self._wanted.nodes is not None else []
        return (*hub, *gate, TRAINER)


class _ContainerLog:
    """The log of one stream. A previous run is read once. A current one can be followed until it ends."""

    def __init__(self, api: Api, path: str, stream: Stream, output: Output) -> None:
        self._api = api
        self._path = path
        self.stream = stream
        self._output = output
        self._last: Stamp = (0.0, 0)
        self._same = 0  # lines with the time of `_last`
        self._bundle: list[str] = []  # lines of the bundle that is being printed
        self._thread: threading.Thread | None = None

    def present(self) -> list[tuple[Stamp, bytes]]:
        """Return the lines that are there; none if the log is gone. Raises ClusterError."""
        found: list[tuple[Stamp, bytes]] = []
        try:
            self._read({}, lambda at, line: found.append((at, line)))
        except RefusedError as error:
            if error.status not in (400, 404, 410, 500):
                raise
        return found

    def follow(self) -> None:
        """Read the stream from here on in a thread."""
        if self.stream.life >= 0:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def join(self, seconds: float) -> None:
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            try:
                self._read({"follow": "true"}, lambda _, line: self._output.fresh.put(line))
            except SilentError:
                pass
            except RefusedError as error:
                if error.status in (404, 410):
                    break
            self._output.wake()
            if not self._output.runs(self.stream):
                break
            time.sleep(_PAUSE)  # a proxy may also have closed the stream

    def _read(self, query: dict[str, Any], put: Callable[[Stamp, bytes], None]) -> None:
        query = {"container": self.stream.container, "timestamps": "true", **query}
        if self.stream.life < 0:
            query["previous"] = "true"
        if self._last[0]:
            query["sinceTime"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._last[0]))
        skip, same = self._last, self._same  # lines up to here have been read
        with self._api.stream(self._path, "read the log", query, _SILENCE) as response:
            again = 0
            for raw in _lines(response):
                at, text = stamped(raw)
                if at < skip:
                    continue
                if at == skip:
                    again += 1
                    if again <= same:
                        continue
                self._same = self._same + 1 if at == self._last else 1
                self._last = at
                line = self._labelled(text)
                if line is not None:
                    put(at, line)

    def _labelled(self, text: bytes) -> bytes | None:
        """Return the line with the label that the agent adds elsewhere; None: the line is part of a
        bundle.
        """
        stream = self.stream
        if stream.node is None:
            return b"[%s/%s] %s" % (stream.pod.encode(), stream.container.encode(), text)
        if stream.container == HUB:
            word = text.strip().decode("utf-8", "replace")
            if not self._bundle and word != Marks.BUNDLE:
                return b"[hub] " + text
            self._bundle.append(word)
            if word == Marks.BUNDLE_END:
                # When a pod fails, the Job controller deletes the others. One may be the hub's, and its log
                # goes with it.
                bundle = files.printed_bundle(self._bundle)
                self._bundle = []
                if bundle is not None:
                    self._output.keep(bundle)
            return None
        if stream.container == GATE:
            return b"[%d/gate] %s" % (stream.node, text)
        return text if _OWN.match(text) else b"[%d] %s" % (stream.node, text)


def _lines(response: Any) -> Iterator[bytes]:
    """Yield whole lines, and at the end a last line that has no newline."""
    begun = b""
    for chunk in response.stream(_CHUNK):
        *whole, begun = (begun + chunk).split(b"\n")
        yield from whole
    if begun:
        yield begun


def stamped(raw: bytes) -> tuple[Stamp, bytes]:
    """Return the time and the text of a line such as `2026-11-21T11:00:00.123456789Z text`."""
    stamp, _, text = raw.partition(b" ")
    match = re.fullmatch(rb"([^.]+?)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)", stamp)
    try:
        assert match is not None
        seconds = datetime.fromisoformat((match[1] + match[3]).decode()).timestamp()
    except (AssertionError, ValueError):
        return (0.0, 0), raw
    return (seconds, int((match[2] or b"0").ljust(9, b"0"))), text
