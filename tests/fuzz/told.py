"""All that is printed of a job and its evidence, without a terminal."""

from __future__ import annotations

import json
import time

from ddplaunch.agent.contract import Bundle
from ddplaunch.backends.job import Job
from ddplaunch.cli import exits
from ddplaunch.cli import jobs as listing
from ddplaunch.report import board, diagnose, html, machine, verdict
from ddplaunch.report.words import Paint

_WIDTH = 100


def job(found: Job) -> None:
    """By `list` and `status`."""
    now = time.time()
    _written(
        listing.table([found], now),
        board.board_text(board.make_board(found, now)),
        json.dumps(machine.job_data(found)),
    )
    exits.of_job(found)


def diagnosis(found: Job, bundle: Bundle | None) -> None:
    """By `diagnose`, in all of its forms."""
    told = diagnose(found, bundle)
    _written(
        verdict.diagnosis_text(told, Paint(False), _WIDTH),
        html.page(told),
        json.dumps(machine.doctor_data(told)),
    )


def _written(*texts: str) -> None:
    for text in texts:
        text.encode("utf-8", "backslashreplace")
