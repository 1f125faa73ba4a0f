"""Unpacks bzip2 in plain Python, for a Python that was built without the bz2 module: it takes a second.

In the archive this file is beside the entry, as it unpacks all other modules of the agent. Checksums are not
compared. The format: Julian Seward's bzip2, versions 0.9 and later.
"""

from __future__ import annotations

import re

_BLOCK = 0x314159265359
"""First bits of a block; those after the last block are other ones."""
_PER_TABLE = 50
"""Symbols that one Huffman table codes before the next is chosen."""
_LONGEST = 20
"""Bits of a code."""
_REPEATED = re.compile(rb"(.)\1\1\1(.)", re.DOTALL)
"""Four equal bytes, and how many more follow them."""


class _Bits:
    def __init__(self, data: bytes) -> None:
        self.text = format(int.from_bytes(data, "big"), "b").zfill(8 * len(data))
        self.place = 0

    def number(self, width: int) -> int:
        self.place += width
        if self.place > len(self.text):
            raise ValueError("the data end too early")
        return int(self.text[self.place - width : self.place], 2)

    def ones(self) -> int:
        """Return how many ones come before the next zero."""
        begin, end = self.place, self.text.index("0", self.place)
        self.place = end + 1
        return end - begin


def decompress(data: bytes) -> bytes:
    """Return what `data` unpacks to. Raises ValueError, IndexError or KeyError for damaged data."""
    bits = _Bits(data)
    bits.number(32)  # "BZh" and the size of a block
    blocks = []
    while bits.number(48) == _BLOCK:
        bits.number(33)  # a checksum, and a flag that nothing sets any more
        blocks.append(_block(bits))
    return b"".join(blocks)


def _block(bits: _Bits) -> bytes:
    origin = bits.number(24)
    rows = [row for row in range(16) if _is_set(bits)]
    used = bytearray(16 * row + column for row in rows for column in range(16) if _is_set(bits))
    order = list(range(bits.number(3)))
    choices = []
    for _ in range(bits.number(15)):
        order.insert(0, order.pop(bits.ones()))
        choices.append(order[0])
    tables = [_table(bits, len(used) + 2) for _ in order]
    last_column = _last_column(bits, [tables[choice] for choice in choices], used)
    # The inverse of Burrows and Wheeler's transform: the first column has the bytes of the last, sorted.
    following = sorted(range(len(last_column)), key=last_column.__getitem__)
    text = bytearray()
    for _ in following:
        origin = following[origin]
        text.append(last_column[origin])
    return _REPEATED.sub(lambda match: match[1] * (4 + match[2][0]), bytes(text))


def _is_set(bits: _Bits) -> bool:
    return bits.number(1) == 1


def _table(bits: _Bits, symbols: int) -> dict[str, int]:
    """Return a Huffman table: symbols by their code, in text of zeros and ones."""
    length = bits.number(5)
    lengths = []
    for _ in range(symbols):
        while _is_set(bits):
            length += -1 if _is_set(bits) else 1
        lengths.append(length)
    table = {}
    code = before = 0
    for length, symbol in sorted(zip(lengths, range(symbols))):
        code <<= length - before
        table[format(code, f"0{length}b")] = symbol
        code, before = code + 1, length
    return table


def _last_column(bits: _Bits, tables: list[dict[str, int]], used: bytearray) -> bytearray:
    """Return the bytes that the symbols stand for: runs of the newest byte, or the place of another."""
    column = bytearray()
    weight = 1
    for table in tables:
        shortest = min(map(len, table))
        for _ in range(_PER_TABLE):
            end = bits.place + shortest
            while (symbol := table.get(bits.text[bits.place : end])) is None:
                end += 1
                if end > bits.place + _LONGEST:
                    raise ValueError("no symbol has this code")
            bits.place = end
            if symbol < 2:
                column += used[:1] * (weight << symbol)
                weight <<= 1
                continue
            weight = 1
            if symbol > len(used):
                return column
            byte = used.pop(symbol - 1)
            used.insert(0, byte)
            column.append(byte)
    raise ValueError("the data end too early")
