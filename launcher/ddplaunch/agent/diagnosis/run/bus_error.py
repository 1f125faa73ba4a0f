"""The rule on SIGBUS: a mapped page with no memory or file behind it, often as /dev/shm ran full."""

from __future__ import annotations

from typing import Optional

from ddplaunch.agent import platforms
from ddplaunch.agent.contract import NodeEvidence, Verdict
from ddplaunch.agent.diagnosis.run import call_records
from ddplaunch.agent.diagnosis.run.causes import first_ends
from ddplaunch.agent.diagnosis.run.ended import killed_whom, last_lines, shared_memory, verdict_on
from ddplaunch.agent.diagnosis.run.job_view import JobView
from ddplaunch.agent.system import phrases

_FULL = 0.95
"""Share of /dev/shm from which on it counts as full: the page that did not fit is not in it."""
_SMALL = 1 << 30
"""Bytes. A smaller /dev/shm may run full and be empty again between two looks."""
_ENLARGE = (
    "Make /dev/shm larger: `resources.shm` in the job file, --shm-size with Docker. Or need less of it: "
    "fewer DataLoader workers, a smaller prefetch_factor."
)
_CUT = (
    "A page of a mapped file could not be had: the file was cut or written over in place while it was "
    "mapped, or its storage failed (dmesg). Write to another file and rename it over the old one, and "
    "let no job change a file that another has mapped (mmap=True, numpy.memmap, safetensors)."
)


def rank_killed_bus(view: JobView) -> Optional[Verdict]:
    """SIGBUS of a rank or of its DataLoader's worker, with what /dev/shm held."""
    causes = first_ends(view, "signal")
    if not causes or causes[0].what != "SIGBUS":
        return None
    first = causes[0]
    node = view.nodes[view.node_of[first.rank]]
    why, hint, confidence = _why(view, node)
    facts = shared_memory(view, first.rank)
    if first.loader is None:
        facts += call_records.last(view.ranks[first.rank])
    return verdict_on(
        view,
        "rank-killed-bus",
        causes,
        f"{killed_whom(causes)} killed by SIGBUS{why}",
        [*facts, *last_lines(view, first)],
        hint,
        confidence,
    )


def _why(view: JobView, node: NodeEvidence) -> tuple[str, str, float]:
    """Return the end of the sentence, the hint, and the confidence."""
    enlarge = platforms.named(view.evidence.platform).hint("shm", _ENLARGE)
    size, most = node.shm_size, max(node.shm_peak or 0, node.shm_used or 0)
    if not size or node.shm_used is None:
        return "", f"{_CUT} Or /dev/shm ran full: `df -h /dev/shm`. {enlarge}", 0.8
    held = f"{phrases.size(most)} of {phrases.size(size)}"
    if most >= _FULL * size:
        return f": /dev/shm on {view.node(node.node)} was full ({held})", enlarge, 0.95
    known = f"; /dev/shm on {view.node(node.node)} was not seen full ({held})"
    return known, f"{_CUT} {enlarge}" if size < _SMALL else _CUT, 0.9
