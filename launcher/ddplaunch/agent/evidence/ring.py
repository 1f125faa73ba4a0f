"""Reads the last calls of torch.distributed from the file that the hook writes in a process.

The process may have been killed during a write, or may have overwritten the file, so damaged slots are left
out. Numbers count the recorded calls in a group, unlike torch's own: they are for comparing calls of ranks
with one another, not with entries of torch's flight recorder.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field, replace
from typing import Any, Optional

from ddplaunch.agent.contract import CallSequence, CallSite, Collective, Frame

HEADER = b"ddplaunch ring 3\n".ljust(64, b"\0")
SLOTS = 256
SLOT = struct.Struct("<QBBHiddIHHHHB3x6qQ")
"""The same as in hook/ddplaunch_ring.py, which cannot be imported here."""
KEPT = 32
"""Calls of a rank to keep."""
_TEXT = 1 << 16
_DIMENSIONS = 6
_STATES = {1: "entered", 2: "returned", 3: "raised", 4: "waiting", 5: "waited"}
_OPEN = (1, 4)
_PHASES = ("init_process_group", "new_group", "destroy_process_group")
_P2P = frozenset({"send", "isend", "recv", "irecv", "send_object_list", "recv_object_list"})
_NOBODY = -2
_NO_TAG = 0xFFFF
_LATEST = 1e11  # seconds since the epoch: the hook has written no later time


@dataclass(frozen=True)
class Ring:
    """`calls`: as `newest` returns them. `initialized`: whether there was a group at the end; None:
    unknown.
    """

    calls: list[Collective] = field(default_factory=list)
    initialized: Optional[bool] = None
    sequences: list[CallSequence] = field(default_factory=list)


def read(path: str) -> Optional[Ring]:
    """Return the ring; None without a file: the process made no call, or its hook could not write."""
    try:
        with open(path, "rb") as file:
            return parse(file.read(len(HEADER) + SLOTS * SLOT.size + _TEXT))
    except OSError:
        return None


def counts(path: str) -> Optional[tuple[int, int]]:
    """Return the calls made and the calls done so far, as numbers that grow with each; None: there is no
    ring.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(len(HEADER) + SLOTS * SLOT.size + _TEXT)
    except OSError:
        return None
    if not data.startswith(HEADER) or len(data) <= len(HEADER) + SLOTS * SLOT.size:
        return None
    names = [_text(line) for line in data[len(HEADER) + SLOTS * SLOT.size :].split(b"\n")[:-1]]
    slots = [slot for slot in _whole(data) if _name(names, slot[8]) not in (*_PHASES, "")]
    if not slots:
        return 0, 0
    called = max(int(slot[0]) for slot in slots)
    return called, called - sum(slot[1] in _OPEN for slot in slots)


def _whole(data: bytes) -> list[tuple[Any, ...]]:
    """Return the slots that were not damaged while they were being written."""
    slots = (SLOT.unpack_from(data, len(HEADER) + place * SLOT.size) for place in range(SLOTS))
    return [slot for place, slot in enumerate(slots) if slot[0] == slot[-1] and slot[0] % SLOTS == place]


def parse(data: bytes, kept: int = KEPT) -> Optional[Ring]:
    """Return the newest calls, about `kept` of them, from a file's content; None if it is no ring."""
    text = data[len(HEADER) + SLOTS * SLOT.size :]
    if not data.startswith(HEADER) or not text:
        return None
    names = [_text(line) for line in text.split(b"\n")[:-1]]
    whole = _whole(data)
    calls: list[Collective] = []
    made: list[Collective] = []
    is_whole = any(slot[0] == 1 for slot in whole)
    initialized: Optional[bool] = None
    for slot in sorted(whole, key=lambda slot: int(slot[0])):
        call = _call(slot, names)
        if call is None:
            continue
        if call.op == "new_group":
            made.append(replace(call, seq=len(made) + 1))
        if call.op == "init_process_group":
            initialized = call.state == "returned"
        elif call.op == "destroy_process_group":
            initialized = is_whole = False
        elif call.group:
            calls.append(call)
            initialized = True
    # torch names groups by their number. So their sequence counts only from the first call on, and until some
    # are destroyed: after all of them, torch begins to count again.
    return Ring(newest(calls, kept), initialized, sequences([*calls, *(made if is_whole else [])]))


def newest(calls: list[Collective], kept: int) -> list[Collective]:
    """Return the last `kept` calls, the oldest first, and before them older sends and receives that are still
    open.
    """
    older = [call for call in calls[:-kept] if call.p2p and call.state in ("entered", "issued", "waiting")]
    return older[-kept:] + calls[-kept:]


def sequences(calls: list[Collective]) -> list[CallSequence]:
    """Return the sequence of each group's collectives, since the last one that is missing or has no line.

    That of group "" are the calls of new_group.
    """
    groups: dict[str, dict[int, Collective]] = {}
    for call in calls:
        if not call.p2p:
            groups.setdefault(call.group, {})[call.seq] = call  # the number of a refused call is given again
    found = []
    for group, its in groups.items():
        number = last = max(its)
        while number in its and its[number].frames:
            number -= 1
        sites: dict[tuple[str, str, str, int], int] = {}
        places, known = [], []
        for each in range(number + 1, last + 1):
            frame = its[each].frames[0]
            site = (its[each].op, frame.name, frame.file, frame.line)
            if site not in sites:
                known.append(CallSite(its[each].op, frame))
            places.append(sites.setdefault(site, len(sites)))
        if places:
            found.append(CallSequence(group, number + 1, known, places))
    return found


def _call(slot: tuple[Any, ...], names: list[Any]) -> Optional[Collective]:
    _, state, later, tag, peer, at, end, number, function, group, site, dtype, length, *shape, _ = slot
    op, its_group, its_dtype = (_name(names, index) for index in (function, group, dtype))
    if not op or state not in _STATES or not 0 < at < _LATEST:
        return None
    returned = "issued" if later else "returned"
    done = state == 5 or (state == 2 and not later)
    return Collective(
        group=its_group,
        seq=number,
        op=op,
        sizes=[shape[:length]] if its_dtype and length <= _DIMENSIONS else [],
        dtypes=[its_dtype] if its_dtype else [],
        done=done,
        p2p=op in _P2P,
        at=at,
        frames=_frames(names[site]) if 0 < site < len(names) else [],
        peer=None if peer == _NOBODY else peer,
        tag=None if tag == _NO_TAG else tag,
        state=returned if state == 2 else _STATES[state],
        took=round(end - at, 6) if done and at <= end < _LATEST else None,
    )


def _name(names: list[Any], index: int) -> str:
    name = names[index] if index < len(names) else ""
    return name if isinstance(name, str) else ""


def _frames(site: Any) -> list[Frame]:
    if not isinstance(site, list) or [type(part) for part in site] != [str, str, int]:
        return []
    return [Frame(*site)]


def _text(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
