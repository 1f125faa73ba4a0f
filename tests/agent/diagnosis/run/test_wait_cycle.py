"""Circles of ranks that wait for one another."""

from __future__ import annotations

import pytest

from ddplaunch.agent.diagnosis.run import blocked


@pytest.mark.parametrize(
    ("waits", "circle"),
    [
        ({}, []),
        ({0: [1], 1: [2]}, []),
        ({3: [1], 1: [2], 2: [3]}, [1, 2, 3]),
        ({0: [1], 1: [2], 2: [1]}, [1, 2]),
        ({0: [1, 2], 1: [], 2: [3, 0]}, [0, 2]),
        ({0: [9], 1: [0, 2], 2: [0, 3], 3: [0]}, []),
    ],
)
def test_a_circle(waits: dict[int, list[int]], circle: list[int]) -> None:
    """Each of them waits for the next; a rank that waits for nobody, or that is not known, ends a way."""
    assert circle == blocked.find_circle(waits)


def test_thousands_of_ranks_in_a_row() -> None:
    """Nothing recurses, and no way is gone twice."""
    waits = {rank: [rank + 1, (rank + 2) % 5000] for rank in range(4999)}

    assert len(blocked.find_circle(waits)) > 1000
    assert [] == blocked.find_circle({rank: range(rank + 1, rank + 17) for rank in range(2000)})
