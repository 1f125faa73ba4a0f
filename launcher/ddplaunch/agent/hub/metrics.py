"""The job's metrics in Prometheus' text format, and the small server for them.

`hub` starts the server. It reads what the hub already knows: some twenty lines, however many nodes there are.
It takes no orders, and must not pass on anything that a rank has written.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
from collections import Counter
from typing import Callable, Optional

from ddplaunch.agent.contract import Phase
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.platforms import termination

_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LOCAL = "127.0.0.1"
_MOST = 16
"""Connections at a time."""
_REQUEST = 1 << 13
"""Bytes of a request."""
_SECONDS = 5.0
"""Seconds for a request to arrive, and for its answer to be read."""
_HELP = {
    "job_info": "The job whose hub this is.",
    "phase": "1 for the phase that the job is in.",
    "ranks": "Living ranks in the last heartbeats.",
    "since_progress_seconds": "Time since any living rank made progress.",
    "gate_duration_seconds": "Time from the opening of the gate to the release.",
    "step_duration_seconds": "A step in the last minute or so: of the fastest rank, the median, the slowest.",
    "verdicts": "Verdicts that hold now: notices, and at the end what has ended the job.",
}


def text(record: JobRecord, waits: list[float]) -> str:
    """Return the metrics. `waits`: for each living rank, the seconds since its last progress."""
    steps = sorted(rank.step for rank in record.present_paces() if rank.step is not None)
    codes = Counter(verdict.code for verdict in record.verdicts)
    quantiles = {"0": steps[0], "0.5": statistics.median(steps), "1": steps[-1]} if steps else {}
    about = {"attempt": str(record.attempt), "nodes": str(record.plan.nodes)}
    figures: dict[str, list[tuple[dict[str, str], Optional[float]]]] = {
        "job_info": [(about, 1)],
        "phase": [({"phase": phase}, int(phase == record.phase)) for phase in Phase.ORDER],
        "ranks": [({}, len(waits))],
        "since_progress_seconds": [({}, min(waits, default=None))],
        "gate_duration_seconds": [({}, record.gate_seconds)],
        "step_duration_seconds": [({"quantile": each}, quantiles[each]) for each in quantiles],
        "verdicts": [({"code": code}, codes[code]) for code in sorted(codes)],
    }
    lines = []
    for name, samples in figures.items():
        lines += [f"# HELP ddplaunch_{name} {_HELP[name]}", f"# TYPE ddplaunch_{name} gauge"]
        for labels, value in samples:
            if value is not None:
                all_labels = {"job_name": record.plan.job, **labels}
                inside = ",".join(f'{key}="{_escaped(each)}"' for key, each in all_labels.items())
                lines.append(f"ddplaunch_{name}{{{inside}}} {round(value, 6):g}")
    return "\n".join([*lines, ""])


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class Exporter:
    """Serves the metrics on the port that the plan names, if it names one."""

    def __init__(self, record: JobRecord, waits: Callable[[], list[float]]) -> None:
        self._record, self._waits = record, waits
        self._open = 0
        self._server: Optional[asyncio.AbstractServer] = None

    async def start(self) -> None:
        """Listen until `close`. If the port is taken, only the metrics are lost."""
        plan = self._record.plan.metrics
        if plan is None:
            return
        address = plan.address or (None if termination.wanted() else _LOCAL)
        try:
            self._server = await asyncio.start_server(self._answer, address, plan.port, limit=_REQUEST)
        except OSError as error:
            self._record.complain(f"no metrics: port {plan.port}: {error.strerror}")
        else:
            self._record.log(f"metrics are at http://{address or ''}:{plan.port}/metrics")

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        bad = (OSError, EOFError, ValueError, asyncio.TimeoutError, asyncio.LimitOverrunError)
        with contextlib.closing(writer), contextlib.suppress(*bad):
            if self._open <= _MOST:
                request = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _SECONDS)
                writer.write(self._response(request))
                await asyncio.wait_for(writer.drain(), _SECONDS)
        self._open -= 1

    def _response(self, request: bytes) -> bytes:
        method, target, *_ = [*request.split(b"\r\n", 1)[0].split(b" "), b"", b""]
        status, body = "404 Not Found", "the figures are at /metrics\n"
        if method != b"GET":
            status, body = "405 Method Not Allowed", "only GET is answered\n"
        elif target.partition(b"?")[0] == b"/metrics":
            status, body = "200 OK", text(self._record, self._waits())
        head = f"HTTP/1.1 {status}\r\nContent-Type: {_TYPE}\r\nContent-Length: {len(body.encode())}\r\n"
        return f"{head}Connection: close\r\n\r\n{body}".encode()
