"""Reads from py-spy's dump with variables in which call of torch.distributed a rank stands. Pure.

The arguments are those that torch's own wrapper around its calls has. A group is there as an address, which
says nothing to another process: only calls of the default group are returned.
"""

from __future__ import annotations

import json
from typing import Any, Optional

from ddplaunch.agent.contract import Collective, Frame
from ddplaunch.agent.diagnosis.run import stacks as reading
from ddplaunch.agent.evidence import stacks

DEFAULT_GROUP = "0"
_WRAPPER = "torch/distributed/c10d_logger.py"
_PEERS = {"send": ("dst", "group_dst"), "recv": ("src", "group_src")}
_ROOTS = {
    **dict.fromkeys(("broadcast", "broadcast_object_list"), _PEERS["recv"]),
    **dict.fromkeys(("scatter", "scatter_object_list"), _PEERS["recv"]),
    **dict.fromkeys(("gather", "gather_object"), _PEERS["send"]),
}
_CUT = "..."
"""Ends a text that py-spy has cut off."""
Standing = tuple[list[Frame], Optional[Collective]]


def standing(text: str, pid: int) -> Standing:
    """Return the frames of the main thread, and the call that it waits in; None: none that is known.

    Raises ValueError, KeyError or TypeError for text that is no dump.
    """
    stack = next((each for each in stacks.from_py_spy(text, pid) if each.main), None)
    threads = json.loads(text)
    raw: list[dict[str, Any]] = next(
        (each["frames"] for each in threads if stack and each.get("os_thread_id") == stack.tid), []
    )
    if stack is None or len(raw) != len(stack.frames):
        return [] if stack is None else stack.frames, None
    return stack.frames, _call(stack.frames, raw)


def _call(frames: list[Frame], raw: list[dict[str, Any]]) -> Optional[Collective]:
    name = reading.collective(frames)
    places = [
        n for n, each in enumerate(frames) if each.file.endswith(_WRAPPER) and frames[n - 1].name == name
    ]
    if name is None or not places:
        return None
    place = places[-1]
    given = _values(raw[place])
    arguments = given.get("args", _CUT) + given.get("kwargs", _CUT)
    site = reading.user_frame(frames)
    if _CUT in arguments or "roup" in arguments or site is None:
        return None
    inner = _values(raw[place - 1])
    others = {**_PEERS, **_ROOTS}.get(name, ())
    peers = [int(inner[each]) for each in others if inner.get(each, "").isdecimal()]
    tag = inner.get("tag", "")
    if name in _PEERS and not (peers and tag.isdecimal()):
        return None
    return Collective(
        DEFAULT_GROUP,
        0,
        name,
        p2p=name in _PEERS,
        frames=[site],
        peer=peers[0] if peers else None,
        state="entered",
        tag=int(tag) if name in _PEERS else None,
    )


def _values(frame: dict[str, Any]) -> dict[str, str]:
    return {str(each["name"]): str(each.get("repr") or "") for each in frame.get("locals") or ()}
