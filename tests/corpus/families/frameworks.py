"""Loops in the style of Hugging Face accelerate and of Lightning Fabric: they make the calls themselves."""

from __future__ import annotations

from tests.corpus.faults import Fault, Healthy


def _well(program: str, how: str) -> Healthy:
    return Healthy(f"{program}_{how}", nproc=3, program=f"{program}_styles", arguments=(how,), whole=True)


FAULTS = [
    Fault(
        "accelerate_gathers_alone",
        "collective-mismatch",
        (0,),
        (1, 2),
        nproc=3,
        program="accelerate_styles",
        arguments=("gathers_alone",),
        whole=True,
    ),
    Fault(
        "fabric_downloads",
        "rank-in-user-code",
        (0,),
        (1, 2),
        nproc=3,
        program="fabric_styles",
        arguments=("downloads",),
        whole=True,
    ),
]
HEALTHY = [_well("accelerate", "evaluates_long"), _well("fabric", "prepares_long")]
