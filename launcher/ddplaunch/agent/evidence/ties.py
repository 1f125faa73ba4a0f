"""Finds out for which other process a main thread waits, and who holds the native lock that it wants.

It reads /proc, and asks the kernel which two Unix sockets are connected. Other ends of pipes and connections
are only looked for in processes of the job: those of others may be closed to us.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import sys
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import NamedTuple, Optional

from ddplaunch.agent.contract import TERMINAL, Mutex, Tie
from ddplaunch.agent.system import proc

_CALLS = {
    "x86_64": {
        "end": (61, 247),
        "data": (0, 19, 45, 47),
        "room": (1, 20, 44, 46),
        "poll": (7, 271),
        "select": (23, 270),
        "epoll": (232, 281, 441),
        "lock": (202,),
    },
    "aarch64": {
        "end": (95, 260),
        "data": (63, 65, 207, 212),
        "room": (64, 66, 206, 211),
        "poll": (73,),
        "select": (72,),
        "epoll": (22, 441),
        "lock": (98,),
    },
}
"""Numbers (asm/unistd.h) of calls that wait for a child, read, write, wait for one of several or a lock."""
_WAITID = {247, 95}
_P_PID = 1
_POLL = struct.Struct("=ihh")
_POLLED = 8
"""Descriptors of one call that are looked at: more are a server's."""
_IN, _OUT = 1, 4
_WATCHED = re.compile(r"^tfd:\s*(\d+) events:\s*([0-9a-f]+)", re.MULTILINE)
"""What an epoll waits for, in /proc/PID/fdinfo (proc_pid_fdinfo(5))."""
_SETS = 1024
"""The most descriptors in a set of select(2)."""
_TERMINALS = ("/dev/pts/", "/dev/tty", "/dev/console")
_NAMED = 4
_COMMAND = 200

_LOCK_WAIT = 128  # FUTEX_WAIT_PRIVATE, as glibc waits for a mutex; for other things it has FUTEX_WAIT_BITSET
_CONTENDED = 2
_MUTEX = struct.Struct("=iIiIi")
"""The lock, its count, the owner's tid, the users and the kind, of glibc's pthread_mutex_t on 64 bits."""
_KINDS = frozenset([0, 1, 2, 3])
_ELISION = 0x300

_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _SHOW_PEER, _PEER = 4, 20, 4, 2
_REQUEST = struct.Struct("=IHHIIBBHIIIII")  # of linux/netlink.h and linux/unix_diag.h
_ANSWER = struct.Struct("=IHHII")
_DIAG_MESSAGE = 16
_ALL_STATES, _NO_COOKIE = 0xFFFFFFFF, 0xFFFFFFFF


class _End(NamedTuple):
    pid: int
    reads: bool
    writes: bool


class Ends:
    """The open pipes and sockets of these processes, read when the first is asked for."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = [*pids]
        self._known: Optional[dict[str, list[_End]]] = None

    def of(self, name: str) -> list[_End]:
        """Return who has 'pipe:[4711]' open."""
        if self._known is None:
            self._known = {}
            for pid in self._pids:
                for descriptor in proc.descriptors(pid):
                    target = proc.link(pid, f"fd/{descriptor}")
                    if target.startswith(("pipe:", "socket:")):
                        mode = _mode(pid, descriptor) if target.startswith("pipe:") else os.O_RDWR
                        end = _End(pid, mode != os.O_WRONLY, mode != os.O_RDONLY)
                        self._known.setdefault(target, []).append(end)
        return self._known.get(name, [])


def read_tie(pid: int, ends: Ends) -> Optional[Tie]:
    """Return what the main thread of a sleeping process waits for from another one; None: for nothing."""
    call = proc.system_call(pid)
    if call is None:
        return None
    number, arguments = call
    what = _kind(number)
    if what == "end":
        child = arguments[number in _WAITID] if number not in _WAITID or arguments[0] == _P_PID else 0
        facts = proc.stat(child) if 0 < child < 1 << 31 else None
        return _tie("end", "", [child]) if facts is not None and facts.parent == pid else None
    if what == "poll":
        return _polled(pid, arguments, ends)
    if what in ("select", "epoll"):
        descriptor = _selected(pid, arguments) if what == "select" else _prompting(pid, arguments[0])
        return None if descriptor is None else _of_descriptor(pid, descriptor, "data", ends)
    return _of_descriptor(pid, arguments[0], what, ends) if what in ("data", "room") else None


def waits_for_lock(pid: int) -> bool:
    """Whether the main thread waits for a lock, as in a thread's join()."""
    call = proc.system_call(pid)
    return call is not None and _kind(call.number) == "lock"


