"""Checks: the GPUs that the job asks for exist and are free; its backend can work here, and NCCL needs GPUs.

Both look at devices; the first also asks nvidia-smi.
"""

from __future__ import annotations

import glob
import re
import shutil
import subprocess
from typing import Any, NamedTuple, Optional

from ddplaunch.agent.checks.context import Context, failed, passed, unknown
from ddplaunch.agent.contract import CheckResult
from ddplaunch.agent.platforms.holder import holder_of_process
from ddplaunch.agent.system.phrases import size

_DEVICES = {
    "NVIDIA": "dev/nvidia[0-9]*",
    "Direct Rendering (AMD, Intel)": "dev/dri/renderD*",
    "accelerator": "dev/accel/accel*",
    "Gaudi": "dev/accel[0-9]*",
    "Neuron": "dev/neuron[0-9]*",
    "Ascend": "dev/davinci[0-9]*",
    "WSL": "dev/dxg",
}
"""Device files of accelerators that PyTorch can use."""
_HELD = 0.1
"""Share of a GPU's memory. A driver, a monitor or a desktop takes less, training takes more."""
_PATIENCE = 3.0
"""Seconds, because the memory of a process that has just ended is not free at once."""
_SECONDS = 5.0
"""Seconds for one query to the driver, which first has to wake up idle GPUs."""
_HELD_HINT = (
    "end that process, or have the scheduler give GPUs to one job at a time; `nvidia-smi` on that machine, "
    "outside of any container, shows all processes, and `fuser -v /dev/nvidia*` those that it does not"
)


class Gpu(NamedTuple):
    """A GPU as nvidia-smi reports it. Sizes are in bytes, or None if this kind of GPU reports none."""

    number: int
    uuid: str
    name: str
    total: Optional[int]
    used: Optional[int]


def count_devices(root: str = "/") -> dict[str, int]:
    """Return the number of devices of each kind."""
    counts = {kind: len(glob.glob(root + pattern)) for kind, pattern in _DEVICES.items()}
    return {kind: count for kind, count in counts.items() if count}


def check_gpus(context: Context, root: str = "/") -> CheckResult:
    """If the job asks for GPUs, FAIL when there is none or when one that the ranks will use is held."""
    wanted: Optional[int] = context.plan.resources.gpus
    counts = count_devices(root)
    shown = ", ".join(f"{count} of {kind}" for kind, count in counts.items()) or "no GPU"
    if wanted and not counts:
        return failed(
            "gpus",
            "gpu-missing",
            "no device of a GPU is here",
            wanted=f"{wanted}",
            hint="the scheduler counts GPUs that no driver gives to the job: is the device plugin, or the "
            "container runtime's GPU support, at work on that machine? `nvidia-smi` there",
            devices=counts,
        )
    visible = _visible(context, _query_gpus(context)) if {"NVIDIA", "WSL"} & set(counts) else []
    gpus = visible[: context.plan.nproc_per_node]  # one for each rank
    names = sorted({gpu.name for gpu in gpus})
    count = None if _parts(root) else len(visible)
    facts: dict[str, Any] = {"devices": counts, "models": names, "count": count}
    shown += f": {', '.join(names)}" if names else ""
    held = [gpu for gpu in gpus if gpu.used and gpu.total and gpu.used > _HELD * gpu.total]
    if held:
        observed = _held(context, held)
        if wanted:
            alone = "GPUs of its own"
            return failed("gpus", "gpu-held", observed, alone, _HELD_HINT, _PATIENCE, **facts)
        return unknown("gpus", observed, _HELD_HINT, **facts)
    if wanted and max(counts.values()) < wanted:
        return _fewer(wanted, shown, facts)
    return passed("gpus", shown, **facts)


def _fewer(wanted: int, shown: str, facts: dict[str, Any]) -> CheckResult:
    hint = (
        "a device may serve several ranks (MIG, WSL); else the machine has lost a GPU: `nvidia-smi`, `dmesg`"
    )
    return unknown("gpus", f"{shown}; the job asks for {wanted}", hint, **facts)


def _visible(context: Context, gpus: list[Gpu]) -> list[Gpu]:
    """Return the GPUs in CUDA_VISIBLE_DEVICES; none if it names parts of GPUs (MIG)."""
    chosen_words = context.variable("CUDA_VISIBLE_DEVICES")
    if not chosen_words:
        return gpus
    chosen = []
    for word in chosen_words.split(","):
        one = word.strip()
        chosen += [g for g in gpus if (str(g.number) == one if one.isdigit() else g.uuid.startswith(one))]
    return chosen


