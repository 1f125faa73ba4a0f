"""`agent.pyz interfaces`: what the libraries will take on this host, and what they say themselves."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ddplaunch.agent.contract import Exit
from ddplaunch.agent.interfaces import gloo, nccl, read
from ddplaunch.agent.interfaces.facts import RUNNING, UP, Choice

SECONDS = 60.0
"""For a library's answer: torch takes its time on a busy network file system."""


def main(python: str, as_json: bool) -> int:
    """Data on standard output, whatever the libraries say; `python` is the one that has them."""
    with ThreadPoolExecutor() as pool:
        of_nccl, of_torch = pool.map(lambda what: _ask(python, what), ("nccl", "torch"))
    release = nccl.version(of_nccl.get("version", ""))
    try:
        host = read.host(os.environ, release)
    except OSError as error:
        sys.stderr.write(f"error: the kernel does not tell this host's interfaces: {error}\n")
        return Exit.UNUSABLE
    rows = [
        _row("NCCL, bootstrap", nccl.bootstrap(host, release), of_nccl),
        _row("NCCL, data without RDMA", nccl.sockets(host, release), {}),
        _row("Gloo", gloo.gloo(host), of_torch.get("gloo", of_torch)),
        _row("TensorPipe", gloo.tensorpipe(host), of_torch.get("tensorpipe", of_torch)),
    ]
    found = {
        "host": host.name,
        "nccl": of_nccl.get("version"),
        "torch": of_torch.get("version"),
        "addresses": [{**vars(each), "state": _state(each.flags)} for each in host.addresses],
        "choices": rows,
    }
    print(json.dumps(found, indent=2) if as_json else "\n".join(_lines(found)))
    return Exit.OK


def _ask(python: str, what: str) -> dict[str, Any]:
    """As `library` answers; `trouble` where there is nobody to ask."""
    code = pkgutil.get_data(__package__, "library.py")
    try:
        done = subprocess.run([python, "-", what], input=code, capture_output=True, timeout=SECONDS)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"trouble": str(error)}
    except (ValueError, IndexError):
        return {"trouble": (done.stderr.decode(errors="replace").split("\n") or [""])[-2:][0]}


def _row(purpose: str, choice: Choice, answer: dict[str, Any]) -> dict[str, Any]:
    says = answer.get("using")
    spelt = [f"{each.interface}:{each.address}" for each in choice.addresses]
    agrees = says in (spelt, [each.address for each in choice.addresses]) if says is not None else None
    return {
        "for": purpose,
        "takes": [[each.interface, each.address] for each in choice.addresses],
        "why": choice.why,
        "library_says": says,
        "agrees": agrees,
        "trouble": answer.get("trouble") or answer.get("said", ""),
    }


def _state(flags: int) -> str:
    return "running" if flags & RUNNING else "no carrier" if flags & UP else "down"


def _lines(found: dict[str, Any]) -> list[str]:
    lines = [f"addresses of {found['host']}, in the order in which libraries look at them"]
    lines += [
        f"  {each['interface']:<15}  {each['address']}/{each['prefix']}, {each['state']}"
        for each in found["addresses"]
    ]
    known = f"NCCL {found['nccl']}" if found["nccl"] else "no NCCL here: judged as the newest known"
    lines += [
        "",
        f"what is taken ({known}; {'torch ' + found['torch'] if found['torch'] else 'no torch here'})",
    ]
    for row in found["choices"]:
        takes = f",\n{'':27}".join(map(" ".join, row["takes"])) or "none"
        lines += [f"  {row['for']:<23}  {takes}", f"{'':27}{row['why']}"]
        if row["agrees"]:
            lines.append(f"{'':27}the library itself says the same")
        elif row["library_says"] is not None:
            lines.append(
                f"{'':27}BUT the library itself says {row['library_says']} {row['trouble']}".rstrip()
            )
        elif row["trouble"]:
            lines.append(f"{'':27}the library could not be asked: {row['trouble']}")
    return lines
