"""A test of the user's expects that a rank raises."""

import pytest
import torch.multiprocessing as mp
from spawn_catch import place, work


def test_a_failure_is_raised() -> None:
    with pytest.raises(mp.ProcessRaisedException):
        mp.spawn(work, args=(True, place("a")), nprocs=2)
    place("a")


def test_healthy() -> None:
    mp.spawn(work, args=(False, place("b")), nprocs=2)
    place("b")
