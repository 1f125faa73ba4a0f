"""The facts of this machine, against what the C library says of it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, TypeVar

import pytest
from tests.busy import BUSY

from ddplaunch.agent.interfaces import predict, read

T = TypeVar("T")


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


def at_rest(system: Callable[[], T], ours: Callable[[], T]) -> tuple[T, T]:
    """What the two say while nothing comes or goes: others make interfaces here, and remove them."""
    deadline = time.monotonic() + BUSY * 5
    while True:
        with contextlib.suppress(OSError):  # one went away while it was read
            before, found = system(), ours()
            if before == system():
                return before, found
        assert time.monotonic() < deadline, "interfaces come and go all the time"
        time.sleep(0.05)


def test_addresses_are_those_of_getifaddrs_in_its_order() -> None:
    said, found = at_rest(
        getifaddrs, lambda: [(each.interface, each.flags, each.address) for each in read.addresses()]
    )

    assert said == found
    assert any(("lo", "127.0.0.1") == (name, address) for name, _, address in found)


@pytest.mark.parametrize(("release", "where"), [((2, 29), "passwd"), ((2, 30), "HOME")])
def test_files_and_names_are_read_as_this_version_of_the_library_does(
    release: predict.Version, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.parametrize("odd", ["pipe", "folder", "/dev/zero", "/nowhere", ""])
def test_settings_that_are_no_plain_file_keep_nobody_waiting(odd: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    path = str(tmp_path / odd) if odd in ("pipe", "folder") else odd

    assert {} == {
        name: each
        for name, each in read.settings({"NCCL_CONF_FILE": path, "HOME": ""}, predict.NEWEST).items()
        if name not in ("NCCL_CONF_FILE", "HOME")
    }


def test_the_interface_in_a_comm_id_is_known_by_its_alias() -> None:
    """As if_nametoindex(3) knows it, which cuts off what follows a colon."""
    facts = read.host({"NCCL_COMM_ID": "[fe80::1%lo:7]:29500"}, predict.NEWEST)

    assert {"lo:7": socket.if_nametoindex("lo")} == facts.indexes


def links() -> dict[str, tuple[int, int]]:
    """MTU, and speed or 0, of each interface, by the files that the kernel shows."""
    found = {}
    for file in Path("/sys/class/net").glob("*/mtu"):
        try:
            speed = int((file.parent / "speed").read_text())
        except OSError:
            speed = 0
        found[file.parent.name] = int(file.read_text()), max(speed, 0)
    return found


def test_mtu_and_speed_are_as_the_system_shows_them() -> None:
    said, found = at_rest(
        links, lambda: {name: (link.mtu, link.speed or 0) for name, link in read.links().items()}
    )

    assert "lo" in said
    assert said == found


FAST = """
import ctypes, fcntl, os, socket, struct
from ddplaunch.agent.interfaces import read

class Settings(ctypes.Structure):  # struct ethtool_cmd
    _fields_ = [(name, ctypes.c_uint32) for name in ("cmd", "supported", "advertising")]
    _fields_ += [("speed", ctypes.c_uint16), ("bytes", ctypes.c_uint8 * 6)]
    _fields_ += [(name, ctypes.c_uint32) for name in ("maxtxpkt", "maxrxpkt")]
    _fields_ += [("speed_hi", ctypes.c_uint16), ("mdix", ctypes.c_uint8 * 2), ("rest", ctypes.c_uint32 * 3)]

tun = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tun, 0x400454CA, struct.pack("16sH22x", b"fast0", 0x1002))  # TUNSETIFF, IFF_TAP | IFF_NO_PI
faster = Settings(cmd=2, speed=400000 & 0xFFFF, speed_hi=400000 >> 16)  # ETHTOOL_SSET
with socket.socket() as asked:
    fcntl.ioctl(asked, 0x8946, struct.pack("16sP16x", b"fast0", ctypes.addressof(faster)))  # SIOCETHTOOL
print(read.links()["fast0"].speed)
"""


def in_a_network_of_its_own(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a program that may make interfaces. Only root may."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(["unshare", "--net", *words], capture_output=True, text=True, env=env, check=False)


def test_a_speed_of_more_than_16_bits_is_read() -> None:
    """A virtual interface that was told to be as fast as InfiniBand, in a network of its own."""
    if os.geteuid() != 0 or not Path("/dev/net/tun").exists():
        pytest.skip("needs root and /dev/net/tun, to make an interface")
    done = in_a_network_of_its_own(sys.executable, "-c", FAST)

    assert "400000\n" == done.stdout, done.stderr


TENTATIVE = """
ip link add b0 type bridge
ip addr add fd00:1::1/64 dev b0
ip addr add 192.0.2.1/24 dev b0
ip link set b0 up
exec "$0" -c 'from ddplaunch.agent.transport import endpoints; print(endpoints.own_addresses())'
"""


def test_an_address_that_cannot_be_bound_yet_is_not_given_to_others() -> None:
    """A bridge without containers is an example: the kernel leaves its IPv6 address tentative."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to make a bridge")
    done = in_a_network_of_its_own("sh", "-ec", TENTATIVE, sys.executable)

    assert "['192.0.2.1']\n" == done.stdout, done.stderr
