"""Asks NCCL's RAS threads what all ranks have launched. That has crashed ranks (nccl#1669, #1718, #2346).

NCCL >= 2.24 listens where NCCL_RAS_ADDR says. All ranks of a node share the port: one of them answers for all
those with which it is connected. NCCL < 2.28.7 refuses JSON and sends its text. Whatever is in order is only
counted. Layouts: NCCL's src/ras/client_support.cc.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Callable, Optional

from ddplaunch.agent.contract import Ras, RasCommunicator, RasCount, RasRank
from ddplaunch.agent.system import ports, proc

_USUAL = "localhost:28028"
_WAIT = 2.5
_ASK = b"timeout 1\nset format json\nverbose status\n"
"""It leaves one second for ranks that do not answer each other."""
_LONGEST = 4 << 20
_KEPT = 8
"""Communicators that are not in order."""
_NAMED = 256
"""Ranks to keep by number, among those that have launched the same number of operations."""

_ROW = re.compile(r" *(\d+) +(\d+) +\d+ +\S+ +(\d+) +\d+ +(\S+) +\S+$")
_HEAD = re.compile(r"#(\d+)-\d+ \((\w+)\) (\w+)$")
_KIND = re.compile(r"  Communicator ranks have different (\w+) operation counts$")
_MANY = re.compile(r"  (\d+) ranks have (?:launched up to operation (\d+)|not launched any operations)$")
_ONE = re.compile(
    r"  Rank (\d+)( has (?:launched up to operation (\d+)|not launched any operations))? -- (.*)"
)
_PROCESS = re.compile(r"rocess (\d+) on node (\S+)")
_MISSING = re.compile(r"  The missing ranks?: ([\d, ]+)$")
_OVER = ("init_state", "finalize_called", "destroy_flag", "abort_flag")
_NO_COMMA = re.compile(r'(\d)(\s*\n\s*")')


def address(pids: Iterable[int]) -> Optional[tuple[str, int]]:
    """Return where NCCL listens in these processes, and no other process does; None: nowhere."""
    listening = [each for each in ports.table() if each.state == ports.LISTEN]
    ours = {pid: proc.socket_inodes(pid) for pid in pids}
    for pid in ours:
        host, _, port = proc.environment(pid).get("NCCL_RAS_ADDR", _USUAL).rpartition(":")
        there = {each.inode for each in listening if str(each.port) == port}
        if there and there <= set().union(*ours.values()):
            return host.strip("[]"), int(port)
    return None


def ask(where: tuple[str, int], meanwhile: Callable[[], None]) -> tuple[Optional[Ras], str]:
    """Return what NCCL says, or why it says nothing. Calls `meanwhile` every 20 ms."""
    until = time.monotonic() + _WAIT
    answer = b""
    try:
        with socket.create_connection(where, _WAIT) as connection:
            connection.sendall(_ASK)
            connection.settimeout(0.02)
            while len(answer) < _LONGEST:
                if time.monotonic() > until:
                    return None, f"NCCL RAS: no whole answer in {_WAIT} s"
                try:
                    data = connection.recv(1 << 18)
                except socket.timeout:
                    meanwhile()
                    continue
                if not data:
                    return read(answer.decode(errors="replace")), ""
                answer += data
        return None, "NCCL RAS: an answer without an end"
    except OSError as error:
        return None, f"NCCL RAS: {error.strerror or error}"
    except (ValueError, LookupError, TypeError, AttributeError):
        return None, "NCCL RAS: an answer that cannot be read"


def read(answer: str) -> Ras:
    """Return what an answer says. Raises ValueError, LookupError, TypeError or AttributeError."""
    start = re.search(r"^\{", answer, re.M)
    return _of_json(answer[start.start() :]) if start else _of_text(answer)


def _of_json(answer: str) -> Ras:
    # NCCL 2.28.9 leaves out a comma before the status of a missing rank.
    data = json.loads(_NO_COMMA.sub(r"\1,\2", answer))
    communicators = []
    dead: dict[str, None] = {}
    for one in data["communicators"]:
        unheard = [each for each in one["missing_ranks"] if each["status"]["unresponsive"]]
        dead.update(
            (f"process {each['pid']} on {each['host']}", None)
            for each in unheard
            if each["status"]["considered_dead"]
        )
        counts = []
        at_work = all(not any(each["status"][name] for name in _OVER) for each in one["ranks"])
        for op in one["ranks"][0]["collective_counts"] if at_work and one["ranks"] else ():
            by_count: dict[int, list[RasRank]] = {}
            for each in one["ranks"]:
                by_count.setdefault(int(each["collective_counts"][op]), []).append(_rank(each))
            counts += [RasCount(op, n, len(its), its) for n, its in by_count.items() if len(by_count) > 1]
        if counts or unheard or not at_work:
            name = str(one["hash"]).replace("0x", "")
            silent = [_rank(each) for each in unheard]
            communicators.append(RasCommunicator(name, int(one["size"]), counts, silent))
    return _bounded(str(data["nccl_version"]), len(data["communicators"]), communicators, dead)


def _rank(entry: dict[str, Any]) -> RasRank:
    return RasRank(int(entry["rank"]), str(entry["host"]), int(entry["pid"]))


def _of_text(answer: str) -> Ras:
    version = re.search(r"^NCCL version (\S+)", answer, re.M)
    if version is None:
        raise ValueError("no answer of NCCL")
    text = _Text()
    for line in answer.splitlines():
        text.add(line)
    total = sum(count for count, _, _ in text.rows.values())
    return _bounded(version[1], total, text.communicators.values(), text.dead)


class _Text:
    """The lines of a text, as far as they have been added."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[int, int, str]] = {}  # by group: communicators, their size, their status
        self.communicators: dict[str, RasCommunicator] = {}
        self.dead: list[str] = []
        self._one: Optional[RasCommunicator] = None  # the one to which the lines belong
        self._part, self._status = "", ""
        self._op: Optional[str] = None

    def add(self, line: str) -> None:
        if row := _ROW.match(line):
            self.rows[row[1]] = int(row[2]), int(row[3]), row[4]
        elif head := _HEAD.match(line):
            (_, size, self._status), self._part, self._op = self.rows[head[1]], head[3], None
            self._one = self.communicators.setdefault(head[2], RasCommunicator(head[2], size, [], []))
        elif not line.startswith("  "):
            self._one, self._part = None, line
        elif self._one is not None:
            self._add(self._one, line)
        elif self._part == "DEAD":
            self.dead += [f"process {pid} on {host}" for pid, host in _PROCESS.findall(line)]

    def _add(self, one: RasCommunicator, line: str) -> None:
        if unheard := _MISSING.match(line):
            one.silent.extend(RasRank(int(number)) for number in unheard[1].split(","))
        elif kind := _KIND.match(line):
            self._op = kind[1].replace("collective", "") if self._status == "RUNNING" else None
        elif (many := _MANY.match(line)) and self._op is not None:
            one.counts.append(RasCount(self._op, int(many[2] or 0), int(many[1]), []))
        elif named := _ONE.match(line):
            process = _PROCESS.search(named[4])
            rank = RasRank(int(named[1]), process[2], int(process[1])) if process else RasRank(int(named[1]))
            if self._part == "INCOMPLETE":
                one.silent.append(rank)
            elif self._op is not None and named[2]:
                one.counts.append(RasCount(self._op, int(named[3] or 0), 1, [rank]))
            elif self._op is not None:
                one.counts[-1].ranks.append(rank)


def _bounded(version: str, total: int, communicators: Iterable[RasCommunicator], dead: Iterable[str]) -> Ras:
    """Return the answer without long or cut-off lists, and without what 2.27.3 invents."""
    kept = []
    for one in communicators:
        counts = [
            each if len(each.ranks) == each.size <= _NAMED else replace(each, ranks=[]) for each in one.counts
        ]
        silent = [each for each in one.silent if each.rank < one.size][:_NAMED]
        kept.append(
            replace(one, counts=sorted(counts, key=lambda each: (each.op, -each.count)), silent=silent)
        )
    return Ras(version, total, kept[:_KEPT], list(dead)[:_NAMED])
