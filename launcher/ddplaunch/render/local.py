"""Files for a run on this machine: the plan, the agent, the source, and a script that starts them by hand."""

from __future__ import annotations

import json

from ddplaunch.agent.plan import Files, JobPlan, codec
from ddplaunch.agent.text.quantities import count
from ddplaunch.plan.plan import Plan
from ddplaunch.plan.source import LOCAL_LIMIT
from ddplaunch.render import Rendered, RenderedFile
from ddplaunch.render.archive import agent_archive, source_archive

SCRIPT = "run.sh"

_SCRIPT = """\
#!/bin/sh
# ddplaunch: {title}, on this machine.
# Start it with `sh run.sh`; everything that happens is written to ./run beside this file.
set -eu
unset CDPATH
here=$(cd -- "$(dirname -- "$0")" && pwd)
if ! command -v python3 >/dev/null; then
    echo "error: no python3 on PATH; the agent needs Python 3.9 or newer" >&2
    exit 79
fi
exec python3 -I -S "$here/{agent}" local --folder "$here" "$@"
"""


def render(plan: Plan, *, gate_only: bool = False) -> Rendered:
    """Return the files of a job on this machine. Same plan, same bytes."""
    text = json.dumps(codec.dump(plan.job), indent=2, ensure_ascii=False) + "\n"
    files = {
        SCRIPT: RenderedFile(
            _SCRIPT.format(title=_title(plan.job), agent=Files.AGENT).encode(), executable=True
        ),
        # A word that is no UTF-8 has surrogates, which JSON writes so.
        Files.PLAN: RenderedFile(text.encode(errors="backslashreplace")),
        Files.AGENT: RenderedFile(agent_archive(), executable=True),
    }
    if plan.source:
        files[Files.SOURCE] = RenderedFile(source_archive(plan.source, LOCAL_LIMIT))
    command = ("sh", SCRIPT, *(["--gate-only"] if gate_only else []))
    return Rendered(plan.target, plan.job.job, files, command)


def _title(job: JobPlan) -> str:
    return f"{job.job}, {count(job.nodes, 'node')} x {job.nproc_per_node}" if job.nproc_per_node else job.job
