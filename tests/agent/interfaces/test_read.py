"""The facts of this machine, against what the C library says of it."""

from __future__ import annotations

import ctypes
import os
import pwd
import socket
from pathlib import Path

import pytest

from ddplaunch.agent.interfaces import nccl, read


class _Entry(ctypes.Structure):
    """struct ifaddrs, as far as it is looked at."""


_Entry._fields_ = [
    ("next", ctypes.POINTER(_Entry)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
]


def getifaddrs() -> list[tuple[str, int, str]]:
    """Name, flags and address of each entry with one of IPv4 or IPv6."""
    libc = ctypes.CDLL(None)
    first = ctypes.POINTER(_Entry)()
    assert 0 == libc.getifaddrs(ctypes.byref(first))
    found, each = [], first
    while bool(each):  # NULL ends the list
        entry = each.contents
        family = ctypes.c_uint16.from_address(entry.address).value if entry.address else 0
        if family in (socket.AF_INET, socket.AF_INET6):
            start, size = (4, 4) if family == socket.AF_INET else (8, 16)
            raw = ctypes.string_at(entry.address + start, size)
            found.append((entry.name.decode(), entry.flags, socket.inet_ntop(family, raw)))
        each = entry.next
    libc.freeifaddrs(first)
    return found


def test_addresses_are_those_of_getifaddrs_in_its_order() -> None:
    """Names, flags and addresses."""
    found = [(each.interface, each.flags, each.address) for each in read.addresses()]

    assert getifaddrs() == found
    assert any(("lo", "127.0.0.1") == (name, address) for name, _, address in found)


@pytest.mark.parametrize(("release", "where"), [((2, 29), "passwd"), ((2, 30), "HOME")])
def test_files_and_names_are_read(
    release: nccl.Version, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that this version looks at; a name in NCCL_COMM_ID is resolved as the library does it."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".nccl.conf").write_text("NCCL_COMM_ID=localhost:29500\n")
    if where == "passwd":
        entry = pwd.struct_passwd(("me", "x", 0, 0, "", str(home), ""))
        monkeypatch.setattr(pwd, "getpwuid", lambda _: entry)
    facts = read.host({"HOME": str(home) if where == "HOME" else "/nowhere"}, release)

    assert "NCCL_COMM_ID" in facts.files[str(home / ".nccl.conf")]
    assert {socket.gethostname(), "localhost"} == set(facts.names)
    assert facts.names["localhost"][0] in ("127.0.0.1", "::1")
    assert "127.0.0.1" in facts.bindable
    assert os.environ.get("HOME") != str(home)


def test_links_are_as_the_system_shows_them() -> None:
    """MTU and speed of every interface; what /sys does not know, nobody does."""
    links = read.links()
    names = {path.name for path in Path("/sys/class/net").iterdir() if (path / "mtu").exists()}

    assert names == set(links)
    for name, link in links.items():
        folder = Path("/sys/class/net") / name
        try:
            speed = int((folder / "speed").read_text())
        except OSError:
            speed = -1
        assert (int((folder / "mtu").read_text()), max(speed, 0)) == (link.mtu, link.speed or 0)
