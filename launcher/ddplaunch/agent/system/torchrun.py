"""torchrun's own options, how a torchrun will look for the others, and which machine has its store.

torchrun reads PET_<OPTION> from the environment if an option is not on its command line.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Callable, Optional

from ddplaunch.agent.contract import Torchrun
from ddplaunch.agent.system.background import Task

_TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_SWITCHES = frozenset(
    ["standalone", "m", "module", "no_python", "run_path", "use_env", "virtual_local_rank", "h", "help"]
)
"""Options without a value. All others have one."""
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
"""Options used here that torchrun also accepts when their names are shortened."""
STATIC, C10D = "static", "c10d"


def is_torchrun(words: list[str]) -> bool:
    """Whether the command itself is torchrun, and not a script that may start it."""
    if os.path.basename(words[0]) == "torchrun":
        return True
    return any(a == "-m" and b in _TORCHRUN_MODULES for a, b in zip(words, words[1:]))


def is_process(words: Sequence[str]) -> bool:
    """Whether a process with this command line is torchrun; Python's own options may come first."""
    if words and re.fullmatch(r"(python|pypy)[\d.]*", os.path.basename(words[0])):
        words = words[1:]
        while words and words[0].startswith("-") and words[0] != "-m":
            words = words[1:]
    return bool(words) and (
        os.path.basename(words[0]) == "torchrun"
        or (words[0] == "-m" and words[1:2] != [] and words[1] in _TORCHRUN_MODULES)
    )


def torchrun_options(command: Sequence[str]) -> Optional[dict[str, str]]:
    """Return torchrun's options before the script, `_` for `-`, "" for a switch; None: not torchrun."""
    words = _torchrun_words(command)
    return None if words is None else read_options(words, _SWITCHES, _full_name)


def read_options(
    words: Sequence[str], switches: Collection[str], whole: Callable[[str], str] = str
) -> dict[str, str]:
    """Return the options of any launcher before its script. All except `switches` have a value.

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


def _torchrun_words(command: Sequence[str]) -> Optional[Sequence[str]]:
    for place, word in enumerate(command):
        if os.path.basename(word) == "torchrun":
            return command[place + 1 :]
        if word == "-m" and command[place + 1 : place + 2] and command[place + 1] in _TORCHRUN_MODULES:
            return command[place + 2 :]
    return None


def _full_name(name: str) -> str:
    if name in _SHORTENED or name in _SWITCHES:
        return name
    meant = [known for known in _SHORTENED if known.startswith(name)]
    return meant[0] if len(meant) == 1 else name


# --- how it will look for the others

STATIC_PORT, C10D_PORT = "29500", "29400"
"""torchrun's default ports, of --master-port and of an endpoint without one."""


def read_torchrun(pid: int, command: Sequence[str], environment: Mapping[str, str]) -> Optional[Torchrun]:
    """Return what this torchrun goes by; None if the command itself is another one.

    `opens_store` is left open where torchrun guesses it from names: see `guesses_host`.
    """
    given = torchrun_options(command) if is_process(command) else None
    if given is None:
        return None

    def option(name: str) -> str:
        return given.get(name) or environment.get(f"PET_{name.upper()}", "")

    backend = option("rdzv_backend") or STATIC
    endpoint = option("rdzv_endpoint")
    nnodes = option("nnodes")
    is_single = "standalone" in given or bool(environment.get("PET_STANDALONE"))
    if backend == STATIC and not endpoint:
        if (nnodes or "1") in ("1", "1:1") and not option("master_port"):
            is_single = True  # torchrun then takes a rendezvous of its own
        endpoint = f"{option('master_addr') or '127.0.0.1'}:{option('master_port') or STATIC_PORT}"
    if is_single:
        backend, endpoint = C10D, ""
    node_rank = option("node_rank")
    conf = dict(each.strip().partition("=")[::2] for each in option("rdzv_conf").split(","))
    is_host = {"1": True, "true": True, "0": False, "false": False}.get(conf.get("is_host", "").lower())
    if backend == STATIC:
        is_host = node_rank in ("", "0")
    return Torchrun(
        pid=pid,
        nnodes="1" if is_single else nnodes or "1",
        sized=bool(nnodes) or "standalone" in given or bool(environment.get("PET_STANDALONE")),
        backend=backend,
        endpoint=endpoint,
        run_id=option("rdzv_id") or "none",
        node_rank=int(node_rank) if node_rank.isdecimal() else None,
        opens_store=is_host if endpoint and conf.get("store_type", "tcp") == "tcp" else None,
        local_addr=option("local_addr"),
    )


def split_endpoint(endpoint: str) -> tuple[str, str]:
    """Return the host and the port of an endpoint, which has c10d's default port if it names none."""
    host, colon, port = endpoint.rpartition(":")
    if not colon or host.endswith(":") or "]" in port:
        host, port = endpoint, C10D_PORT
    return host.strip("[]"), port


def guesses_host(host: str, patience: float) -> Optional[bool]:
    """Whether torchrun on this machine takes `host` for its own, and opens the store there.

    None if the resolver does not answer within `patience` seconds. torchrun asks in the same way: see
    `_matches_machine_hostname` of torch/distributed/elastic/rendezvous/utils.py, alike since torch 2.0.
    """
    answer: list[bool] = []
    Task(lambda: answer.append(_is_own(host)), name=f"resolve {host}").join(patience)
    return answer[0] if answer else None


def full_name(patience: float) -> str:
    """Return the name that torchrun on this machine gives to its peers; "": the resolver is too slow."""
    answer: list[str] = []
    Task(lambda: answer.append(socket.getfqdn()), name="resolve the own name").join(patience)
    return answer[0] if answer else ""


def _is_own(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    own = socket.gethostname()
    if host in ("localhost", own) or (address is not None and address.is_loopback):
        return True
    theirs = {to[4][0] for to in _looked_up(host)}
    return any(
        (to[3] and to[3] == host) or (address is not None and to[4][0] == str(address)) or to[4][0] in theirs
        for to in _looked_up(own)
    )


def _looked_up(name: str) -> list[Any]:
    try:
        return socket.getaddrinfo(name, None, proto=socket.IPPROTO_TCP, flags=socket.AI_CANONNAME)
    except (OSError, UnicodeError):
        return []
