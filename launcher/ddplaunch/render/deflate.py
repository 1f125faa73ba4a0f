"""Deflate (RFC 1951) that leaves nothing to the build of a library: every Python writes the same bytes.

zlib promises how data is read back, not how it is written, and its builds search for repetitions in different
ways. This one searches where words begin, which is where source code repeats itself, and uses fixed codes.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from functools import cache
from itertools import accumulate

_WORD = re.compile(rb"\w+|\W")
_KEY = 4  # bytes that must agree before a repetition is worth its two codes
_TRIES = 16  # earlier places that are compared, the nearest first
_LONGEST = 258
_WINDOW = 32768

# RFC 1951, 3.2.5: the extra bits behind the code of each range of lengths and distances, and where it begins.
_LENGTH_BITS = [0] * 8 + [bits for bits in range(1, 6) for _ in range(4)]
_LENGTHS = [*accumulate((1 << bits for bits in _LENGTH_BITS[:-1]), initial=3)]
_DISTANCE_BITS = [0, 0] + [bits for bits in range(14) for _ in range(2)]
_DISTANCES = [*accumulate((1 << bits for bits in _DISTANCE_BITS[:-1]), initial=1)]


def deflate(data: bytes) -> bytes:
    """`data` as one raw deflate block, without zlib's header and checksum."""
    places: defaultdict[bytes, list[int]] = defaultdict(list)
    bits = ["1", "10"]  # the last block; fixed codes
    done = 0
    for word in _WORD.finditer(data):
        start = word.start()
        earlier = places[data[start : start + _KEY]]
        if start >= done:
            length, place = _longest(data, start, earlier[: -_TRIES - 1 : -1])
            if length >= _KEY:
                bits += map(_LITERALS.__getitem__, data[done:start])
                bits += (_length(length), _distance(start - place))
                done = start + length
        earlier.append(start)
    bits += map(_LITERALS.__getitem__, data[done:])
    bits.append(_symbol(256))
    # The first bit of the stream is the lowest of the first byte.
    stream = "".join(bits)[::-1]
    return int(stream, 2).to_bytes(-(-len(stream) // 8), "little")


def _longest(data: bytes, start: int, places: list[int]) -> tuple[int, int]:
    """Length and place of the longest earlier text that repeats at `start`; the nearest where several are."""
    best, found = 0, 0
    most = min(_LONGEST, len(data) - start)
    for place in places:
        if start - place > _WINDOW:
            break
        if data[place : place + best + 1] == data[start : start + best + 1]:
            length = best + 1
            while length < most and data[place + length] == data[start + length]:
                length += 1
            best, found = min(length, most), place
    return best, found


def _symbol(number: int) -> str:
    """The fixed code of a literal or length symbol (RFC 1951, 3.2.6), its highest bit first."""
    if number < 144:
        return f"{0b00110000 + number:08b}"
    if number < 256:
        return f"{0b110010000 + number - 144:09b}"
    if number < 280:
        return f"{number - 256:07b}"
    return f"{0b11000000 + number - 280:08b}"


_LITERALS = [_symbol(number) for number in range(256)]


@cache
def _length(length: int) -> str:
    # The longest has a code of its own, without extra bits.
    if length == _LONGEST:
        return _symbol(285)
    index = bisect_right(_LENGTHS, length) - 1
    return _symbol(257 + index) + _extra(length - _LENGTHS[index], _LENGTH_BITS[index])


@cache
def _distance(distance: int) -> str:
    index = bisect_right(_DISTANCES, distance) - 1
    return f"{index:05b}" + _extra(distance - _DISTANCES[index], _DISTANCE_BITS[index])


def _extra(value: int, bits: int) -> str:
    # Unlike codes, numbers stand with their lowest bit first.
    return f"{value:0{bits}b}"[::-1] if bits else ""