def _kind(number: int) -> str:
    kinds = _CALLS.get(os.uname().machine, {})
    return next((kind for kind, numbers in kinds.items() if number in numbers), "")


def _prompting(pid: int, epoll: int) -> Optional[int]:
    """Return the terminal that it waits to read, if it waits for nothing else but itself.

    The prompt of an event loop does so, such as IPython's: asyncio also watches a pair of sockets, by which
    its own threads wake it up.
    """
    watched = [(int(a), int(b, 16)) for a, b in _WATCHED.findall(proc.text(pid, f"fdinfo/{epoll}"))]
    names = {descriptor: proc.link(pid, f"fd/{descriptor}") for descriptor, _ in watched[:_POLLED]}
    terminals = [each for each, events in watched if events & _IN and _is_terminal(names.get(each, ""))]
    others = [name for descriptor, name in names.items() if descriptor not in terminals]
    if len(terminals) != 1 or len(watched) > _POLLED:
        return None
    own = {proc.link(pid, f"fd/{each}") for each in proc.descriptors(pid)} if others else set()
    return terminals[0] if all(_is_of_itself(name, own) for name in others) else None


def _is_terminal(name: str) -> bool:
    return name.startswith(_TERMINALS)


def _is_of_itself(name: str, own: AbstractSet[str]) -> bool:
    """Whether the other end is among a process's own descriptors, or there is none, as of a timer."""
    peer = _unix_peer(int(name[8:-1])) if name.startswith("socket:") else 0
    return name.startswith("anon_inode:") or f"socket:[{peer}]" in own


def _polled(pid: int, arguments: list[int], ends: Ends) -> Optional[Tie]:
    """Return the tie if all that it waits for leads to the same processes."""
    count = arguments[1]
    if not 0 < count <= _POLLED:
        return None
    memory = proc.memory(pid, arguments[0], count * _POLL.size)
    asked = [_POLL.unpack_from(memory, at) for at in range(0, len(memory) - _POLL.size + 1, _POLL.size)]
    found = [
        _of_descriptor(pid, descriptor, "room" if events & _OUT else "data", ends)
        for descriptor, events, _ in asked
        if descriptor >= 0 and events & (_IN | _OUT)
    ]
    ties = [each for each in found if each is not None]
    same = {(each.what, each.by, tuple(each.pids)) for each in ties}
    return ties[0] if len(ties) == len(found) and len(same) == 1 else None


