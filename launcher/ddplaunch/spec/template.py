"""The job file that `ddplaunch init` writes: a minimal job, and below it every key with its default.

A `#` directly before a setting switches it off; `# ` begins a comment. A key without a default has an
example.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from ddplaunch.errors import UsageError

_SCRIPTS = ("train.py", "main.py")
_MOST_CARRIED = 20
"""Files that `source` names one by one; of more the script alone is named, for its user to complete."""

TEMPLATE = """\
# A job of ddplaunch. Its first lines are enough; take the # off a line below to change its default.
apiVersion: ddplaunch/v1
name: {name}
nodes: 2  # or {{min: 1, max: 2, newcomers: join}}, with rendezvous.backend: c10d
nproc_per_node: 2
command: [{script}]  # the script and its arguments, numbers in quotes: [train.py, --epochs, "3"]

# Files and folders that travel with the job, relative to this file.
{source}
#workdir: /work
#python: python3
#image: registry.example.com/trainer:1.0
#launch: torchrun  # or mpi; srun: one task of Slurm for each rank; none: the command starts the ranks
#retries: 0  # whole-job resubmissions when a node or the network was at fault
#retry_hangs: false  # resubmit after a hang, too

# How a later attempt goes on from the checkpoint of an earlier one: examples/digits/train.py
#resume:
#  args: [--resume]  # appended to `command` from the second attempt on
#  dir: /checkpoints/digits  # DDPLAUNCH_RESUME_DIR; by default a folder of the job's own

# Variables of every rank. Values are text: quote numbers.
#env:
#  OMP_NUM_THREADS: "4"

# Variables whose values must not stand here: from your environment, a file, or a Kubernetes Secret.
#secrets:
#  WANDB_API_KEY: {{env: WANDB_API_KEY}}
#  HF_TOKEN: {{file: /home/me/.hf-token}}
#  S3_KEY: {{secret: {{name: s3, key: access-key}}}}

# Storage on every node: host_path, claim (a PersistentVolumeClaim) or empty_dir.
#volumes:
#  - name: data
#    mount_path: /data
#    read_only: false
#    claim: datasets
#  - name: scratch
#    mount_path: /scratch
#    empty_dir: true
#  - name: models
#    mount_path: /models
#    host_path: /srv/models

# What each node must have.
#resources:
#  gpus: 2
#  gpu_type: h100  # as the cluster calls it
#  cpus: 8
#  memory: 16Gi
#  shm: 2Gi  # /dev/shm, where NCCL and DataLoader workers share tensors
#  rdma: 1

# How the nodes' torchruns find one another. Ports are chosen at run time when not given.
#rendezvous:
#  backend: static  # or c10d
#  address: 10.0.0.5
#  port: 29500
#  timeout: 10m
#  max_restarts: 0

# What is proved before torchrun starts.
#gate:
#  enabled: true
#  timeout: 2m  # the default; on Kubernetes 10m
#  port: 29400
#  interface: eth0
#  skip: []  # of: {checks}
#  smoke_test: false

# A job in which nothing moves is reported after notice_after, and ended after kill_after: a time, never, or
# auto, which is after the timeout of its process groups, and 10m at least.
#watchdog:
#  notice_after: 10s
#  kill_after: auto
#  privileges: none  # or ptrace

# Messages at a notice, at its withdrawal, and at the end. A webhook's URL is a secret.
#notify:
#  - webhook: {{env: SLACK_WEBHOOK}}  # or file, or secret
#    format: slack  # or json
#    when: [notice, withdrawn, end]
#  - command: [mail, -s, digits, me@example.com]
#  - events: true  # of the Job, on Kubernetes; on Slurm the comment, without being asked

# The job's figures for Prometheus, from the hub on node 0; by default none.
#metrics:
#  port: 9400
#  address: 0.0.0.0  # by default 127.0.0.1, and in pods all addresses

# A job for each combination of values, such as {{env.LR: [0.1, 0.01], nodes: [1, 2]}}.
#sweep: {{}}

