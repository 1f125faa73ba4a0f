"""`agent.pyz interfaces`: prints the prediction for this host, and what the libraries themselves report."""

from __future__ import annotations

import json
import os
import pkgutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from ddplaunch.agent.contract import Exit
from ddplaunch.agent.interfaces import gloo, nccl, read
from ddplaunch.agent.interfaces.facts import RUNNING, UP, Choice

SECONDS = 60.0
"""For a library's answer: torch takes its time on a busy network file system."""
QUIET = 5.0
"""Seconds until the waiting is told."""


def main(python: str, as_json: bool) -> int:
    """Data on standard output, whatever the libraries say; `python` is the one that has them."""
    with ThreadPoolExecutor() as pool:
        asked = {what: pool.submit(_ask, python, what) for what in ("nccl", "torch")}
        late = wait(asked.values(), QUIET).not_done
        for what in (what for what, answer in asked.items() if answer in late):
            sys.stderr.write(f"waiting for {what} to answer, at most {SECONDS:.0f} s\n")
        of_nccl, of_torch = asked["nccl"].result(), asked["torch"].result()
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
    """Return what `library` answers, or `trouble` where there is no Python to ask."""
    code = pkgutil.get_data(__package__, "library.py")
    try:
        done = subprocess.run([python, "-", what], input=code, capture_output=True, timeout=SECONDS)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found if done.returncode == 0 else {"trouble": _end(done.returncode), **found}
    except OSError as error:
        return {"trouble": str(error)}
    except subprocess.TimeoutExpired:
        return {"trouble": f"no answer in {SECONDS:.0f} s"}
    except (ValueError, IndexError):
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return {"trouble": said or _end(done.returncode)}


def _end(code: int) -> str:
    return f"it ended with {signal.Signals(-code).name if code < 0 else code}"


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
    ] or ["  none"]
    known = f"NCCL {found['nccl']}" if found["nccl"] else "no NCCL here: judged as the newest known"
    lines += [
        "",
        f"what is taken ({known}; {'torch ' + found['torch'] if found['torch'] else 'no torch here'})",
    ]
    for row in found["choices"]:
        takes = f",\n{'':27}".join(map(" ".join, row["takes"])) or "none"
        lines += [f"  {row['for']:<23}  {takes}", f"{'':27}{row['why']}"]
        if row["agrees"]:
            fails = f", and fails: {row['trouble']}" if row["trouble"] else ""
            lines.append(f"{'':27}the library itself says the same{fails}")
        elif row["library_says"] is not None:
            lines.append(
                f"{'':27}BUT the library itself says {row['library_says']} {row['trouble']}".rstrip()
            )
        elif row["trouble"]:
            lines.append(f"{'':27}the library could not be asked: {row['trouble']}")
    return lines
