"""What a job ends with, by its verdict."""

from __future__ import annotations

import pytest

from ddplaunch.agent.contract import Exit, Verdict
from ddplaunch.agent.diagnosis.catalogue import exit_code


@pytest.mark.parametrize("code", ["dns-not-found", "port-in-use", "store-shared"])
def test_what_a_script_has_chosen_is_not_tried_elsewhere(code: str) -> None:
    """The gate's finding may pass with another node; the line of a script does not."""
    assert Exit.NODE_AT_FAULT == exit_code(Verdict.of(code, "", "gate"))
    assert Exit.MISCONFIGURED == exit_code(Verdict.of(code, "", "run"))


def test_a_node_that_is_lost_while_it_runs_may_be_done_without() -> None:
    """No script has chosen that."""
    assert Exit.NODE_AT_FAULT == exit_code(Verdict.of("network-lost", "", "run"))
