"""A few scenarios of `make chaos` on this machine, one of each sort of injury."""

from __future__ import annotations

import os
import shutil

import pytest
from tests.chaos import local
from tests.chaos.oracle import complaints
from tests.chaos.scenario import draw

_MISSING = [tool for tool in ("cc", "nft", "nsenter", "unshare") if shutil.which(tool) is None]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make namespaces and disks")
@pytest.mark.skipif(bool(_MISSING), reason=f"needs {', '.join(_MISSING)}")
@pytest.mark.parametrize("seed", [62, 100, 138])
def test_the_oracle_has_no_complaint_of_a_sample(seed: int) -> None:
    """`make chaos SEED=…` says what is done to the job, and what came of it."""
    scenario = draw(seed, "local")

    assert [] == complaints(scenario, local.played(scenario)), str(scenario)
