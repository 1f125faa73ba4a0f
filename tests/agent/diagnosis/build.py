"""Evidence made by hand, with the frames that real ranks show."""

from __future__ import annotations

from typing import Any

from ddplaunch.agent.contract import (
    Collective,
    Exited,
    Frame,
    Group,
    JobEvidence,
    NodeEvidence,
    Process,
    Raised,
    RankEvidence,
    Stack,
    Verdict,
)
from ddplaunch.agent.diagnosis.run.decide import judge

NOW = 1_800_000_000.0
TORCH = "/opt/env/lib/python3.11/site-packages/torch"
C10D = f"{TORCH}/distributed/distributed_c10d.py"
LOADER = f"{TORCH}/utils/data/dataloader.py"
MAIN = Frame("main", "/job/train.py", 40)
TOP = Frame("<module>", "/job/train.py", 50)


def stack(*frames: Frame) -> list[Stack]:
    """The main thread's stack, innermost first, below main() of train.py."""
    return [Stack("MainThread", True, [*frames, MAIN, TOP])]


def in_collective(op: str = "all_reduce", line: int = 92) -> list[Stack]:
    """A rank that waits in a collective, called at this line of train.py."""
    wrapper = Frame("wrapper", f"{TORCH}/distributed/c10d_logger.py", 83)
    return stack(Frame(op, C10D, 4181), wrapper, Frame("train", "/job/train.py", line))


def in_init() -> list[Stack]:
    """A rank that waits in init_process_group."""
    return stack(
        Frame("_create_gloo_process_group", C10D, 757),
        Frame("_new_process_group_helper", C10D, 3121),
        Frame("init_process_group", C10D, 2721),
    )


def in_loader() -> list[Stack]:
    """A rank that waits for the workers of its DataLoader."""
    return stack(
        Frame("select", "/opt/env/lib/python3.11/selectors.py", 415),
        Frame("_try_get_data", LOADER, 1293),
        Frame("_next_data", LOADER, 1507),
        Frame("__next__", LOADER, 725),
    )


def in_evaluate() -> list[Stack]:
    """A rank in its own evaluate(), asleep."""
    return stack(
        Frame("wait", "/opt/env/lib/python3.11/threading.py", 327), Frame("evaluate", "/job/eval.py", 140)
    )


def rank(number: int, stacks: list[Stack] | None = None, called: int = 17, **more: Any) -> RankEvidence:
    """A living rank that has called `called` collectives, and has done all but the one it stands in."""
    stacks = in_collective() if stacks is None else stacks
    done = (
        called - 1 if stacks[:1] and any("distributed_c10d" in f.file for f in stacks[0].frames) else called
    )
    values: dict[str, Any] = {
        "rank": number,
        "local_rank": number % 2,
        "pid": 1000 + number,
        "alive": True,
        "phase": "running",
        "stacks": stacks,
        "stack_source": "hook" if stacks else "",
        "still_for": 11.0,
        "stuck_for": 11.0,
        "groups": [Group("0", [], called, done)],
        "initialized": True,
        "process": Process(1000 + number, "S", wchan="futex_wait_queue"),
        **more,
    }
    return RankEvidence(**values)


def call(
    seq: int, op: str, sizes: list[int] | None = None, done: bool = False, dtype: str = "Float"
) -> Collective:
    """An entry of the flight recorder."""
    return Collective("0", seq, op, [sizes or [4]], [dtype], done)


def dead(
    number: int, after: float, code: int | None = None, signal: int | None = None, **more: Any
) -> RankEvidence:
    """A rank that ended `after` seconds after NOW - 10."""
    end = Exited(NOW - 10 + after, code, signal, bool(more.pop("by_us", False)))
    return rank(number, [], **{"alive": False, "exit": end, "groups": [], **more})


def raised(kind: str, message: str, after: float, handled: bool = False, line: int = 61) -> Raised:
    """An exception `after` seconds after NOW - 10."""
    return Raised(
        kind, message, NOW - 10 + after, [Frame("step", "/job/train.py", line), MAIN], handled, "hook"
    )


PEER_GONE = "[/third_party/gloo/gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:28590."


def job(*ranks: RankEvidence, why: str = "still", per_node: int = 2, **nodes: Any) -> JobEvidence:
    """An exception `after` seconds after NOW - 10."""
    """An entry of the flight recorder."""
    """A rank in its own evaluate(), asleep."""
    """A rank that waits for the workers of its DataLoader."""
    """A rank that waits in init_process_group."""
    """A rank that waits in a collective, called at this line of train.py."""
    """All ranks, `per_node` on each node. `nodes` are fields of every NodeEvidence."""
    count = max((len(ranks) + per_node - 1) // per_node, 1)
    evidence = [
        NodeEvidence(
            node, f"n{node}", NOW, "running", [r for r in ranks if r.rank // per_node == node], **nodes
        )
        for node in range(count)
    ]
    return JobEvidence("digits", count, count * per_node, why, NOW, evidence)


def victim(number: int, after: float = 1.0) -> RankEvidence:
    """A rank that failed because its peer was gone."""
    return dead(number, after, code=1, raised=[raised("RuntimeError", PEER_GONE, after - 0.1)])


def only(evidence: JobEvidence) -> Verdict:
    """The one verdict on this evidence."""
    (verdict,) = judge(evidence)
    return verdict
