"""What is packed comes out unchanged, and smaller where it repeats itself."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddplaunch.render.deflate import deflate

LAUNCHER = Path(__file__).resolve().parents[3] / "launcher"

words = st.sampled_from([b"rank", b"rank ", b"node = ", b"\n", b"    ", b"\xff\x00", b"rendezvous_timeout"])
repetitive = st.lists(words | st.binary(max_size=3), max_size=400).map(b"".join)


@given(st.binary(max_size=2000) | repetitive)
def test_zlib_reads_back_what_was_packed(data: bytes) -> None:
    """Any bytes come out as they went in, and nothing is left behind the block's end."""
    reader = zlib.decompressobj(-zlib.MAX_WBITS)

    assert data == reader.decompress(deflate(data))
    assert (True, b"") == (reader.eof, reader.unused_data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"abcd" * 100,
        *(b"wait" + bytes(1) * length + b"wait" + bytes(1) * length for length in range(250, 262)),
        *(b"rank0" + bytes([1]) * gap + b"rank0" for gap in (32762, 32763, 32764, 40000)),
        bytes(range(256)) * 3,
    ],
    ids=len,
)
def test_the_limits_of_the_format_are_kept(data: bytes) -> None:
    """The longest repetition, the farthest one and those just beyond are read back by zlib."""
    assert data == zlib.decompress(deflate(data), -zlib.MAX_WBITS)


@pytest.mark.parametrize(
    ("data", "packed"),
    [
        # By hand: 1 (last), 10 (fixed), 10010001 (a), 01010000 (blank), 0000010 00100 0 (4, 5 back), 0000000.
        (b"", "0300"),
        (b"a", "4b0400"),
        (b"aaaa aaaa", "4b4c4c4c54001100"),
    ],
)
def test_the_bytes_do_not_move(data: bytes, packed: str) -> None:
    """The same data gives these bytes in every release, on every machine."""
    assert packed == deflate(data).hex()


def test_source_code_shrinks() -> None:
    """Real source takes less than half of its size."""
    source = (LAUNCHER / "ddplaunch" / "agent" / "contract.py").read_bytes()

    assert 0.5 > len(deflate(source)) / len(source)
