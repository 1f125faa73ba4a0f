"""One self-contained sbatch file: `job.bash` with this job's directives, settings, plan and archives.

The script is the same for every job, and can be read and checked as it is. What differs is data, quoted for
bash. The archives are comment lines after its `exit`, which bash never reads.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from ddplaunch.agent.plan import Files, JobPlan, codec
from ddplaunch.plan.plan import Plan
from ddplaunch.plan.slurm import SlurmPlan
from ddplaunch.plan.source import SLURM_LIMIT
from ddplaunch.render import Rendered, RenderedFile
from ddplaunch.render.archive import agent_archive, source_archive

_COLUMNS = 120
_ENTER = """\
# Apptainer and SingularityCE have one command line, and a node has one of them.
# shellcheck disable=SC2016
enter='
    runtime=$(command -v {0} || command -v {1}) || {{
        echo "error: container: neither {0} nor {1} is on PATH" >&2
        exit 79
    }}
    exec "$runtime" exec "$@"'"""
_OCI = """\
# Slurm gives a container the variables of the batch script and none of the task's own; and where a node has
# no oci.conf, it starts the step outside and does not say so. What a step outside leaves helps with both.
# shellcheck disable=SC2016
outside='
    umask 077
    set -C
    own="SLURMD_NODENAME|SLURM_(NODEID|PROCID|LOCALID|GTIDS|CPUS_ON_NODE)"
    gpus="CUDA_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|ROCR_VISIBLE_DEVICES|ZE_AFFINITY_MASK"
    { export -p | grep -E "^export ($own|$gpus)="; echo "outside=$(readlink /proc/self/ns/mnt)"; } >"$1.env"'
# shellcheck disable=SC2016
first='
    unusable() {
        echo "error: container: $*" >&2
        exit 79
    }
    PATH=${image_path:-$PATH}
    ours 8180 "$folder.env" || unusable "config.json does not mount /tmp of the node"
    . "$folder.env"
    [ "$outside" != "$(readlink /proc/self/ns/mnt)" ] ||
        unusable "there is no oci.conf, and so Slurm has started its step outside"
    command -v python3 >/dev/null || unusable "executable file python3 not found on its PATH"'
# Of two values a runtime gives the job the second, which is the PATH of the node.
paths='import json, sys
print(*[each[5:] for each in json.load(sys.stdin)["process"]["env"] if each[:5] == "PATH="])'
image_path=$("$python" -I -S -c "$paths" <@image@/config.json 2>/dev/null)
export image_path
# By this the hub knows that a task that ends before it says more has had no container.
echo ddplaunch-node container >"$folder"/run/gate.log"""

_WARNED = """\
warned=$(cat "$folder/run/signalled" 2>/dev/null) # why the ranks had the job file's signal
if [ -n "$warned" ] && [[ " @codes@ " == *" $code "* ]]; then
    retried="$retried $code"
    # At its time limit the job comes back, and after `scancel` it does not.
    [ -z "$stopping" ] ||
        [[ $(scontrol --oneliner show job "$SLURM_JOB_ID") != *" Reason=TimeLimit "* ]] || stopping=''
else
    warned=''
fi"""


def render(plan: Plan, *, gate_only: bool = False) -> Rendered:
    """Return the batch script. Same plan, same bytes."""
    slurm = plan.settings(SlurmPlan)
    archives = {Files.AGENT: agent_archive()}
    if plan.source:
        archives[Files.SOURCE] = source_archive(plan.source, SLURM_LIMIT)
    parts = {
        "directives": "\n".join(["#!/bin/bash", *map(_directive, slurm.options)]),
        "title": f"# {_title(plan.job)}: written by ddplaunch.",
        "settings": "\n".join(_settings(plan.job, slurm, archives)),
        "container": "\n".join(_container(slurm)),
        **_after_signal(plan.job),
        # A line of JSON can never be the word that ends it.
        "plan": json.dumps(codec.dump(plan.job), indent=2, ensure_ascii=False),
    }
    template = Path(__file__).with_name("job.bash").read_text("utf-8").replace("@name@", plan.job.job)
    # A part that is empty for this job leaves no line.
    text = re.sub(r"^#\{(\w+)\}\n", lambda match: _lines(parts[match[1]]), template, flags=re.MULTILINE)
    name = f"{plan.job.job}.sbatch"
    content = "\n".join([text, *_payload(archives)]) + "\n"
    command = ("sbatch", name, *(["--gate-only"] if gate_only else []))
    return Rendered(plan.target, plan.job.job, {name: RenderedFile(content.encode())}, command)


