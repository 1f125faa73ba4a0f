"""Evidence of ranks that parted in a program of which the nodes have the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.agent.diagnosis.build import C10D, job, rank
from tests.agent.diagnosis.run.build_blocked import call

from ddplaunch.agent.contract import Collective, Frame, Function, Group, JobEvidence, RankEvidence, Stack
from ddplaunch.agent.evidence.branches import find
from ddplaunch.agent.evidence.program import Program
from ddplaunch.agent.evidence.ring import sequences

FILE = "/job/train.py"
RESUME = """\
def main():
    if not os.path.exists(last):
        init_weights()
    else:
        load()
    train()

def init_weights():
    for weight in weights:
        dist.broadcast(weight, 0)

def load():
    dist.barrier()

def train():
    for step in range(9):
        if step % 5 == 0:
            if rank == 0:
                dist.all_reduce(loss)
        if not step:
            continue
        dist.all_gather(out, loss)
    dist.barrier()
"""


def source(text: str, *lines: int) -> dict[str, list[Function]]:
    """What a node knows of train.py with this text, where ranks called from these lines."""
    return find([Program(FILE, text)], {FILE: lines})


def stands(number: int, op: str, *frames: tuple[str, int], **more: object) -> RankEvidence:
    """A rank in collective 9, called by these functions and lines, the outermost first."""
    way = [Frame(name, FILE, line) for name, line in frames]
    stacks = [Stack("MainThread", True, [Frame(op, C10D, 1), *reversed(way)])]
    its = replace(rank(number, stacks, 9), collectives=[Collective("0", 9, op, [[8]])])
    return replace(its, **more)  # type: ignore[arg-type]


def all_of(*ranks: RankEvidence, per_node: int = 4, text: str = RESUME) -> JobEvidence:
    """The job of these ranks, on nodes with the program's source."""
    lines = [
        frame.line for its in ranks for each in its.stacks for frame in each.frames if frame.file == FILE
    ]
    lines += [frame.line for its in ranks for each in its.calls for frame in each.frames]
    lines += [site.line.line for its in ranks for each in its.sequences for site in each.sites]
    return job(*ranks, per_node=per_node, functions=source(text, *lines))


def history(number: int, lines: Sequence[int]) -> RankEvidence:
    """A rank that has called from these lines, and stands in the last."""
    calls = [
        call(
            "barrier" if line == 8 else "all_reduce",
            place + 1,
            line,
            "entered" if place == len(lines) - 1 else "returned",
        )
        for place, line in enumerate(lines)
    ]
    names = {2: "log"}
    calls = [
        replace(each, frames=[Frame(names.get(frame.line, "<module>"), FILE, frame.line)])
        for each in calls
        for frame in each.frames
    ]
    last = calls[-1]
    its = stands(number, last.op, ("<module>", lines[-1]))
    entry = Collective("0", last.seq, last.op, [[8]])
    return replace(
        its,
        calls=calls[-2:],
        sequences=sequences(calls),
        collectives=[entry],
        groups=[Group("0", [], last.seq, last.seq - 1)],
    )
