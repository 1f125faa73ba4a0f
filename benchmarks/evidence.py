"""How long it takes to collect the evidence of one node with eight real ranks, which wait for one of them.

Between the order of the hub and its answer to `diagnose`: the hooks' answers, a second look at the stacks,
their flight recorders, and the rules.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from measure import Line

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "launcher")]

from ddplaunch.agent.contract import Files, JobPlan, WatchdogPlan, codec, messages  # noqa: E402
from ddplaunch.agent.contract.messages import Way  # noqa: E402
from ddplaunch.agent.transport.protocol import Channel  # noqa: E402
from ddplaunch.backends import files  # noqa: E402
from ddplaunch.render.archive import agent_archive  # noqa: E402

SECONDS = 2.0
RANKS = 8
ENTRIES = 2000
_START = 300.0
_PROGRAM = f"""
import time, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
value = torch.ones(8)
for _ in range({ENTRIES}):
    dist.all_reduce(value)
if dist.get_rank() == 3:
    print("ready", flush=True)
    time.sleep(3600)
dist.all_reduce(value)
"""


def run(folder: Path, runs: int) -> list[Line]:
    """Return the fastest of `runs` questions: other work on the machine is none of ours."""
    (folder / "program.py").write_text(_PROGRAM)
    (folder / Files.AGENT).write_bytes(agent_archive())
    launch = ["{python}", "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS)]
    launch += ["--master-addr", "{master_addr}", "--master-port", "{master_port}"]
    command = [str(folder / "program.py")]
    plan = JobPlan("eight", 1, RANKS, launch, command, sys.executable, watchdog=WatchdogPlan(600.0, None))
    codec.write(str(folder / Files.PLAN), plan)
    words = [sys.executable, "-I", "-S", str(folder / Files.AGENT), "local", "--folder", str(folder)]
    with (folder / "output").open("wb") as output:
        job = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT)
    try:
        _await_ready(folder, job)
        took, verdict = min(_ask(folder) for _ in range(runs))
    finally:
        job.terminate()
        job.wait()
    detail = f"{RANKS} ranks on {os.cpu_count()} cores; {verdict}"
    return [Line("evidence of a node, and its verdict", took, SECONDS, " s", detail)]


def _await_ready(folder: Path, job: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START
    while b"ready" not in (folder / "output").read_bytes():
        if job.poll() is not None or time.monotonic() > deadline:
            raise SystemExit((folder / "output").read_text())
        time.sleep(0.2)
    time.sleep(2.0)  # the other ranks are in the last collective by then


def _ask(folder: Path) -> tuple[float, str]:
    """Return the seconds until the answer, and the verdict in it."""
    hub = json.loads((folder / Files.HUB).read_text())
    key = (folder / Files.KEY).read_bytes().strip()
    channel = Channel.connect(hub["host"], hub["port"], key, 0, time.monotonic() + 10)
    begun = time.monotonic()
    channel.send(*messages.AskDiagnosis().pack())
    line = channel.receive(30)
    took = time.monotonic() - begun
    channel.close()
    answer = messages.load(*line, Way.HUB_TO_COMMAND) if line else None
    assert isinstance(answer, messages.BundleAnswer)
    found = files.bundle(answer.archive)
    assert found.evidence is not None
    dumps = len(found.evidence.evidence[0].dumps)
    return took, f"{dumps} recorders, {found.verdicts[0].sentence if found.verdicts else 'no verdict'}"
