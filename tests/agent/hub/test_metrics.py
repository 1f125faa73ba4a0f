"""The job's figures, over a real socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ports import own_port

from ddplaunch.agent.contract import JobPlan, MetricsPlan, Phase, RankPace, Verdict
from ddplaunch.agent.hub import metrics
from ddplaunch.agent.hub.job_record import JobRecord


@pytest.fixture(name="record")
def _record(tmp_path: Path) -> Iterator[JobRecord]:
    plan = JobPlan("digits", 2, 4, [], ["train.py"], metrics=MetricsPlan(own_port()))
    record = JobRecord(plan, str(tmp_path), 1)
    yield record
    record.close()


def answers(record: JobRecord, *requests: bytes) -> list[bytes]:
    """What a client gets for each request."""

    async def ask() -> list[bytes]:
        assert record.plan.metrics is not None
        exporter = metrics.Exporter(record, lambda: [7.0, 3.5])
        await exporter.start()
        found = []
        for request in requests:
            reader, writer = await asyncio.open_connection("127.0.0.1", record.plan.metrics.port)
            writer.write(request)
            found.append(await asyncio.wait_for(reader.read(), 20))
            writer.close()
        exporter.close()
        return found

    return asyncio.run(ask())


def test_the_figures_of_a_running_job_are_these_and_no_others(record: JobRecord) -> None:
    record.enter(Phase.RUNNING)
    record.gate_seconds = 2.25
    record.paces[0] = (float("inf"), [RankPace(rank, step) for rank, step in enumerate((0.5, 0.25, 4.0))])
    record.verdicts = [Verdict.of("rank-missing", 'it is "so"', "run")]

    assert EXPECTED == metrics.text(record, [7.0, 3.5])


def test_an_unknown_figure_is_left_out_for_zero_would_be_wrong(record: JobRecord) -> None:
    text = metrics.text(record, [])

    assert 'ddplaunch_ranks{job_name="digits"} 0\n' in text
    for name in ("since_progress_seconds", "gate_duration_seconds", "step_duration_seconds", "verdicts"):
        assert f"ddplaunch_{name}{{" not in text


def test_a_client_reads_and_does_nothing_else(record: JobRecord) -> None:
    """Of one path, by one method; what is no request gets nothing."""
    good, elsewhere, post, large = answers(
        record,
        b"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /../run/key HTTP/1.1\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\n\r\n",
        b"x" * 100_000,
    )

    head, _, body = good.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4")
    assert body.decode() == metrics.text(record, [7.0, 3.5])
    assert elsewhere.startswith(b"HTTP/1.1 404 ")
    assert post.startswith(b"HTTP/1.1 405 ")
    assert b"" == large


def test_a_taken_port_costs_the_figures_alone(record: JobRecord, capfd: pytest.CaptureFixture[str]) -> None:
    assert record.plan.metrics is not None
    with socket.create_server(("127.0.0.1", record.plan.metrics.port)):
        asyncio.run(metrics.Exporter(record, list).start())

    assert f"no metrics: port {record.plan.metrics.port}: " in capfd.readouterr().out


EXPECTED = """\
# HELP ddplaunch_job_info The job whose hub this is.
# TYPE ddplaunch_job_info gauge
ddplaunch_job_info{job_name="digits",attempt="1",nodes="2"} 1
# HELP ddplaunch_phase 1 for the phase that the job is in.
# TYPE ddplaunch_phase gauge
ddplaunch_phase{job_name="digits",phase="starting"} 0
ddplaunch_phase{job_name="digits",phase="gate"} 0
ddplaunch_phase{job_name="digits",phase="rendezvous"} 0
ddplaunch_phase{job_name="digits",phase="init_process_group"} 0
ddplaunch_phase{job_name="digits",phase="first collective"} 0
ddplaunch_phase{job_name="digits",phase="running"} 1
ddplaunch_phase{job_name="digits",phase="finalizing"} 0
ddplaunch_phase{job_name="digits",phase="ended"} 0
# HELP ddplaunch_ranks Living ranks in the last heartbeats.
# TYPE ddplaunch_ranks gauge
ddplaunch_ranks{job_name="digits"} 2
# HELP ddplaunch_since_progress_seconds Time since any living rank made progress.
# TYPE ddplaunch_since_progress_seconds gauge
ddplaunch_since_progress_seconds{job_name="digits"} 3.5
# HELP ddplaunch_gate_duration_seconds Time from the opening of the gate to the release.
# TYPE ddplaunch_gate_duration_seconds gauge
ddplaunch_gate_duration_seconds{job_name="digits"} 2.25
# HELP ddplaunch_step_duration_seconds A step in the last minute or so: of the fastest rank, the median, the slowest.
# TYPE ddplaunch_step_duration_seconds gauge
ddplaunch_step_duration_seconds{job_name="digits",quantile="0"} 0.25
ddplaunch_step_duration_seconds{job_name="digits",quantile="0.5"} 0.5
ddplaunch_step_duration_seconds{job_name="digits",quantile="1"} 4
# HELP ddplaunch_verdicts Verdicts that hold now: notices, and at the end what has ended the job.
# TYPE ddplaunch_verdicts gauge
ddplaunch_verdicts{job_name="digits",code="rank-missing"} 1
"""  # noqa: E501 - a figure is one line
