"""One self-contained sbatch file: `job.bash` with this job's directives, settings, plan and archives.

The script is the same for every job, and can be read and checked as it lies there; what differs is data,
quoted for bash. The archives are comment lines behind its `exit`, which bash never reads.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from ddplaunch.agent.contract import Files, JobPlan, codec
from ddplaunch.plan.plan import Plan
from ddplaunch.plan.slurm import SlurmPlan
from ddplaunch.render.archive import agent_archive, source_archive
from ddplaunch.render.rendered import Rendered, RenderedFile

_COLUMNS = 120


def render(plan: Plan, *, gate_only: bool = False) -> Rendered:
    """Return the batch script. Same plan, same bytes."""
    slurm = plan.settings(SlurmPlan)
    archives = {Files.AGENT: agent_archive()}
    if plan.source:
        archives[Files.SOURCE] = source_archive(plan.source)
    parts = {
        "directives": "\n".join(["#!/bin/bash", *map(_directive, slurm.options)]),
        "title": f"# {_title(plan.job)}: written by ddplaunch.",
        "settings": "\n".join(_settings(plan.job, slurm, archives)),
        "container": "\n".join(_container(slurm)),
        # A line of JSON is never the word that ends it.
        "plan": json.dumps(codec.dump(plan.job), indent=2, ensure_ascii=False),
    }
    template = Path(__file__).with_name("job.bash").read_text("utf-8").replace("@name@", plan.job.job)
    text = re.sub(r"^#\{(\w+)\}$", lambda match: parts[match[1]], template, flags=re.MULTILINE)
    name = f"{plan.job.job}.sbatch"
    content = "\n".join([text, *_payload(archives)]) + "\n"
    command = ("sbatch", name, *(["--gate-only"] if gate_only else []))
    return Rendered(plan.target, plan.job.job, {name: RenderedFile(content.encode())}, command)


def _directive(option: str) -> str:
    """sbatch reads words as a shell does, and takes `#` for the begin of a comment."""
    name, equals, value = option.partition("=")
    if equals and re.search(r"[\s#\"'\\\\]", value):
        value = '"' + re.sub(r'(["\\\\])', r"\\\1", value) + '"'
    return f"#SBATCH {name}{equals}{value}"


def _title(job: JobPlan) -> str:
    return f"{job.job}, {'1 node' if job.nodes == 1 else f'{job.nodes} nodes'} x {job.nproc_per_node}"


def _settings(job: JobPlan, slurm: SlurmPlan, archives: Mapping[str, bytes]) -> Iterator[str]:
    values = {
        "name": job.job,
        "nodes": str(job.nodes),
        "retries": str(job.retries),
        "exclude": slurm.exclude,
        "comment": slurm.comment,
        "trainer_python": job.python,
    }
    yield from (f"{name}={shlex.quote(value)}" for name, value in values.items())
    yield f"files=({' '.join(archives)})"
    # MPI starts its ranks by a step of its own, while the supervisors' step holds the job's CPUs.
    yield f"run_options=({'--overlap' if job.mpi else ''})"


def _container(slurm: SlurmPlan) -> Iterator[str]:
    """Three arrays and words: srun's options, what stands before the agent's Python, and that Python."""
    options, inside, python = [], [], '"$python"'
    if slurm.runtime == "pyxis":
        # The files of the job lie in /tmp of the node.
        mounts = ",".join(["/tmp:/tmp", *slurm.mounts])  # noqa: S108 - a mount, no file of ours
        options = [
            f"--container-image={slurm.image}",
            f"--container-mounts={mounts}",
            "--container-name=ddplaunch",
        ]
        python = "python3"
    elif slurm.runtime == "apptainer":
        binds = [f"--bind={mount}" for mount in ("/tmp:/tmp", *slurm.mounts)]  # noqa: S108
        inside = ["apptainer", "exec", *(["--nv"] if slurm.gpus else []), *binds, slurm.image]
        python = "python3"
    yield f"step_options=({' '.join(map(_quoted, options))})"
    yield f"inside=({' '.join(map(_quoted, inside))})"
    yield f"agent_python={python}"


def _quoted(word: str) -> str:
    """Quote the word, also where shellcheck would take a comma for a slip (SC2054)."""
    return f"'{word}'" if "," in word and shlex.quote(word) == word else shlex.quote(word)


def _payload(archives: Mapping[str, bytes]) -> Iterator[str]:
    yield "# --- nothing below is read by bash: the job's files, in base64"
    for name, data in archives.items():
        text = base64.b64encode(data).decode()
        yield from (f"#{name}: {text[start : start + _COLUMNS]}" for start in range(0, len(text), _COLUMNS))
