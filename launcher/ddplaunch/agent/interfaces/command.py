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
from ddplaunch.agent.interfaces import predict, read
from ddplaunch.agent.interfaces.predict import RUNNING, UP, Choice

SECONDS = 60.0
"""Seconds for a library's answer: torch is slow on a busy network file system."""
QUIET = 5.0
"""Seconds until a line reports the wait."""


def main(python: str, as_json: bool) -> int:
    """Print the prediction and the libraries' answers. `python` is the one that has them. Returns an Exit."""
    with ThreadPoolExecutor() as pool:
        answers = {what: pool.submit(_library_answer, python, what) for what in ("nccl", "torch")}
        late = wait(answers.values(), QUIET).not_done
        for what in (what for what, answer in answers.items() if answer in late):
            sys.stderr.write(f"waiting for {what} to answer, at most {SECONDS:.0f} s\n")
        of_nccl, of_torch = answers["nccl"].result(), answers["torch"].result()
    release = predict.nccl_version(of_nccl.get("version", ""))
    try:
        host = read.host(os.environ, release)
    except OSError as error:
        sys.stderr.write(f"error: cannot list this host's interfaces: {error}\n")
        return Exit.UNUSABLE
    rows = [
        _row("NCCL, bootstrap", predict.nccl_bootstrap(host, release), of_nccl),
        _row("NCCL, data without RDMA", predict.nccl_sockets(host, release), {}),
        _row("Gloo", predict.gloo(host), of_torch.get("gloo", of_torch)),
        _row("TensorPipe", predict.tensorpipe(host), of_torch.get("tensorpipe", of_torch)),
    ]
    result = {
        "host": host.name,
        "nccl": of_nccl.get("version"),
        "torch": of_torch.get("version"),
        "addresses": [{**vars(each), "state": _state(each.flags)} for each in host.addresses],
        "choices": rows,
    }
    print(json.dumps(result, indent=2) if as_json else "\n".join(_lines(result)))
    return Exit.OK


def _library_answer(python: str, what: str) -> dict[str, Any]:
    """Return the answer of `library`, with `trouble` if there is none or only a part of one."""
    code = pkgutil.get_data(__package__, "library.py")
    try:
        done = subprocess.run([python, "-", what], input=code, capture_output=True, timeout=SECONDS)
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer if done.returncode == 0 else {"trouble": _end(done.returncode), **answer}
    except OSError as error:
        return {"trouble": str(error)}
    except subprocess.TimeoutExpired:
        return {"trouble": f"no answer in {SECONDS:.0f} s"}
    except (ValueError, IndexError):
        error_line = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return {"trouble": error_line or _end(done.returncode)}


def _end(code: int) -> str:
    return f"it ended with {signal.Signals(-code).name if code < 0 else code}"


def _row(purpose: str, choice: Choice, answer: dict[str, Any]) -> dict[str, Any]:
    reported = answer.get("using")
    spelt = [f"{each.interface}:{each.address}" for each in choice.addresses]
    agrees = (
        reported in (spelt, [each.address for each in choice.addresses]) if reported is not None else None
    )
    return {
        "for": purpose,
        "takes": [[each.interface, each.address] for each in choice.addresses],
        "why": choice.why,
        "library_says": reported,
        "agrees": agrees,
        "trouble": answer.get("trouble") or answer.get("said", ""),
    }


def _state(flags: int) -> str:
    return "running" if flags & RUNNING else "no carrier" if flags & UP else "down"


def _lines(result: dict[str, Any]) -> list[str]:
    lines = [f"addresses of {result['host']}, in the order in which libraries look at them"]
    lines += [
        f"  {each['interface']:<15}  {each['address']}/{each['prefix']}, {each['state']}"
        for each in result["addresses"]
    ] or ["  none"]
    known = f"NCCL {result['nccl']}" if result["nccl"] else "no NCCL here: judged as the newest known"
    lines += [
        "",
        f"what is taken ({known}; {'torch ' + result['torch'] if result['torch'] else 'no torch here'})",
    ]
    for row in result["choices"]:
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
