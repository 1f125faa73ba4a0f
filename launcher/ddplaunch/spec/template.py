"""The job file that `ddplaunch init` writes: a minimal job, and below it every key with its default.

A `#` directly before a setting switches it off; `# ` begins a comment. A key without a default has an
example.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from ddplaunch.errors import UsageError

_PLAIN = re.compile(
    r"(?!(?:y|n|yes|no|on|off|true|false|null)$)(?:[a-z_][\w./-]*|-[a-z]|--[a-z][\w-]*)",
    re.ASCII | re.IGNORECASE,
)
_WIDTH = 100
_LONGEST_NAME = 50

TEMPLATE = """\
# A ddplaunch job. The first lines are enough; uncomment a line to change its default.
apiVersion: ddplaunch/v1
name: {name}
nodes: 2  # or {{min: 1, max: 2, newcomers: join}}, with rendezvous.backend: c10d
nproc_per_node: 2
{command}  # the script and its arguments, numbers in quotes: [train.py, --epochs, "3"]

# Files and folders that travel with the job; paths are relative to this file and are kept. Without `source`,
# the ranks run in this folder, as with sbatch, if all nodes see it.
{source}
#workdir: /work
#python: python3
#image: registry.example.com/trainer:1.0
#launch: torchrun  # or mpi; srun: one Slurm task per rank; none: the command starts the ranks
#retries: 0  # how often to submit the job again when a node or the network was at fault
#retry_hangs: false  # also after a hang

# How a later attempt resumes from the checkpoint of an earlier one; see examples/digits/train.py
#resume:
#  args: [--resume]  # appended to `command` from the second attempt on
#  dir: /checkpoints/digits  # DDPLAUNCH_RESUME_DIR; by default in the job's own folder

# A signal for each rank before the time limit, or when a pod is deleted; with `retries` the job runs again.
#signal: {{name: USR1, before: 120s}}

# Variables of every rank. Values are text: quote numbers.
{env}
#  OMP_NUM_THREADS: "4"

# Variables whose values must not be in this file: they come from your environment, a file, or a Kubernetes
# Secret.
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

# On Kubernetes: the volume where the ranks run, so that the files they write there are kept.
#outputs:
#  volume: models
#  path: runs  # each job gets its own folder in this one; by default at the top of the volume

# What each node needs.
#resources:
#  gpus: 2
#  gpu_type: h100  # as the cluster calls it
#  cpus: 8
#  memory: 16Gi
#  shm: 2Gi  # /dev/shm, where NCCL and DataLoader workers share tensors
#  rdma: 1

# How the nodes' torchruns find one another. Without `port`, a free one is chosen at run time.
#rendezvous:
#  backend: static  # or c10d
#  address: 10.0.0.5
#  port: 29500
#  timeout: 10m
#  max_restarts: 0

# What is checked before torchrun starts.
#gate:
#  enabled: true
#  timeout: 2m  # the default; on Kubernetes 10m
#  port: 29400
#  interface: eth0
#  skip: []  # of: {checks}
#  smoke_test: false

# A job that makes no progress is reported after notice_after, and ended after kill_after: a time, never, or
# auto, which is the timeout of its process groups and at least 10m.
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
#  - events: true  # on Kubernetes Events of the Job; on Slurm the job's comment, which is the default there

# The job's metrics for Prometheus, which the hub on node 0 serves. Off by default.
#metrics:
#  port: 9400
#  address: 0.0.0.0  # by default 127.0.0.1, and in pods all addresses

# One job for each combination of values, such as {{env.LR: [0.1, 0.01], nodes: [1, 2]}}.
#sweep: {{}}

# Settings for Kubernetes only.
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
#  pod_template: {{}}  # merged over the generated pod
#  version: "1.31"

# Settings for Slurm only. Most keys are sbatch options of the same name.
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
#    runtime: pyxis  # or apptainer, singularity, oci, or none (the default)
#    image: registry.example.com/trainer:1.0
#    mounts: ["/data:/data:ro"]

# Settings for runs on this machine only.
#local:
#  time: 2h  # of each attempt
"""


def text(
    name: str,
    command: Sequence[str] = (),
    source: Sequence[str] = (),
    python_path: Sequence[str] = (),
    kept: Sequence[str] = (),
) -> str:
    """Return a job file for a job called *name*, which must be valid. It runs *command* and carries *source*.

    Without a command, the line is left for the user to fill in, and `validate` says so. *kept*: remarks on
    what the code names and `source` leaves out.
    """
    from ddplaunch.agent.plan import CHECKS

    carried = _block("source", source) if source else "#source: [train.py]"
    remarks = "".join(f"\n#   {remark}" for remark in kept)
    if remarks:
        carried += f"\n# The code uses these, but they are not in `source`:{remarks}"
    runs = f"command: {flow(command)}" if command else "#command: [train.py]"
    env = "#env:"
    if python_path:
        env = f"env:\n  PYTHONPATH: {scalar(':'.join(python_path))}  # where the script's imports are"
    return TEMPLATE.format(name=scalar(name), checks=", ".join(CHECKS), command=runs, source=carried, env=env)


def _block(key: str, words: Sequence[str]) -> str:
    """Return a list under its key: on one line, or with one line for each item."""
    line = f"{key}: {flow(words)}"
    return line if len(line) <= _WIDTH else "\n".join([f"{key}:", *(f"  - {scalar(word)}" for word in words)])


def flow(words: Sequence[str]) -> str:
    """Return the words as a YAML list on one line."""
    return f"[{', '.join(map(scalar, words))}]"


def scalar(word: str) -> str:
    """Return a YAML text, quoted if YAML would read something else."""
    if _PLAIN.fullmatch(word):
        return word
    inside = word.replace("\\", r"\\").replace('"', r"\"")
    return '"' + "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in inside) + '"'


def name_of(text: str) -> str:
    """Return *text*, such as a folder's name, reduced to a valid name of a job; "" if nothing is left."""
    plain = unicodedata.normalize("NFKD", text.casefold()).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain).lstrip("-0123456789")[:_LONGEST_NAME].rstrip("-")


def create(path: Path, content: str) -> None:
    """Write a new file. Raises `UsageError`, also if the file exists, which then stays as it is."""
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
        hint = "name a file in an existing folder that you may write to and that has room"
        raise UsageError(f"{path} cannot be written: {reason}", hint) from error


def job_file_text(values: Mapping[str, Any]) -> str:
    """Return a job file with these values."""
    return "\n".join([*_lines(values, ""), ""])


def name_of_command(command: Sequence[str]) -> str:
    """Return a name for a command's job: its script's name, or that of the module after -m."""
    program = command[1].rpartition(".")[2] if command[0] == "-m" and len(command) > 1 else command[0]
    return name_of(PurePosixPath(program).stem) or "job"


def _lines(values: Mapping[str, Any], indent: str) -> list[str]:
    lines = []
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            lines += [f"{indent}{_key(key)}:", *_lines(value, f"{indent}  ")]
        else:
            lines.append(f"{indent}{_key(key)}: {_flow(value)}")
    return lines


def _key(key: str) -> str:
    return scalar(key)


def _flow(value: Any) -> str:
    """Return a YAML value on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)}: {_flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_flow, value))}]"
    if isinstance(value, str):
        return value if value == "ddplaunch/v1" else scalar(value)
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return repr(value)
