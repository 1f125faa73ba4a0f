"""The record of each scheduler, and what a job gets that runs on none of them."""

from __future__ import annotations

import pytest

from ddplaunch.agent import platforms
from ddplaunch.agent.platforms import KUBERNETES, PLAIN, SLURM


@pytest.mark.parametrize("name", ["", "local", "toyqueue"])
def test_what_is_not_known_counts_as_plain_machines(name: str) -> None:
    """A target of another package, and a bundle that says nothing, get advice that fits any machine."""
    assert platforms.named(name) is PLAIN
    assert "ask somebody" == PLAIN.hint("missing", "ask somebody")


@pytest.mark.parametrize("platform", [SLURM, KUBERNETES])
def test_a_scheduler_gives_its_own_advice(platform: platforms.Platform) -> None:
    """Its commands come first; where it has none, the rule's own words stay."""
    assert platforms.named(platform.name) is platform
    assert "ask somebody" != platform.hint("missing", "ask somebody")
    assert "ask somebody" == platform.hint("no such kind", "ask somebody")


def test_names_that_a_service_gives_may_come_late() -> None:
    """Only there a missing name is no mistake yet."""
    assert KUBERNETES.name_delay is not None
    assert SLURM.name_delay is None
