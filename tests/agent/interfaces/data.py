"""Which interfaces NCCL takes for data, by its own ncclFindInterfaces.

The library does not export it, and what it exports leads there on a machine with a GPU only. But the table of
symbols says where it is.
"""

from __future__ import annotations

import ctypes
import mmap
import re
import socket
import struct

_MOST = 16
_NAME = 16  # bytes of an interface's name, NUL included
_ADDRESS = 28  # bytes of union ncclSocketAddress: struct sockaddr_in6
_SYMBOLS = 2  # SHT_SYMTAB
_PUBLIC = b"ncclGetUniqueId"
_FINDS = {  # by mangled name: whether it counts by a pointer, or returns the number
    b"_Z18ncclFindInterfacesPcP17ncclSocketAddressii": False,
    b"_Z18ncclFindInterfacesPcP17ncclSocketAddressiiPi": True,
}


class Finder:
    """Of one file of libnccl."""

    def __init__(self, path: str) -> None:
        places = _symbols(path, {_PUBLIC, *_FINDS})
        (name,) = places.keys() & _FINDS.keys()
        self._path, self._by_pointer = path, _FINDS[name]
        self._offset = places[name] - places[_PUBLIC]

    def find(self) -> list[str]:
        """['eth0:10.0.0.5'], in the order in which NCCL opens them. It has read its files before."""
        library = ctypes.CDLL(self._path)
        start = ctypes.cast(library.ncclGetUniqueId, ctypes.c_void_p).value
        assert start is not None
        names = ctypes.create_string_buffer(_NAME * _MOST)
        addresses = ctypes.create_string_buffer(_ADDRESS * _MOST)
        count = ctypes.c_int()
        words: list[object] = [names, addresses, _NAME, _MOST]
        function = ctypes.CFUNCTYPE(ctypes.c_int)(start + self._offset)
        returned = function(*words, *([ctypes.byref(count)] if self._by_pointer else []))
        number = count.value if self._by_pointer else returned
        return [
            f"{names.raw[_NAME * each :][:_NAME].split(bytes(1))[0].decode()}:"
            + _spelt(addresses.raw[_ADDRESS * each :][:_ADDRESS])
            for each in range(number)
        ]


def _spelt(address: bytes) -> str:
    family: int = struct.unpack_from("H", address)[0]
    start, size = (8, 16) if family == socket.AF_INET6 else (4, 4)
    return socket.inet_ntop(family, address[start : start + size])


def _symbols(path: str, wanted: set[bytes]) -> dict[bytes, int]:
    """Values of these names in the table of symbols of a 64-bit ELF file: elf(5)."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as elf:
        (table,) = struct.unpack_from("Q", elf, 40)
        size, count = struct.unpack_from("HH", elf, 58)
        sections = [struct.unpack_from("IIQQQQII", elf, table + size * each) for each in range(count)]
        (symbols,) = (each for each in sections if each[1] == _SYMBOLS)
        text = _bytes(elf, sections[symbols[6]])
        names = {found.start(): found[0] for name in wanted for found in re.finditer(name + rb"(?=\0)", text)}
        rows = struct.iter_unpack("IBBHQQ", _bytes(elf, symbols))
        return {names[row[0]]: row[4] for row in rows if row[0] in names}


def _bytes(elf: mmap.mmap, section: tuple[int, ...]) -> bytes:
    return elf[section[4] : section[4] + section[5]]
