"""Objects as YAML that people read and every parser understands alike."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import yaml

# Kubernetes' parser knows more spellings of numbers and booleans than PyYAML: 1e3, 0o7, y.
_PLAIN = re.compile(r"(?!(?:y|n|yes|no|on|off|true|false|null)$)-{0,2}[a-z/]", re.IGNORECASE)
_LIBYAML: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_LIBYAML):  # type: ignore[misc] # only at run time it is known which of the two
    """Keys as they come, texts of several lines as blocks, everything doubtful in quotes."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's own signature
        """Say that what stands twice is written twice."""
        return True


def _string(dumper: Any, text: str) -> Any:
    style = "|" if text.endswith("\n") else None if _PLAIN.match(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _string)


_STYLE: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": 1 << 30}


def documents(objects: Iterable[dict[str, Any]]) -> str:
    """Return a YAML document for each object."""
    return str(yaml.dump_all(objects, Dumper=_Dumper, explicit_start=True, **_STYLE))


def block(value: Any) -> str:
    """Return a mapping or a list in block style, without a document's beginning."""
    return str(yaml.dump(value, Dumper=_Dumper, **_STYLE))
