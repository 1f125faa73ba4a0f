"""Deflate (RFC 1951) that leaves nothing to the build of a library: every Python writes the same bytes.

zlib promises how data is read back, not how it is written, and its builds search for repetitions in different
ways.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate, groupby

_KEY = 4  # bytes that must agree before a repetition is worth its two codes
_TRIES = 256  # earlier places that are compared, the nearest first
_LONGEST = 258
_WINDOW = 32768

# RFC 1951, 3.2.5: the extra bits behind the code of each range of lengths and distances, and where it begins.
_LENGTH_BITS = [0] * 8 + [bits for bits in range(1, 6) for _ in range(4)]
_LENGTHS = [*accumulate((1 << bits for bits in _LENGTH_BITS[:-1]), initial=3)]
_DISTANCE_BITS = [0, 0] + [bits for bits in range(14) for _ in range(2)]
_DISTANCES = [*accumulate((1 << bits for bits in _DISTANCE_BITS[:-1]), initial=1)]


_END = 256
_CODED = 15  # bits of the longest code
_CODED_LENGTH = 7  # of the longest code of the lengths of codes
_LENGTH_ORDER = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15)

Token = tuple[int, str, int, str]
"""Literal or length symbol, its extra bits; distance symbol, -1 for none, its extra bits."""


def deflate(data: bytes) -> bytes:
    """`data` as one raw deflate block, without zlib's header and checksum."""
    tokens = [*_tokens(data), (_END, "", -1, "")]
    stream = min(_with_fixed_codes(tokens), _with_own_codes(tokens), key=len)
    # The first bit of the stream is the lowest of the first byte.
    return int(stream[::-1], 2).to_bytes(-(-len(stream) // 8), "little")


def _tokens(data: bytes) -> Iterator[Token]:
    places: defaultdict[bytes, list[int]] = defaultdict(list)

    def repetition(start: int) -> tuple[int, int]:
        earlier = places[data[start : start + _KEY]]
        found = _longest(data, start, earlier[: -_TRIES - 1 : -1])
        earlier.append(start)
        return found

    start, here = 0, repetition(0)
    while start < len(data):
        length, place = here
        following = repetition(start + 1)
        if length < _KEY or length < following[0]:  # a longer one begins with the next byte
            yield data[start], "", -1, ""
            start, here = start + 1, following
        else:
            yield (*_length(length), *_distance(start - place))
            for passed in range(start + 2, start + length):
                places[data[passed : passed + _KEY]].append(passed)
            start += length
            here = repetition(start)


def _with_fixed_codes(tokens: Sequence[Token]) -> str:
    """RFC 1951, 3.2.6."""
    lengths = [8] * 144 + [9] * 112 + [7] * 24 + [8] * 8
    return "110" + _coded(tokens, _codes(dict(enumerate(lengths))), _codes(dict.fromkeys(range(30), 5)))


def _with_own_codes(tokens: Sequence[Token]) -> str:
    """RFC 1951, 3.2.7: the lengths of the codes go before."""
    symbols = _code_lengths(Counter(token[0] for token in tokens), _CODED)
    # One distance code is written even where there is none: it may be of any length.
    distances = _code_lengths(Counter(token[2] for token in tokens if token[2] >= 0), _CODED) or {0: 1}
    counts = max(symbols) + 1, max(distances) + 1
    row = [symbols.get(n, 0) for n in range(counts[0])] + [distances.get(n, 0) for n in range(counts[1])]
    runs = list(_runs(row))
    lengths = _code_lengths(Counter(symbol for symbol, _ in runs), _CODED_LENGTH)
    last = max(index for index, symbol in enumerate(_LENGTH_ORDER) if symbol in lengths) + 1
    codes = _codes(lengths)
    head = [_extra(counts[0] - 257, 5), _extra(counts[1] - 1, 5), _extra(max(last, 4) - 4, 4)]
    head += [_extra(lengths.get(symbol, 0), 3) for symbol in _LENGTH_ORDER[: max(last, 4)]]
    head += [codes[symbol] + extra for symbol, extra in runs]
    return "101" + "".join(head) + _coded(tokens, _codes(symbols), _codes(distances))


def _coded(tokens: Sequence[Token], symbols: Mapping[int, str], distances: Mapping[int, str]) -> str:
    return "".join(
        symbols[symbol] + extra + (distances[distance] + more if distance >= 0 else "")
        for symbol, extra, distance, more in tokens
    )


def _runs(row: Sequence[int]) -> Iterator[tuple[int, str]]:
    """The lengths in `row`, successive zeros as one symbol (17: up to 10 of them, 18: up to 138)."""
    for length, same in groupby(row):
        count = len(list(same))
        while length == 0 and count >= 3:
            run = min(count, 138)
            yield (17, _extra(run - 3, 3)) if run <= 10 else (18, _extra(run - 11, 7))
            count -= run
        yield from [(length, "")] * count


def _code_lengths(frequencies: Mapping[int, int], limit: int) -> dict[int, int]:
    """Symbol -> bits of its Huffman code; rare symbols count for more until none is longer than `limit`."""
    if len(frequencies) < 2:
        return dict.fromkeys(frequencies, 1)
    floor = 1
    while True:
        heap: list[tuple[int, int, tuple[int, ...]]] = [
            (max(count, floor), symbol, (symbol,)) for symbol, count in frequencies.items()
        ]
        heapq.heapify(heap)
        lengths = dict.fromkeys(frequencies, 0)
        while len(heap) > 1:
            (rare, first, some), (next_rare, _, more) = heapq.heappop(heap), heapq.heappop(heap)
            for symbol in (*some, *more):
                lengths[symbol] += 1
            heapq.heappush(heap, (rare + next_rare, first, (*some, *more)))
        if max(lengths.values()) <= limit:
            return lengths
        floor *= 2


def _codes(lengths: Mapping[int, int]) -> dict[int, str]:
    """RFC 1951, 3.2.2: codes of one length are successive numbers, highest bit first."""
    code, codes, before = 0, {}, 0
    for length, symbol in sorted((length, symbol) for symbol, length in lengths.items() if length):
        code <<= length - before
        codes[symbol] = f"{code:0{length}b}"
        code, before = code + 1, length
    return codes


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


@cache
def _length(length: int) -> tuple[int, str]:
    # The longest has a code of its own, without extra bits.
    if length == _LONGEST:
        return 285, ""
    index = bisect_right(_LENGTHS, length) - 1
    return 257 + index, _extra(length - _LENGTHS[index], _LENGTH_BITS[index])


@cache
def _distance(distance: int) -> tuple[int, str]:
    index = bisect_right(_DISTANCES, distance) - 1
    return index, _extra(distance - _DISTANCES[index], _DISTANCE_BITS[index])


def _extra(value: int, bits: int) -> str:
    # Unlike codes, numbers stand with their lowest bit first.
    return f"{value:0{bits}b}"[::-1] if bits else ""