def _directive(option: str) -> str:
    """Return a directive: sbatch reads words as a shell does, and takes `#` for the beginning of a
    comment.
    """
    name, equals, value = option.partition("=")
    if equals and re.search(r"[\s#\"'\\\\]", value):
        value = '"' + re.sub(r'(["\\\\])', r"\\\1", value) + '"'
    return f"#SBATCH {name}{equals}{value}"


def _title(job: JobPlan) -> str:
    ranks = f" x {job.nproc_per_node}" if job.nproc_per_node else ""
    return f"{job.job}, {'1 node' if job.nodes == 1 else f'{job.nodes} nodes'}{ranks}"


def _settings(job: JobPlan, slurm: SlurmPlan, archives: Mapping[str, bytes]) -> Iterator[str]:
    values = {
        "name": job.job,
        "nodes": str(job.nodes),
        "retries": str(job.retries),
        "retried": " ".join(map(str, job.retried)),
        # A container sees nothing of the job's folder.
        "keeps_checkpoints": "1" if slurm.runtime == "none" and job.resume_dir is None else "",
        "exclude": slurm.exclude,
        "comment": slurm.comment,
        "trainer_python": job.python,
    }
    yield from (f"{name}={shlex.quote(value)}" for name, value in values.items())
    if slurm.least_nodes:
        yield f"least={slurm.least_nodes}"
    yield f"files=({' '.join(archives)})"
    # Ranks with keepers get a step of their own, while the supervisors' step holds the job's CPUs.
    yield f"run_options=({'--overlap' if job.keepers else ''})"


def _lines(text: str) -> str:
    """Return the part as lines: none for an empty one."""
    return f"{text}\n" if text else ""


def _after_signal(job: JobPlan) -> dict[str, str]:
    """Return what decides whether there is another attempt, if the ranks got the job file's signal."""
    if job.signal is None:
        return {"warned": "", "why": ""}
    codes = " ".join(map(str, job.retried_after_signal))
    return {
        "warned": _WARNED.replace("@codes@", codes),
        "why": f'    [ -z "$warned" ] || why="the ranks had {job.signal.name} $warned"',
    }


def _container(slurm: SlurmPlan) -> Iterator[str]:
    """Yield words for bash: a node's first lines, srun's options, what comes before the agent's Python, and
    that Python.
    """
    options, inside, python = [], [], '"$python"'
    yield _OCI.replace("@image@", _quoted(slurm.image)) if slurm.runtime == "oci" else "first='' outside=''"
    if slurm.runtime == "pyxis":
        # The job's files are in the node's /tmp.
        mounts = ",".join(["/tmp:/tmp", *slurm.mounts])  # noqa: S108 - a mount, no file of ours
        options = [
            f"--container-image={slurm.image}",
            f"--container-mounts={mounts}",
            "--container-name=ddplaunch",
        ]
        python = "python3"
    elif slurm.runtime == "oci":
        options, python = [f"--container={slurm.image}"], "python3"
    elif slurm.runtime in ("apptainer", "singularity"):
        yield _ENTER.format(*sorted(("apptainer", "singularity"), key=lambda name: name != slurm.runtime))
        binds = [f"--bind={mount}" for mount in ("/tmp:/tmp", *slurm.mounts)]  # noqa: S108
        inside = [*(["--nv"] if slurm.gpus else []), *binds, slurm.image]
        python = "python3"
    yield f"step_options=({' '.join(map(_quoted, options))})"
    enter = ["sh", "-c", '"$enter"', "enter"] if inside else []
    yield f"inside=({' '.join([*enter, *map(_quoted, inside)])})"
    yield f"agent_python={python}"


def _quoted(word: str) -> str:
    """Quote the word, including words in which shellcheck would take a comma for a mistake (SC2054)."""
    return f"'{word}'" if "," in word and shlex.quote(word) == word else shlex.quote(word)


def _payload(archives: Mapping[str, bytes]) -> Iterator[str]:
    yield "# --- nothing below is read by bash: the job's files, in base64"
    for name, data in archives.items():
        text = base64.b64encode(data).decode()
        yield from (f"#{name}: {text[start : start + _COLUMNS]}" for start in range(0, len(text), _COLUMNS))
