"""Every verdict that a test of a rule sees speaks of nodes in data."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ddplaunch.agent.contract import Verdict

SPELLED = re.compile(r"\bnodes? \d+ \(")
"""A node that an f-string has spelled out: its machine could not be added, and no page could set it off."""


@pytest.fixture(autouse=True)
def _subjects_stay_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """No sentence has a node with its name among its words; a format string would put it there."""
    made = Verdict.of

    def checked(*values: Any, **more: Any) -> Verdict:
        verdict = made(*values, **more)
        words = [each for each in verdict.text if isinstance(each, str) and SPELLED.search(each)]
        assert [] == words, "put the node beside the words: say(view.node(2), ' never came')"
        return verdict

    monkeypatch.setattr(Verdict, "of", checked)
