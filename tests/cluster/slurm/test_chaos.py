"""A few scenarios of `make chaos BACKEND=slurm`: the hub is hit, a machine, and the controller."""

from __future__ import annotations

import pytest
from tests.chaos import jobs
from tests.chaos.oracle import complaints
from tests.chaos.play import play
from tests.chaos.scenario import draw
from tests.chaos.slurm import Slurm
from tests.cluster.slurm.cluster import Cluster


@pytest.mark.whole
@pytest.mark.parametrize("seed", [6, 7, 8])
def test_the_oracle_has_no_complaint(cluster: Cluster, seed: int) -> None:
    """`make chaos BACKEND=slurm SEED=…` says what is done to the job, and what came of it."""
    scenario = draw(seed, "slurm")
    world = Slurm(cluster, scenario)
    try:
        facts = play(world, scenario, jobs.last_line(scenario))
    finally:
        world.leave()

    assert [] == complaints(scenario, facts), str(scenario)