# What only Kubernetes knows.
#kubernetes:
#  namespace: training
#  service_account: trainer
#  queue: team-a  # Kueue
#  jobset: false
#  queue_priority: high  # Kueue
#  topology: {{required: cloud.example.com/rack}}  # or preferred; Kueue
#  priority_class: high
#  node_selector: {{}}
#  affinity: {{}}  # nodeAffinity, podAffinity and podAntiAffinity
#  one_per_machine: false
#  tolerations: []  # of {{key, operator, value, effect, toleration_seconds}}
#  labels: {{}}
#  annotations: {{}}
#  image_pull_secrets: []
#  image_pull_policy: IfNotPresent
#  host_network: false
#  network_policy: ports
#  topology_spread: {{key: topology.kubernetes.io/zone, max_skew: 1, when_unsatisfiable: DoNotSchedule}}
#  networks: []  # Multus
#  gpu_resource: nvidia.com/gpu
#  gpu_type_label: nvidia.com/gpu.product
#  rdma_resource: rdma/hca
#  cluster_domain: cluster.local
#  restricted: false
#  run_as_user: 1000
#  active_deadline: 12h
#  ttl: 1d
#  pod_template: {{}}  # merged over the rendered pod
#  version: "1.31"

# What only Slurm knows; each key is sbatch's option of that name.
#slurm:
#  partition: gpu
#  account: team-a
#  qos: normal
#  time: 90m  # or "1:30:00"
#  constraint: a100
#  reservation: course
#  nodelist: n[1-4]
#  exclude: n3
#  exclusive: false
#  switches: 1@10:00  # COUNT, or COUNT@TIME
#  nice: 100
#  comment: first try
#  dependency: afterok:1234  # or afterany:…, afternotok:…, after:…, singleton; `submit --after HANDLE`
#  mpi: pmix  # with launch: mpi, srun starts the ranks with this --mpi; by default mpirun does
#  extra: []  # sbatch options such as --mail-type=END
#  container:
#    runtime: pyxis  # or apptainer, singularity, oci, or none, which is the default
#    image: registry.example.com/trainer:1.0
#    mounts: ["/data:/data:ro"]

# What only a run on this machine knows: nothing so far.
#local: {{}}
"""


def text(name: str, script: str = "", source: Sequence[str] = ()) -> str:
    """Return a job file for a job called *name*, which must be valid: it runs *script* and carries *source*.

    Without a script both are those of an example, and nothing travels with the job.
    """
    from ddplaunch.agent.contract import CHECKS

    carried = f"source: {_listed(source)}" if source else "#source: [train.py]"
    script = _listed([script])[1:-1] if script else "train.py"
    return TEMPLATE.format(name=name, checks=", ".join(CHECKS), script=script, source=carried)


def _listed(words: Sequence[str]) -> str:
    """Return the words as a list of YAML on one line, quoted where YAML would read something else."""
    plain = re.compile(r"[A-Za-z_][\w./-]*\.py|[A-Za-z_][\w./-]*")
    return f"[{', '.join(word if plain.fullmatch(word) else json.dumps(word) for word in words)}]"


def code_in(folder: Path) -> tuple[str, list[str]]:
    """Return the training script in a folder, and all of its Python files and packages, by name.

    The script is train.py, main.py, the only one that is called like train_x.py, or the only file there is.
    ("", []): there is none, or it is not clear which.
    """
    files = sorted(path.name for path in folder.glob("[!-]*.py") if path.is_file())
    trains = [name for name in files if name.startswith("train")]
    scripts = [name for name in _SCRIPTS if name in files]
    only = [each[0] for each in (trains, files) if len(each) == 1]
    script = next(iter([*scripts, *only]), "")
    packages = sorted(path.parent.name for path in folder.glob("*/__init__.py"))
    carried = [script, *(name for name in (*files, *packages) if name != script)]
    return (script, carried if len(carried) <= _MOST_CARRIED else [script]) if script else ("", [])


def write_new(path: str | Path) -> str:
    """Write the template to *path*, for the code beside it, and return its script; "": none was found.

    Raises `UsageError`, also for an existing file, which stays as it is.
    """
    path = Path(path)
    stem = re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).lstrip("-0123456789")[:50].rstrip("-")
    script, source = code_in(path.parent)
    create(path, text(stem or "job", script, source))
    return script


def create(path: Path, content: str) -> None:
    """Write a new file. Raises `UsageError`, also for an existing one, which stays as it is."""
    opened = False
    try:
        with path.open("x", encoding="utf-8") as stream:
            opened = True
            stream.write(content)
    except FileExistsError as error:
        raise UsageError(f"{path} exists already", hint="name another file; nothing was written") from error
    except (OSError, ValueError) as error:
        if opened:
            path.unlink(missing_ok=True)  # an empty file would make the next try fail
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        hint = "name a file in an existing folder with room that you may write to"
        raise UsageError(f"{path} cannot be written: {reason}", hint) from error
