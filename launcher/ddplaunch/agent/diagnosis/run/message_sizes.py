"""p2p-deadlock: a message that is larger than its receive, in shape or in dtype.

Gloo compares bytes (gloo/transport/tcp/pair.cc: "op.preamble.length <= op.nbytes. 32 vs 16"), and ends the
receiver's process. A message that is smaller than its receive passes without a word. NCCL compares nothing:
the receive waits for ever (its documentation wants equal counts and dtypes on both sides).
"""

from __future__ import annotations

import math
import re
from typing import Optional

from ddplaunch.agent.contract import Collective, RankEvidence, Verdict
from ddplaunch.agent.diagnosis.run import blocked, call_records, consequences, stacks
from ddplaunch.agent.diagnosis.run.job_view import JobView
from ddplaunch.agent.system import phrases

_TOO_LARGE = re.compile(r"preamble\.length <= \w+\.nbytes\. (\d+) vs (\d+)")
_OPEN = frozenset(["entered", "issued", "waiting", "raised"])
_BITS = re.compile(r"\d+")
_NAMED = {
    "bool": 1,
    "byte": 1,
    "char": 1,
    "short": 2,
    "half": 2,
    "int": 4,
    "float": 4,
    "long": 8,
    "double": 8,
}
"""Bytes of dtypes as the flight recorder names them, without a number."""
_Pair = tuple[Collective, Collective]
"""A send and its receive."""


def too_large(view: JobView) -> Optional[Verdict]:
    """Return the verdict where the ring has one receive and one send of just the bytes that Gloo reports."""
    for number, rank in view.ranks.items():
        found = _TOO_LARGE.search("\n".join(consequences.last_words(rank)))
        if found is None:
            continue
        pair = _pair(view, rank, int(found[1]), int(found[2]))
        if pair is not None:
            return _verdict(view, number, *pair)
    return None


def differs_in_nccl(view: JobView) -> Optional[Verdict]:
    """Return the verdict on a receive of NCCL that is not done, and has another size than its send."""
    for number, rank in view.ranks.items():
        need = blocked.queued(rank)
        if need is None or blocked.way(need) != "recv":
            continue
        receives, sends = blocked.in_order(view, number, need) or ([], [])
        if sends and len(sends) == len(receives) and _bytes(sends[-1]) != _bytes(need):
            return _verdict(view, number, sends[-1], need)
    return None


def _pair(view: JobView, rank: RankEvidence, sent: int, wanted: int) -> Optional[_Pair]:
    """Return the send of `sent` bytes and the open receive of `wanted` bytes."""
    receives = [
        call
        for call in rank.calls
        if call.p2p and blocked.way(call) == "recv" and call.state in _OPEN and _bytes(call) == wanted
    ]
    need = receives[0] if len(receives) == 1 else None
    if need is None or need.peer is None or need.peer not in view.ranks:
        return None
    theirs = [call for call in view.ranks[need.peer].calls if blocked.serves(call, need, rank.rank)]
    matching = [call for call in theirs if _bytes(call) == sent]
    return (matching[-1], need) if matching else None


def _bytes(call: Collective) -> int:
    """Return the bytes of a call's tensors; 0 where its shape or its dtype is not known."""
    if len(call.dtypes) != 1:
        return 0
    dtype = call.dtypes[0]
    bits = _BITS.search(dtype)  # the first number of 'float32', 'bfloat16', 'float8_e4m3fn'
    size = int(bits[0]) // 8 if bits else _NAMED.get(dtype.lower(), 0)
    return size * sum(math.prod(shape) for shape in call.sizes)


def _verdict(view: JobView, receiver: int, send: Collective, receive: Collective) -> Verdict:
    assert receive.peer is not None
    sender = receive.peer
    ranks = sorted([sender, receiver])
    sent, wanted = _tensor(send), _tensor(receive)
    sender_site, receiver_site = (phrases.at(stacks.user_frame(call.frames)) for call in (send, receive))
    bigger = "larger" if _bytes(send) > _bytes(receive) else "smaller"
    sending, receiving = call_records.described(send), call_records.described(receive)
    return view.verdict(
        code="p2p-deadlock",
        sentence=f"rank {sender} sent {sent} to rank {receiver}{sender_site}, which receives "
        f"{wanted}{receiver_site}: the message is {bigger} than its receive",
        ranks=ranks,
        victims=view.victims_of(ranks),
        confidence=0.95,
        facts=[
            f"rank {sender}: {sending}, {sent}, {_bytes(send)} bytes",
            f"rank {receiver}: {receiving}, {wanted}, {_bytes(receive)} bytes",
        ],
        hint="A receive needs the shape and the dtype of its send, and takes the messages of one rank in "
        f"their order: compare {sending} and {receiving}.",
    )


def _tensor(call: Collective) -> str:
    """'[8] float32'."""
    return " ".join([*(str(size) for size in call.sizes), *call.dtypes])
