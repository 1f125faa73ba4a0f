"""What bzip2 has packed comes out as it was, in plain Python."""

from __future__ import annotations

import bz2
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddplaunch.agent.unpack_bz2 import decompress

runs = st.lists(st.tuples(st.binary(min_size=1, max_size=4), st.integers(1, 300)), max_size=20)


@given(runs.map(lambda found: b"".join(part * count for part, count in found)))
def test_bytes_come_out_as_they_went_in(data: bytes) -> None:
    """Runs of one byte are coded twice, and every length of them is right."""
    assert data == decompress(bz2.compress(data))


def test_several_blocks_are_joined() -> None:
    """At level 1 a block holds 100 kB."""
    data = random.Random(5).randbytes(120_000)

    assert data == decompress(bz2.compress(data, 1))


@given(st.binary(min_size=1, max_size=400), st.data())
def test_damaged_data_end_in_an_error_or_in_other_bytes(data: bytes, draw: st.DataObject) -> None:
    """No damage makes it wait for ever."""
    packed = bytearray(bz2.compress(data))
    place = draw.draw(st.integers(0, len(packed) - 1))
    packed[place] ^= draw.draw(st.integers(1, 255))

    try:
        decompress(bytes(packed))
    except (ValueError, IndexError, KeyError):
        return


def test_data_that_are_cut_off_are_an_error() -> None:
    """A file that was copied only in part."""
    with pytest.raises((ValueError, IndexError)):
        decompress(bz2.compress(b"agent" * 100)[:40])
