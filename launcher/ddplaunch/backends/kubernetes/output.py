"""The output of a job's containers: what is there in the order of time, then what comes, losing nothing.

Every line is known by its time, so a stream that breaks is taken up behind the last line that was seen.
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

from ddplaunch.agent.contract import Bundle
from ddplaunch.backends import printed
from ddplaunch.backends.job import Selection
from ddplaunch.backends.kubernetes import objects
from ddplaunch.backends.kubernetes.api import Api, SilentError
from ddplaunch.backends.kubernetes.api_errors import RefusedError
from ddplaunch.backends.kubernetes.objects import GATE, HUB, TRAINER, Json
from ddplaunch.backends.kubernetes.queries import ApiState

FOLLOWED = 128
"""Nodes whose logs are followed at once; each takes a connection."""
_AT_ONCE = 8
_SILENCE = 3600.0
_PAUSE = 1.0
_DRAIN = 10.0
"""Seconds for streams to end once their containers have."""
_OWN = re.compile(rb"\[\d+(?:/\w+)?\]")
_CHUNK = 1 << 16

Stamp = tuple[float, int]
"""Seconds, and nanoseconds: a float is too coarse for both."""


class Stream(NamedTuple):
    """One life of one container."""

    node: int
    pod: str
    container: str
    life: int  # how often it was started again before

    @property
    def key(self) -> tuple[str, str, int]:
        return self.pod, self.container, self.life


class Output:
    """A `lines.Source` of all the wanted containers. `look` is asked often, and answers at once."""

    def __init__(
        self,
        api: Api,
        look: Callable[[], ApiState],
        wanted: Selection,
        *,
        follow: bool,
        over: Callable[[], bool],
        hurry: Callable[[], None] = lambda: None,
        keep: Callable[[Bundle], None] = lambda _: None,
    ) -> None:
        self._api = api
        self._look = look
        self._wanted = wanted
        self._follow = follow
        self._over = over
        self.hurry = hurry
        self.keep = keep
        self._tails: dict[tuple[str, str, int], _Tail] = {}
        self.fresh: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._seen: ApiState | None = None

    def present(self) -> Iterator[bytes]:
        over = self._over()
        begun = self._seen is not None
        seen = self._seen = self._look()
        if not begun:
            yield from self._everything(seen)
        else:
            for stream in self._streams(seen):
                if stream.key not in self._tails:
                    self._tail(seen, stream).follow()
        if over:
            deadline = time.monotonic() + _DRAIN
            for tail in self._tails.values():
                # A container that still runs when the job is over is on a machine that does not answer.
                tail.join(0.0 if self.runs(tail.stream) else max(0.0, deadline - time.monotonic()))
        while True:
            try:
                yield self.fresh.get_nowait()
            except queue.Empty:
                return

    def rest(self) -> Iterator[bytes]:
        return iter(())  # every line has come whole

    def _everything(self, seen: ApiState) -> Iterator[bytes]:
        """Yield what all have printed so far, by time; then the streams are followed from there."""
        streams = self._streams(seen)
        tails = [self._tail(seen, stream) for stream in streams]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            texts = list(pool.map(lambda tail: tail.present(), tails))
        for _, line in heapq.merge(*texts, key=lambda each: each[0]):
            yield line
        if self._follow:
            for tail in tails:
                tail.follow()
            skipped = max(0, len(seen.pods) - FOLLOWED)
            if skipped:
                yield b"[ddplaunch] only the first %d nodes are followed; --node names others" % FOLLOWED

    def _tail(self, seen: ApiState, stream: Stream) -> _Tail:
        base = objects.collection("v1", "pods", seen.namespace)
        tail = _Tail(self._api, f"{base}/{stream.pod}/log", stream, self)
        self._tails[stream.key] = tail
        return tail

    def _streams(self, seen: ApiState) -> list[Stream]:
        """Return the streams of all wanted containers that have begun, earlier restarts included if kept."""
        found = []
        pods = [pod for pod in seen.pods if self._is_wanted(pod)]
        for pod in pods[:FOLLOWED] if self._follow else pods:
            node = objects.node(pod)
            assert node is not None
            for name in self._containers(node):
                told = objects.containers(pod).get(name) or {}
                life = int(told.get("restartCount") or 0)
                if (told.get("state") or {}).keys() & {"running", "terminated"}:
                    found.append(Stream(node, objects.name(pod), name, life))
                if life and (objects.name(pod), name, life - 1) not in self._tails:
                    found.append(Stream(node, objects.name(pod), name, life - 1)._replace(life=-1))
        return found

    def runs(self, stream: Stream) -> bool:
        """Whether that life of the container goes on, as far as was seen. For the streams' threads."""
        pods = self._seen.pods if self._seen is not None and self._seen.owner is not None else ()
        pod = next((each for each in pods if objects.name(each) == stream.pod), {})
        told = objects.containers(pod).get(stream.container) or {}
        return "running" in (told.get("state") or {}) and told.get("restartCount", 0) == stream.life

    def _is_wanted(self, pod: Json) -> bool:
        nodes = self._wanted.nodes
        return nodes is None or objects.node(pod) in nodes

    def _containers(self, node: int) -> Sequence[str]:
        if self._wanted.ranks is not None:
            return (TRAINER,)
        hub = [HUB] if node == 0 and self._wanted.nodes is None else []
        # While somebody watches, the hub tells what the gates of all nodes find.
        gate = [GATE] if not self._follow or self._wanted.nodes is not None else []
        return (*hub, *gate, TRAINER)


