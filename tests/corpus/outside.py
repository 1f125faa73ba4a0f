"""Starts a program of the corpus by plain torchrun, and asks `ddplaunch diagnose pid:…` what is wrong."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.corpus import plain
from tests.corpus.faults import Fault

HANGS_FOR = 13.0
"""Seconds from the moment progress stops to the call: a hang is one after ten."""
NOTHING = {"ranks": [], "confidence": 0.0, "seconds": None}


def ask(fault: Fault, folder: Path, env: dict[str, str]) -> dict[str, Any]:
    """With py-spy, and as if there were none: {"py-spy": asked, "none": asked, "load": …}."""
    folder.mkdir(parents=True)
    with plain.job(fault, folder, env) as launchers:
        until = time.monotonic() + plain.STARTED
        stopped = False
        while time.monotonic() < until and any(each.poll() is None for each in launchers):
            if not stopped and list(folder.glob("stopped-*")):
                stopped, until = True, time.monotonic() + HANGS_FOR
            time.sleep(0.2)
        found: dict[str, Any] = {"py-spy": _asked(launchers, True), "none": _asked(launchers, False)}
    return {**found, "load": round(os.getloadavg()[0], 1)}


def _asked(launchers: list[subprocess.Popen[bytes]], spy: bool) -> dict[str, Any]:
    pid = next((each.pid for each in launchers if each.poll() is None), None)
    if pid is None:
        return {"code": "ended", **NOTHING}
    began = time.monotonic()
    answer = plain.diagnosed(pid, spy)
    return reduced(answer, round(time.monotonic() - began, 1))


def reduced(answer: dict[str, Any], seconds: float) -> dict[str, Any]:
    """What is kept of an answer: code, ranks and confidence of its first verdict; "error" without ranks."""
    if "error" in answer:
        return {"code": "error", **NOTHING}
    verdict = (answer.get("verdicts") or [{"code": "none", **NOTHING}])[0]
    return {**{name: verdict[name] for name in ("code", "ranks", "confidence")}, "seconds": seconds}
