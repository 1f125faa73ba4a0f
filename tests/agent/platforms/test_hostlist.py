"""Slurm's short form of node names, spelled out."""

from __future__ import annotations

import pytest

from ddplaunch.agent.platforms.slurm import expand_nodes


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("n1,gpu7", ["n1", "gpu7"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10,3],m", ["n08", "n09", "n10", "n3", "m"]),
        ("r[1-2]n[a,b]", ["r1na", "r1nb", "r2na", "r2nb"]),
        ("n[1-2].example.org", ["n1.example.org", "n2.example.org"]),
    ],
)
def test_a_list_is_expanded_in_its_order(text: str, names: list[str]) -> None:
    """Ranges, lists, leading zeros, several brackets, what stands behind them."""
    assert names == expand_nodes(text)


@pytest.mark.parametrize("text", ["n[1-", "n]1[", "n[3-1]", "n[a-b]", "n[0-999999999]", "n1,,n2"])
def test_what_is_no_list_is_refused(text: str) -> None:
    """Nothing is guessed from a damaged list, and none fills the memory."""
    with pytest.raises(ValueError, match=r"."):
        expand_nodes(text)