def _selected(pid: int, arguments: list[int]) -> Optional[int]:
    """Return the descriptor that it waits to read, if that is the only one, as readline does."""
    count, reads, writes = arguments[:3]
    if not 0 < count <= _SETS:
        return None

    def bits(address: int) -> int:
        """Before Python 3.10, a set of no descriptors is an empty one, and later no set at all."""
        memory = proc.memory(pid, address, (count + 63) // 64 * 8) if address else b""
        return int.from_bytes(memory, sys.byteorder) & (1 << count) - 1

    read = bits(reads)
    return read.bit_length() - 1 if read and not read & (read - 1) and not bits(writes) else None


def _of_descriptor(pid: int, descriptor: int, what: str, ends: Ends) -> Optional[Tie]:
    name = proc.link(pid, f"fd/{descriptor}")
    if name.startswith("pipe:"):
        there = [end.pid for end in ends.of(name) if (end.writes if what == "data" else end.reads)]
        return _tie(what, "a pipe", [each for each in there if each != pid] or there)
    if _is_terminal(name):
        return _tie(what, TERMINAL, [], name) if what == "data" else None
    if not name.startswith("socket:"):
        return None
    inode = int(name[8:-1])
    remote, other = _tcp_peer(pid, inode)
    if remote:
        return _tie(what, "TCP", [end.pid for end in ends.of(f"socket:[{other}]")], remote)
    peer = _unix_peer(inode)
    if not peer:
        return None
    there = [end.pid for end in ends.of(f"socket:[{peer}]")]
    return _tie(what, "a Unix socket", [each for each in there if each != pid] or there)


def _tie(what: str, by: str, pids: Iterable[int], address: str = "") -> Tie:
    named = list(dict.fromkeys(pids))[:_NAMED]
    return Tie(what, by, named, [proc.command_line(each)[:_COMMAND] for each in named], address)


def read_mutex(pid: int, parents: Iterable[int]) -> Optional[Mutex]:
    """Return who holds glibc's lock for which the main thread waits; None: it waits for none that is known.

    The owner is looked for among the threads of the process, and of `parents`: a forked child has a copy of
    the lock as it was when it was forked, and not the thread that held it.
    """
    words = proc.text(pid, "syscall").split()
    wait = proc.thread_wait(pid, pid)
    if wait is None or wait.timed or len(words) < 7:
        return None
    address, operation, value = (int(word, 16) for word in words[1:4])
    memory = proc.memory(pid, address, _MUTEX.size)
    if (operation, value) != (_LOCK_WAIT, _CONTENDED) or len(memory) < _MUTEX.size:
        return None
    lock, _, owner, users, kind = _MUTEX.unpack(memory)
    if lock != _CONTENDED or owner <= 1 or not users or kind & ~_ELISION not in _KINDS:
        return None
    theirs = (each for each in (pid, *parents) if owner in proc.thread_names(each))
    found = next(theirs, None)
    return None if found is None or not _same_numbers(pid, found) else Mutex(owner, found)


def _same_numbers(pid: int, other: int) -> bool:
    """Whether both have the numbers by which we know them: the lock has its owner's number from inside."""
    return all(len(_word(each, "NSpid").split()) < 2 for each in (pid, other))


def _word(pid: int, name: str) -> str:
    lines = (line.partition(":") for line in proc.text(pid, "status").splitlines())
    return next((value.strip() for key, _, value in lines if key == name), "")


def _mode(pid: int, descriptor: str) -> int:
    for line in proc.text(pid, f"fdinfo/{descriptor}").splitlines():
        if line.startswith("flags:"):
            return int(line.split()[1], 8) & os.O_ACCMODE
    return os.O_RDWR


def _tcp_peer(pid: int, inode: int) -> tuple[str, str]:
    """Return the address of a TCP socket's other end, and its inode if that is here; else empty."""
    for name in ("net/tcp", "net/tcp6"):
        lines = [line.split() for line in proc.text(pid, name).splitlines()[1:]]
        mine = next((line for line in lines if len(line) > 9 and line[9] == str(inode)), None)
        if mine is not None and int(mine[2].rpartition(":")[2], 16):
            other = (line[9] for line in lines if len(line) > 9 and line[1:3] == [mine[2], mine[1]])
            return _address(mine[2]), next(other, "")
    return "", ""


def _address(text: str) -> str:
    """'127.0.0.1:80' of '0100007F:0050', as the kernel writes it: in words of the machine."""
    host, _, port = text.partition(":")
    raw = b"".join(struct.pack("=I", int(host[at : at + 8], 16)) for at in range(0, len(host), 8))
    family = socket.AF_INET if len(raw) == 4 else socket.AF_INET6
    name = socket.inet_ntop(family, raw)
    name = name[7:] if name.startswith("::ffff:") else name
    return f"[{name}]:{int(port, 16)}" if ":" in name else f"{name}:{int(port, 16)}"


def _unix_peer(inode: int) -> int:
    """Return the inode of the other end of a Unix socket of our network namespace; 0: it is not known."""
    head = (_REQUEST.size, _SOCK_DIAG_BY_FAMILY, 1, 1, 0)
    about = (socket.AF_UNIX, 0, 0, _ALL_STATES, inode, _SHOW_PEER, _NO_COOKIE, _NO_COOKIE)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as kernel:
            kernel.settimeout(0.2)
            kernel.send(_REQUEST.pack(*head, *about))
            answer = kernel.recv(4096)
        size, kind, *_ = _ANSWER.unpack_from(answer)
        at = _ANSWER.size + _DIAG_MESSAGE
        while kind == _SOCK_DIAG_BY_FAMILY and at + 4 <= min(size, len(answer)):
            length, attribute = struct.unpack_from("=HH", answer, at)
            if attribute == _PEER:
                return int(struct.unpack_from("=I", answer, at + 4)[0])
            at += max(4, length + 3 & ~3)
    except (OSError, struct.error):
        pass
    return 0
