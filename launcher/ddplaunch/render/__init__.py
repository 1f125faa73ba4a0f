"""Plan to the exact files and commands of one target; what `submit` sends, byte for byte.

Pure and deterministic: the same plan and the same facts give the same bytes on every machine. It must not
start a process, open a socket, read the clock or the environment; what it needs to know of a cluster enters
as a value. A renderer is a module of this package with `render(plan) -> Rendered`, named in RENDERERS.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ddplaunch.plan.plan import Plan
    from ddplaunch.render.rendered import Rendered

RENDERERS: Final = {
    "local": "ddplaunch.render.local",
    "slurm": "ddplaunch.render.slurm",
    "kubernetes": "ddplaunch.render.kubernetes",
}
"""Target to module, imported only when asked for."""


def render(plan: Plan) -> Rendered:
    """The files and the command of `plan` on its target."""
    rendered: Rendered = import_module(RENDERERS[plan.target]).render(plan)
    return rendered
