"""Reads from py-spy's dump with variables in which call of torch.distributed a rank stands. Pure.

The arguments are those that torch's own functions have; no variable of the user's is looked at. A group is
there as an address, which says nothing to another process: only calls of the default group are returned.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

from ddplaunch.agent.contract import Collective, Frame, Rendezvous, Setting
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
_STORE = "torch/distributed/rendezvous.py"
_PORT = "MASTER_PORT"


class Standing(NamedTuple):
    """The frames of the main thread, and the call that it waits in, if it is known."""

    frames: list[Frame]
    call: Optional[Collective] = None
    rendezvous: Optional[Rendezvous] = None


def standing(text: str, pid: int, environment: Mapping[str, str]) -> Standing:
    """Return where the main thread stands. `environment`: with which the process was started.

    Raises ValueError, KeyError or TypeError for text that is no dump.
    """
    stack = next((each for each in stacks.from_py_spy(text, pid) if each.main), None)
    threads = json.loads(text)
    raw: list[dict[str, Any]] = next(
        (each["frames"] for each in threads if stack and each.get("os_thread_id") == stack.tid), []
    )
    if stack is None or len(raw) != len(stack.frames):
        return Standing([] if stack is None else stack.frames)
    return Standing(stack.frames, _call(stack.frames, raw), _rendezvous(stack.frames, raw, environment))


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


def _rendezvous(
    frames: list[Frame], raw: list[dict[str, Any]], environment: Mapping[str, str]
) -> Optional[Rendezvous]:
    """Return a call that looks for torchrun's store at a port that the program has set itself."""
    names = [frame.name for frame in frames[:2] if frame.file.endswith(_STORE)]
    its = _values(raw[0]) if names == ["_create_c10d_store", "_env_rendezvous_handler"] else {}
    numbers = [its.get(name, "") for name in ("port", "rank", "world_size")]
    if not all(each.isdecimal() for each in numbers):
        return None
    port, given = numbers[0], environment.get(_PORT, "")
    if port == given or "start_daemon" in its:  # it opens the store itself, or rank 0 does
        return None
    return Rendezvous(
        "env",
        0.0,
        address=its.get("hostname", "").strip("\"'"),
        port=int(port),
        rank=int(numbers[1]),
        world_size=int(numbers[2]),
        frame=reading.user_frame(frames),
        settings=[Setting(_PORT, port, given=given)],
        agent_store=True,
    )


def _values(frame: dict[str, Any]) -> dict[str, str]:
    return {str(each["name"]): str(each.get("repr") or "") for each in frame.get("locals") or ()}
