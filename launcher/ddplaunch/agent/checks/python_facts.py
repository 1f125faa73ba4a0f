"""Prints facts of the trainer's Python as JSON. Run by that Python, never imported by the agent.

This file must not import torch (seconds, and GPU contexts) or user code, so it reads versions from files. It
must run on Python 3.6, to report a Python that is too old. Argument: a module to look for.
"""
# ruff: noqa: FA100, UP006 - annotations that are not evaluated, and dict[], are younger than 3.6

import json
import os
import re
import sys
from importlib.util import find_spec
from typing import Any, Dict, Optional  # noqa: UP035


def find(name: str) -> Optional[str]:
    """Return the folder or file of a top-level module, without importing it; None if there is none."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    places = list(spec.submodule_search_locations or [])
    return places[0] if places else spec.origin


def torch_facts(folder: str) -> Dict[str, Any]:
    """Return the versions that torch's build wrote down."""
    torchrun = os.path.join(folder, "distributed", "run.py")
    facts: Dict[str, Any] = {"torch_folder": folder, "torchrun": os.path.isfile(torchrun)}
    try:
        with open(os.path.join(folder, "version.py")) as file:
            text = file.read()
    except OSError:
        return facts
    for key, name in (("torch", "__version__"), ("cuda", "cuda"), ("hip", "hip")):
        match = re.search(rf"^{name}\b[^=\n]*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
        if match:
            facts[key] = match.group(1)
    return facts


def nccl_version(torch_folder: str) -> Optional[str]:
    """Return the version of the NCCL package beside torch's wheel; None if NCCL is elsewhere or absent."""
    for name in os.listdir(os.path.dirname(torch_folder)):
        match = re.match(r"nvidia_nccl_cu\d+-(.+)\.dist-info$", name)
        if match:
            return match.group(1)
    return None


def has_module(name: str) -> bool:
    """Whether `python -m NAME` would find a module, as far as files show that."""
    first, _, rest = name.partition(".")
    place = find(first)
    if place is None or not rest:
        return place is not None
    base = os.path.join(place, *rest.split("."))
    return os.path.isfile(base + ".py") or os.path.isdir(base)


def main() -> None:
    """Print the facts as one line."""
    version = ".".join(map(str, sys.version_info[:3]))
    facts: Dict[str, Any] = {"python": version, "executable": sys.executable}
    torch = find("torch")
    if torch and os.path.isdir(torch):
        facts.update(torch_facts(torch))
        facts["nccl"] = nccl_version(torch)
    if len(sys.argv) > 1:
        sys.path.insert(0, "")
        facts["module"] = has_module(sys.argv[1])
    sys.stdout.write(json.dumps(facts) + "\n")


main()
