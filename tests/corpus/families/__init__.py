"""More programs in the styles that jobs are written in, a module for each: FAULTS and HEALTHY of all of them.

`tests/corpus/faults.py` has one program at least for every code; here are the same faults in other clothes.
Each module lists its FAULTS and its HEALTHY.
"""

from __future__ import annotations

from tests.corpus.families import ends, frameworks, slow, stands, trainers
from tests.corpus.faults import Fault, Healthy

FAULTS: list[Fault] = [*ends.FAULTS, *stands.FAULTS, *slow.FAULTS, *frameworks.FAULTS, *trainers.FAULTS]
HEALTHY: list[Healthy] = [
    *ends.HEALTHY,
    *stands.HEALTHY,
    *slow.HEALTHY,
    *frameworks.HEALTHY,
    *trainers.HEALTHY,
]
