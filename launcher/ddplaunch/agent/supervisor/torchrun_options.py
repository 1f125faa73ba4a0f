"""torchrun's options on a user's command line, and the variables that replace those left out. Pure.

torchrun reads PET_<OPTION> from the environment where an option is not on its command line.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Callable, Optional

_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_SWITCHES = frozenset(
    ["standalone", "m", "module", "no_python", "run_path", "use_env", "virtual_local_rank", "h", "help"]
)
"""Options without a value; all others have one."""
_SHORTENED = (
    "nnodes",
    "node_rank",
    "master_addr",
    "master_port",
    "rdzv_backend",
    "rdzv_endpoint",
    "rdzv_id",
    "standalone",
)
"""Options used here, which torchrun also takes by a prefix of their name."""
STATIC, C10D = "static", "c10d"


def options(command: Sequence[str]) -> Optional[dict[str, str]]:
    """Return torchrun's options before the script, with `_` for `-`, a switch as ""; else None."""
    words = _own(command)
    return None if words is None else read(words, _SWITCHES, _whole)


def read(
    words: Sequence[str], switches: Collection[str], whole: Callable[[str], str] = str
) -> dict[str, str]:
    """Return any launcher's options before its script; all but `switches` have a value.

    `whole` returns the full name of an option that may be shortened.
    """
    result = {}
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word == "--":
            break
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("--") and len(name) > 1:
            continue  # -r3: a short option with its value
        name = whole(name.replace("-", "_"))
        result[name] = value if equals or name in switches else next(rest, "")
    return result


def gaps(
    command: Sequence[str],
    environment: Mapping[str, str],
    node: int,
    nodes: int,
    address: str,
    port: int,
) -> dict[str, str]:
    """Return variables with which torchrun on node `node` meets the others; the user's own win over them.

    A command that is not torchrun only gets MASTER_ADDR and MASTER_PORT: a script may call torchrun several
    times, not always for all nodes.
    """
    result = {"MASTER_ADDR": address, "MASTER_PORT": str(port)}
    given = options(command)
    if given is None:
        return result
    result["PET_NNODES"] = str(nodes)
    backend = given.get("rdzv_backend") or environment.get("PET_RDZV_BACKEND") or STATIC
    if backend == STATIC:
        result.update(PET_NODE_RANK=str(node), PET_MASTER_ADDR=address, PET_MASTER_PORT=str(port))
    elif backend == C10D and not (given.get("rdzv_endpoint") or environment.get("PET_RDZV_ENDPOINT")):
        host = f"[{address}]" if ":" in address else address
        # torchrun's own guess whether it is the host compares names, and is often wrong (pytorch#73656).
        result.update(PET_RDZV_ENDPOINT=f"{host}:{port}", PET_RDZV_CONF=f"is_host={int(node == 0)}")
    return result


def least_nodes(command: Sequence[str], environment: Mapping[str, str]) -> Optional[int]:
    """Return with how few nodes torchrun goes on, where its agents decide that themselves; else None."""
    given = options(command)
    if given is None:
        return None
    backend = given.get("rdzv_backend") or environment.get("PET_RDZV_BACKEND") or STATIC
    least = (given.get("nnodes") or environment.get("PET_NNODES") or "1").partition(":")[0]
    return int(least) if backend != STATIC and least.isdecimal() else None


def _own(command: Sequence[str]) -> Optional[Sequence[str]]:
    for place, word in enumerate(command):
        if os.path.basename(word) == "torchrun":
            return command[place + 1 :]
        if word == "-m" and command[place + 1 : place + 2] and command[place + 1] in _MODULES:
            return command[place + 2 :]
    return None


def _whole(name: str) -> str:
    if name in _SHORTENED or name in _SWITCHES:
        return name
    meant = [known for known in _SHORTENED if known.startswith(name)]
    return meant[0] if len(meant) == 1 else name
