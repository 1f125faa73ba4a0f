"""Jobs that take their time in many ways and end well, and slow ones about which somebody asks."""

from __future__ import annotations

from tests.corpus.faults import Fault, Healthy

FAULTS = [
    Fault(
        "slow_styles_loader",
        "slow",
        (1,),
        (0, 2),
        nproc=3,
        asked=True,
        program="slow_styles",
        arguments=("loader",),
        whole=True,
    ),
    Fault(
        "slow_styles_compute",
        "slow",
        (1,),
        (0, 2),
        nproc=3,
        asked=True,
        program="slow_styles",
        arguments=("compute",),
        whole=True,
    ),
]


def _well(how: str, nproc: int = 2) -> Healthy:
    return Healthy(how, nproc=nproc, program="healthy_styles", arguments=(how,), whole=True)


HEALTHY = [
    _well("checkpoint"),
    _well("subprocess"),
    _well("monitored_barrier"),
    _well("late_key"),
    _well("retries"),
    _well("parses", 3),
    _well("tail"),
    _well("exit_work"),
    _well("overlaps", 4),
    _well("dribbles"),
    _well("loader_starts"),
    _well("own_pace", 4),
    _well("validation", 3),
    _well("short", 8),
]
