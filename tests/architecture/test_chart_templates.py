"""The chart's templates lay out objects: what follows from the job file, the agent works out."""

from __future__ import annotations

import re
from pathlib import Path

from ddplaunch.spec.fields import Section
from ddplaunch.spec.models import Gate, Rendezvous, Watchdog

TEMPLATES = Path(__file__).parents[2] / "charts" / "ddplaunch" / "templates"
LINES = 733
SHOWN = {"rendezvous.port", "gate.port", "watchdog.privileges"}
"""What of these sections stands in an object: ports in the Service, and a capability of the trainer."""
SECTIONS: dict[str, type[Section]] = {"rendezvous": Rendezvous, "gate": Gate, "watchdog": Watchdog}
PLANNED = {f"{name}.{key}" for name, section in SECTIONS.items() for key in section.model_fields} - SHOWN
PLANNED |= {"launch", "workdir", "command", "env"}
"""Keys of the job file that only the plan needs."""


def read_keys(text: str) -> set[str]:
    """The keys of the job file, as dotted paths, that a template reads."""
    return set(re.findall(r"\.Values\.([a-z_]+(?:\.[a-z_]+)*)", text))


def test_the_templates_stay_small() -> None:
    """All of them together: a rule, a limit or a part of the plan would not find room."""
    lines = sum(len(path.read_text().splitlines()) for path in TEMPLATES.rglob("*") if path.is_file())

    assert lines <= LINES


def test_no_template_knows_what_only_the_plan_needs() -> None:
    """So a new key of that kind is written once, and reaches the agent with the job file."""
    found = set().union(*(read_keys(path.read_text()) for path in TEMPLATES.glob("*.*")))

    assert {"name", "nodes", "kubernetes.jobset", *SHOWN} <= found
    assert set() == PLANNED & found
