"""Plan to the exact files and commands of one target; what `submit` sends, byte for byte.

Pure and deterministic: the same plan and the same facts give the same bytes on every machine. It must not
start a process, open a socket, read the clock or the environment; what it needs to know of a cluster enters
as a value. Which module renders a target stands in its `Target` record.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddplaunch.targets import find

if TYPE_CHECKING:
    from ddplaunch.plan.plan import Plan
    from ddplaunch.render.rendered import Rendered


def render(plan: Plan, *, gate_only: bool = False) -> Rendered:
    """Return the files and the command of `plan` on its target.

    With `gate_only` it ends with its gate, and tells nobody: who has asked for it waits for the answer.
    """
    if gate_only:
        plan = replace(plan, job=replace(plan.job, notify=None))
    target = find(plan.target)
    rendered: Rendered = target.load(target.render)(plan, gate_only=gate_only)
    return replace(rendered, sweep=plan.sweep)