class _Tail:
    """One stream. `earlier` lives are read once; the others are followed until they end."""

    def __init__(self, api: Api, path: str, stream: Stream, output: Output) -> None:
        self._api = api
        self._path = path
        self.stream = stream
        self._output = output
        self._last: Stamp = (0.0, 0)
        self._same = 0  # lines of that very time
        self._bundle: list[str] = []  # lines of one that is being printed
        self._thread: threading.Thread | None = None

    def present(self) -> list[tuple[Stamp, bytes]]:
        """The lines that are there; none where the log is gone. Raises ClusterError."""
        found: list[tuple[Stamp, bytes]] = []
        try:
            self._read({}, lambda at, line: found.append((at, line)))
        except RefusedError as error:
            if error.status not in (400, 404, 410, 500):
                raise
        return found

    def follow(self) -> None:
        """Read the stream from here on, in a thread."""
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
            self._output.hurry()
            if not self._output.runs(self.stream):
                break
            time.sleep(_PAUSE)  # a stream may also end because something on the way has had enough of it

    def _read(self, query: dict[str, Any], put: Callable[[Stamp, bytes], None]) -> None:
        query = {"container": self.stream.container, "timestamps": "true", **query}
        if self.stream.life < 0:
            query["previous"] = "true"
        if self._last[0]:
            query["sinceTime"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._last[0]))
        skip, same = self._last, self._same  # lines up to here were seen
        with self._api.stream(self._path, "read the log", query, _SILENCE) as response:
            seen_of_skip = 0
            for raw in _lines(response):
                at, text = stamped(raw)
                if at < skip:
                    continue
                if at == skip:
                    seen_of_skip += 1
                    if seen_of_skip <= same:
                        continue
                self._same = self._same + 1 if at == self._last else 1
                self._last = at
                line = self._labelled(text)
                if line is not None:
                    put(at, line)

    def _labelled(self, text: bytes) -> bytes | None:
        """Return the line with the label that the agent gives elsewhere; None: it was not asked for."""
        stream = self.stream
        if stream.container == HUB:
            word = text.strip().decode("utf-8", "replace")
            if not self._bundle and word != printed.BEGIN:
                return b"[hub] " + text
            self._bundle.append(word)
            if word == printed.END:
                # When a pod fails, the Job's controller deletes the others, maybe the hub's, with its log.
                bundle = printed.bundle(self._bundle)
                self._bundle = []
                if bundle is not None:
                    self._output.keep(bundle)
            return None
        if stream.container == GATE:
            return b"[%d/gate] %s" % (stream.node, text)
        return text if _OWN.match(text) else b"[%d] %s" % (stream.node, text)


def _lines(response: Any) -> Iterator[bytes]:
    """Whole lines. A last one without its end has come as far as it ever will."""
    begun = b""
    for chunk in response.stream(_CHUNK):
        *whole, begun = (begun + chunk).split(b"\n")
        yield from whole
    if begun:
        yield begun


def stamped(raw: bytes) -> tuple[Stamp, bytes]:
    """Time and text of a line `2026-11-21T11:00:00.123456789Z text`."""
    stamp, _, text = raw.partition(b" ")
    match = re.fullmatch(rb"([^.]+?)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)", stamp)
    try:
        assert match is not None
        seconds = datetime.fromisoformat((match[1] + match[3]).decode()).timestamp()
    except (AssertionError, ValueError):
        return (0.0, 0), raw
    return (seconds, int((match[2] or b"0").ljust(9, b"0"))), text
