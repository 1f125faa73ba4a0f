"""The plan that follows from a job file: the same in the launcher and in a pod that has the job file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

from ddplaunch.agent.job_file import kubernetes
from ddplaunch.agent.job_file.rules import POD_GATE_TIMEOUT, Job, Problem
from ddplaunch.agent.plan import (
    KILL_AFTER,
    Env,
    GatePlan,
    JobPlan,
    MetricsPlan,
    NotifyPlan,
    Occasion,
    ResourcePlan,
    SignalPlan,
    WatchdogPlan,
)

_OWN = ("env", "NODE_RANK={node}", "MASTER_ADDR={master_addr}", "MASTER_PORT={master_port}")
"""Words before a command that is itself the launcher. WORLD_SIZE is for the ranks, so the command sets it."""
KEPT = ("mpi", "srun")
"""Values of `launch` with which one program on node 0 starts the ranks of all nodes, each under a keeper."""


def make(
    job: Job,
    platform: str,
    gate_timeout: float,
    *,
    hub_port: Optional[int] = None,
    names: Sequence[str] = (),
    master_addr: Optional[str] = None,
    starter: Sequence[str] = (),
) -> JobPlan:
    """Return the plan of every node.

    `gate_timeout`, in seconds, counts if the job file does not set one. `hub_port`, `names` and `master_addr`
    are the target's, as far as it knows them beforehand, and `starter` is the words that start ranks with
    keepers.
    """
    meet, gate, watchdog, resources = (job[key] for key in ("rendezvous", "gate", "watchdog", "resources"))
    metrics, own = job["metrics"], job["launch"] == "none"
    timeout, cpus, kill_after = gate.get("timeout"), resources.get("cpus"), watchdog["kill_after"]
    return JobPlan(
        job=job["name"],
        nodes=job["nodes"],
        min_nodes=job.get("min_nodes"),
        newcomers=job.get("newcomers") == "join" or None,
        # The command is the launcher. How many ranks it starts shows when they come.
        nproc_per_node=None if own else job["nproc_per_node"],
        launch=list(_OWN if own else starter) or torchrun_words(job),
        command=list(job["command"]),
        python=job["python"],
        names=list(names),
        master_addr=meet.get("address") or master_addr,
        master_port=meet.get("port"),
        keepers=job["launch"] in KEPT or None,
        mpi=job["launch"] == "mpi",
        retries=job["retries"],
        retry_hangs=job["retry_hangs"] or None,
        resume_args=list(job["resume"]["args"]) or None,
        resume_dir=job["resume"].get("dir"),
        env=dict(sorted(job["env"].items())),
        secrets={name: _secret(name, reference) for name, reference in sorted(job["secrets"].items())},
        workdir=job.get("workdir"),
        outputs=_outputs(job),
        platform=platform,
        gate=GatePlan(
            enabled=gate["enabled"],
            timeout=gate_timeout if timeout is None else timeout,
            port=hub_port,
            interface=gate.get("interface"),
            skip=list(gate["skip"]),
            smoke_test=gate["smoke_test"] or None,
        ),
        watchdog=WatchdogPlan(
            notice_after=watchdog["notice_after"],
            kill_after={"never": None, "auto": KILL_AFTER}.get(kill_after, kill_after),
            patient=kill_after == "auto" or None,
            privileges=watchdog["privileges"],
        ),
        resources=ResourcePlan(
            gpus=resources.get("gpus"),
            cpus=None if cpus is None else float(cpus),
            memory=resources.get("memory"),
            shm=resources.get("shm"),
            rdma=resources.get("rdma"),
        ),
        metrics=MetricsPlan(metrics["port"], metrics.get("address")) if metrics.get("port") else None,
        signal=_signal(job.get("signal")),
        notify=[_recipient(*each) for each in enumerate(job["notify"])] or None,
    )


def problems(job: Job) -> list[Problem]:
    """Return what no launcher of the job's kind can do, whatever the platform is."""
    if job["gate"]["smoke_test"] and job["launch"] == "mpi":
        return [("gate.smoke_test", "true", "false with launch: mpi", "it tries torch's backends")]
    return []


def in_pods(job: Job) -> JobPlan:
    """Return the plan of a job on Kubernetes."""
    return make(job, "kubernetes", POD_GATE_TIMEOUT, hub_port=kubernetes.hub_port(job))


def _outputs(job: Job) -> Optional[str]:
    """Return the folder, on the volume that the job file names, in which each job gets its own folder."""
    given = job.get("outputs") or {}
    path = (given.get("path") or "").strip("/")
    for volume in job["volumes"]:
        if volume["name"] == given.get("volume"):
            mount = str(volume["mount_path"]).rstrip("/")
            return f"{mount}/{path}" if path else mount
    return None


def _secret(name: str, reference: Mapping[str, Any]) -> dict[str, str]:
    if reference.get("file") is not None:
        return {"file": reference["file"]}
    # A Secret's value is a variable of the container, under the name that the ranks are to see.
    return {"env": reference.get("env") or name}


def _signal(given: Optional[Mapping[str, Any]]) -> Optional[SignalPlan]:
    if given is None:
        return None
    return SignalPlan(f"SIG{given['name'].upper().removeprefix('SIG')}", given["before"])


def _recipient(index: int, given: Mapping[str, Any]) -> NotifyPlan:
    """Return a recipient. A chart's values may leave out its keys."""
    webhook, command = given.get("webhook"), given.get("command")
    return NotifyPlan(
        when=list(given.get("when") or Occasion.ALL),
        webhook=None if webhook is None else _secret(f"{Env.WEBHOOK}{index}", webhook),
        command=None if command is None else list(command),
        format=given.get("format") or "json",
        events=given.get("events") or None,
    )


def torchrun_words(job: Mapping[str, Any]) -> list[str]:
    """Return torchrun's command line before the user's command, with the placeholders of `JobPlan`.

    Nothing else in ddplaunch knows its flags. It is `python -m torch.distributed.run` rather than `torchrun`,
    because the script may be on no PATH, or may belong to another environment.
    """
    words = [
        "{python}",
        "-m",
        "torch.distributed.run",
        "--nnodes={nnodes}" if job.get("min_nodes") else f"--nnodes={job['nodes']}",
        f"--nproc-per-node={job['nproc_per_node']}",
        f"--max-restarts={job['rendezvous']['max_restarts']}",
        *_rendezvous(job["rendezvous"]),
    ]
    script = job["command"][0]
    if script != "-m" and not script.endswith(".py"):
        words.append("--no-python")
    return words


def _rendezvous(rendezvous: Mapping[str, Any]) -> list[str]:
    seconds = max(1, round(rendezvous["timeout"]))
    if rendezvous["backend"] == "static":
        return [
            "--node-rank={node}",
            "--master-addr={master_addr}",
            "--master-port={master_port}",
            f"--rdzv-conf=timeout={seconds}",
        ]
    # is_host is given, because torchrun's own guess compares host names and is often wrong (pytorch#73656).
    return [
        "--rdzv-backend=c10d",
        "--rdzv-endpoint={master_addr}:{master_port}",
        "--rdzv-id={run_id}",
        f"--rdzv-conf=join_timeout={seconds},is_host={{is_host}}",
    ]