def _parts(root: str) -> bool:
    """Whether a GPU is partitioned (MIG), so that the job may have several parts of it.

    Each partition has a capability file. Numbers 1 and 2 are for configuration and monitoring ("Device Nodes
    and Capabilities" in NVIDIA's MIG user guide).
    """
    numbers = [path.rpartition("cap")[2] for path in glob.glob(f"{root}dev/nvidia-caps/nvidia-cap*")]
    return any(number.isdigit() and int(number) > 2 for number in numbers)


def _query_gpus(context: Context) -> list[Gpu]:
    rows = _smi(context, "gpu=index,uuid,memory.total,memory.used,name")
    return [
        Gpu(int(index), uuid, name, _bytes(total), _bytes(used)) for index, uuid, total, used, name in rows
    ]


def _smi(context: Context, query: str) -> list[list[str]]:
    """Return nvidia-smi's rows, one word for each field of `query`; [] if there is no answer."""
    tool = shutil.which("nvidia-smi", path=context.environment.get("PATH"))
    if tool is None:
        return []
    words = [tool, f"--query-{query}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(words, capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    most = query.count(",")  # the last field may contain commas
    rows = [
        [word.strip() for word in line.split(",", most)]
        for line in done.stdout.decode(errors="replace").splitlines()
    ]
    return [row for row in rows if len(row) == most + 1 and done.returncode == 0]


def _bytes(text: str) -> Optional[int]:
    """Return a number of MiB as bytes; None for '[N/A]'."""
    return int(text) << 20 if text.isdigit() else None


def _held(context: Context, held: list[Gpu]) -> str:
    """Return 'GPU 2 has 71.0 GiB of 79.6 GiB held by pid 991 (python3 train.py, user bob, Slurm job 770)'."""
    first = held[0]
    used, total = size(first.used or 0), size(first.total or 0)
    rows = _smi(context, "compute-apps=gpu_uuid,pid,used_memory,process_name")
    names = [_process(int(pid), name) for uuid, pid, _, name in rows if uuid == first.uuid and pid.isdigit()]
    by = " and ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")
    more = (
        f"; {len(held) - 1} more alike: {', '.join(str(gpu.number) for gpu in held[1:])}" if held[1:] else ""
    )
    return f"GPU {first.number} has {used} of {total} held by {by or 'an invisible process'}{more}"


def _process(pid: int, name: str) -> str:
    """Return text about a process by the driver's pid, which in this container may be another process's."""
    if name.startswith("["):  # [Not Found]: another container's
        return f"pid {pid} outside of this container"
    here = holder_of_process(pid)
    program = name.split()[0].rpartition("/")[2]
    return here.text if here and program in here.command else f"pid {pid} ({name})"


# --- the backend

_NAMED_BACKEND = re.compile(r"[\w-]*(?<!rdzv[-_])backend=(nccl|gloo)", re.IGNORECASE)
"""An argument or a variable that names the backend in the way that programs usually do."""


def check_backend(context: Context, root: str = "/") -> CheckResult:
    """FAIL when nccl is named and no device of any GPU is here."""
    backend, where = named_backend(context)
    devices = count_devices(root)
    wanted = context.plan.resources.gpus
    if backend == "nccl" and not devices and not wanted:  # otherwise the check of GPUs fails
        return failed(
            "backend",
            "backend-unfit",
            f"the job says {where}, and no device of a GPU is here",
            wanted="GPUs, or gloo",
            hint="NCCL moves data between GPUs alone: ask for them, `resources: {gpus: …}`, or take gloo",
            says=backend,
        )
    if backend == "gloo" and devices and wanted:
        hint = "between GPUs nccl is many times faster"
        return unknown("backend", f"the job says {where}, and has GPUs", hint, says=backend)
    return passed("backend", where or "not set; torch takes nccl on GPUs, else gloo", says=backend)


def named_backend(context: Context) -> tuple[str, str]:
    """Return ('nccl', '--backend nccl') from the job's command or `env`; ("", "") if they name no backend."""
    command = context.plan.command
    words = {f"{name}={value}": f"{name}={value}" for name, value in context.plan.env.items()}
    words.update({f"{a}={b}": f"{a} {b}" for a, b in zip(command, command[1:])}, **{a: a for a in command})
    for word, shown in words.items():
        match = _NAMED_BACKEND.fullmatch(word)
        if match:
            return match[1].lower(), shown
    return "", ""
