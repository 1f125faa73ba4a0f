"""Job files that hypothesis draws, right ones and ones with slips: once for a run, and always the same."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from tests.chart.strategies import jobs

_EXAMPLES = 200


def _draw() -> list[Any]:
    found: list[Any] = []

    @seed(13)
    @settings(
        max_examples=_EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.one_of(jobs(slips=False), jobs(slips=True)))
    def collect(job: Any) -> None:
        found.append(job)

    collect()
    return found


JOBS = _draw()
