"""Parts of sentences: how nodes are called."""

from __future__ import annotations

import pytest

from ddplaunch.agent.system import phrases

PODS = [f"run-{node}.run.team.svc.cluster.local" for node in range(3)]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["n1", "n2"], "node 1 (n2)"),
        (["n1.lab.example", "n2.lab.example"], "node 1 (n2)"),
        (["n1.lab.example", "n2.other.example"], "node 1 (n2.other.example)"),
        (["n1", "n2.lab.example"], "node 1 (n2.lab.example)"),
        (PODS, "node 1 (run-1)"),
        (["10.0.0.1", "10.0.0.2"], "node 1 (10.0.0.2)"),
        (["fd00::1", "fd00::2"], "node 1 (fd00::2)"),
        (["d-0 on w0.lab.example", "d-1 on w1.lab.example"], "node 1 (d-1 on w1.lab.example)"),
        (["127.0.0.1", "127.0.0.1"], "node 1"),
        ([], "node 1"),
    ],
)
def test_a_node_is_called_by_its_name_without_a_domain_that_all_share(names: list[str], said: str) -> None:
    """An address is never cut, and a domain of its own says which of two machines is meant."""
    assert said == phrases.node(1, names)


def test_a_domain_is_compared_with_that_of_node_0() -> None:
    """Of thousands of nodes none is asked twice."""
    assert "nodes 0 (run-0) and 2 (run-2)" == phrases.nodes([2, 0], PODS)
