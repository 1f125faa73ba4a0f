"""The sections of the job file that only one target reads, in that target's own words."""

from typing import Literal

from pydantic import ConfigDict, Field

from ddplaunch.spec.fields import (
    BindMount,
    DnsLabel,
    DnsName,
    FreeForm,
    KubernetesVersion,
    Line,
    SbatchOption,
    Seconds,
    Section,
    SlurmDependency,
    SlurmTime,
    Switches,
    UserId,
    WholeSeconds,
    Word,
)


class Toleration(Section):
    """A taint that the job's pods tolerate, in Kubernetes' own words."""

    key: Word | None = Field(
        default=None, examples=["nvidia.com/gpu"], description="Key of the taint; without it, all taints."
    )
    operator: Literal["Exists", "Equal"] = Field(
        default="Equal", description="How the value is compared; Equal, as in Kubernetes."
    )
    value: str | None = Field(
        default=None, examples=["present"], description="Value of the taint, for Equal."
    )
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="Effect of the taint; without it, all effects."
    )
    toleration_seconds: WholeSeconds | None = Field(
        default=None, examples=[300], description="For NoExecute: seconds until eviction; without it, never."
    )


class TopologySpread(Section):
    """Spread of the job's nodes over the cluster's zones or racks."""

    key: Word = Field(description="Label of the topology, such as topology.kubernetes.io/zone.")
    max_skew: int = Field(default=1, ge=1, description="Most that two domains may differ by, in pods.")
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = Field(
        default="DoNotSchedule",
        description="What to do when it cannot be met; DoNotSchedule, as in Kubernetes.",
    )


class Topology(Section):
    """Part of the cluster's topology in which Kueue puts all pods of the job; one of the two."""

    model_config = ConfigDict(json_schema_extra={"x-whole": True})

    required: Word | None = Field(
        default=None, description="Label of the level, such as a rack: the job waits for room in one."
    )
    preferred: Word | None = Field(
        default=None,
        examples=["cloud.example.com/rack"],
        description="Label of the level: where none has room, the job gets the fewest.",
    )


class Kubernetes(Section):
    """Settings that only Kubernetes knows, in its own words."""

    namespace: DnsLabel | None = Field(
        default=None, description="Namespace of the job; by default that of the current context."
    )
    service_account: DnsName | None = Field(
        default=None, description="Service account of the pods; they need no API access, so none by default."
    )
    queue: DnsName | None = Field(default=None, description="Kueue LocalQueue that admits the job.")
    jobset: bool = Field(
        default=False, description="Render a JobSet in place of a Job; off, because a Job needs no operator."
    )
    queue_priority: DnsName | None = Field(
        default=None,
        description="Kueue WorkloadPriorityClass of the job: its place in the queue, and whom it may push "
        "out there. By default that of the pods counts.",
    )
    topology: Topology | None = Field(
        default=None, description="How near to one another Kueue puts the pods; by default it does not care."
    )
    priority_class: DnsName | None = Field(default=None, description="PriorityClass of the pods.")
    node_selector: dict[Word, str] = Field(
        default={}, examples=[{"pool": "a100"}], description="Labels that a cluster node must carry."
    )
    affinity: FreeForm = Field(
        default={},
        examples=[{"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}],
        description="Affinity of the pods in Kubernetes' own words: nodeAffinity, podAffinity and "
        "podAntiAffinity.",
    )
    one_per_machine: bool = Field(
        default=False,
        description="Never put two nodes of the job on one machine; off, because a small cluster may have "
        "no other place. They are spread over the machines as well as it can be done.",
    )
    tolerations: tuple[Toleration, ...] = Field(
        default=(),
        examples=[[{"key": "nvidia.com/gpu", "operator": "Exists"}]],
        description="Taints that the pods tolerate.",
    )
    labels: dict[Word, str] = Field(
        default={}, examples=[{"team": "vision"}], description="Labels added to every object of the job."
    )
    annotations: dict[Word, str] = Field(
        default={}, examples=[{"example.org/owner": "me"}], description="Annotations added to every pod."
    )
    image_pull_secrets: tuple[DnsName, ...] = Field(
        default=(), examples=[["registry"]], description="Secrets with which the image is pulled."
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        default=None, description="When the image is pulled; by default Kubernetes decides by the tag."
    )
    host_network: bool = Field(
        default=False,
        description="Use the network of the machine; off, because two jobs then meet on one set of ports.",
    )
    network_policy: Literal["ports", "pods", "none"] = Field(
        default="ports",
        description="NetworkPolicy of the pods. `ports`, the default, closes the ports of the hub and of "
        "`rendezvous.port` to all but the job's pods, and leaves all others open; `pods` lets them reach "
        "one another and DNS and nothing else, for namespaces that deny all; `none` adds no policy.",
    )
    topology_spread: TopologySpread | None = Field(
        default=None, description="Spread the pods over zones or racks."
    )
    networks: tuple[Word, ...] = Field(
        default=(),
        examples=[["rdma-net"]],
        description="Further networks (Multus NetworkAttachmentDefinitions) of each pod.",
    )
    gpu_resource: Word = Field(
        default="nvidia.com/gpu",
        description="Name of the resource that `resources.gpus` counts; NVIDIA's by default.",
    )
    gpu_type_label: Word = Field(
        default="nvidia.com/gpu.product",
        description="Label of the machines with whose value `resources.gpu_type` is compared; by default "
        "that of NVIDIA's GPU feature discovery. On GKE it is cloud.google.com/gke-accelerator.",
    )
    rdma_resource: Word | None = Field(
        default=None,
        description="Name of the resource that `resources.rdma` counts, as the cluster's device plugin "
        "calls it.",
    )
    cluster_domain: DnsName | None = Field(
        default=None, description="DNS domain of the cluster; by default read inside the pod."
    )
    restricted: bool = Field(
        default=False,
        description="Meet the `restricted` Pod Security Standard in full; off, because images that run "
        "as root do not survive it.",
    )
    run_as_user: UserId | None = Field(
        default=None,
        description="User id of the containers, which also owns the volumes; by default the image's.",
    )
    active_deadline: Seconds | None = Field(
        default=None,
        description="Time after which Kubernetes ends the job, counted from its start; none by default: "
        "the watchdog ends what does not move, after its evidence is safe.",
    )
    ttl: Seconds | None = Field(
        default=None,
        description="Time after which Kubernetes deletes the finished job with its logs; none by "
        "default, so that nothing is lost before it was read.",
    )
    pod_template: FreeForm = Field(
        default={},
        examples=[{"spec": {"hostIPC": True}}],
        description="Merged over the rendered pod template as Kubernetes merges a strategic merge patch, "
        "for whatever has no key of its own here. Init containers of yours run before the gate.",
    )
    version: KubernetesVersion | None = Field(
        default=None,
        description="Kubernetes version to render for; by default the cluster is asked when submitting.",
    )


class Container(Section):
    """The container in which Slurm runs the trainer."""

    runtime: Literal["none", "pyxis", "apptainer", "singularity", "oci"] = Field(
        default="none",
        description="Container runtime; none, because a plain node is what every cluster has. apptainer and "
        "singularity are one command line: each node takes the one that it has, first the one named here. "
        "oci is Slurm's own, `srun --container`.",
    )
    image: Line | None = Field(
        default=None,
        description="Image in the runtime's own notation, for oci the bundle's folder; by default the job's "
        "`image`.",
    )
    mounts: tuple[BindMount, ...] = Field(
        default=(),
        description="Folders of the node that the container sees, as SRC:DST or SRC:DST:ro. Not with oci, "
        "whose bundle names them.",
    )


class Slurm(Section):
    """Settings that only Slurm knows; each key is the sbatch option of the same name."""

    partition: Word | None = Field(default=None, description="Partition, or several with commas.")
    account: Word | None = Field(default=None, description="Account that is charged.")
    qos: Word | None = Field(default=None, description="Quality of service.")
    time: SlurmTime | None = Field(
        default=None,
        description="Time limit: a duration, or Slurm's own hh:mm:ss; by default the partition's.",
    )
    constraint: Line | None = Field(default=None, description="Features that a node must have.")
    reservation: Word | None = Field(default=None, description="Reservation to run in.")
    nodelist: Word | None = Field(default=None, description="Nodes to use, in Slurm's notation.")
    exclude: Word | None = Field(default=None, description="Nodes to leave out, in Slurm's notation.")
    exclusive: bool = Field(
        default=False,
        description="Share no node with other jobs; off, because the partition decides that.",
    )
    switches: Switches | None = Field(
        default=None,
        description="Most leaf switches that the nodes may be spread over, where the cluster knows its "
        "topology, as COUNT or COUNT@TIME with the longest that the job waits for that; by default any.",
    )
    nice: int | None = Field(
        default=None,
        ge=-2_147_483_645,
        le=2_147_483_645,
        description="Step back behind your other jobs: the higher, the later it starts. Below 0 is for "
        "administrators.",
    )
    comment: Line | None = Field(default=None, description="Comment kept with the job.")
    dependency: SlurmDependency | None = Field(
        default=None,
        description="Jobs for which this one waits: afterok:ID (has succeeded), afterany:ID (has ended), "
        "afternotok:ID (has failed), after:ID (has started), singleton (one of its name at a time); with "
        "`,` all of them, with `?` any. `submit --after HANDLE` adds an afterok.",
    )
    mpi: Word | None = Field(
        default=None,
        description="With launch: mpi, srun starts the ranks with this --mpi=TYPE, such as pmix; by "
        "default mpirun does. With launch: srun it is `none` by default.",
    )
    extra: tuple[SbatchOption, ...] = Field(
        default=(),
        examples=[["--mail-type=END"]],
        description="Further sbatch options, one each, as they stand after #SBATCH.",
    )
    container: Container = Field(default=Container(), description="Container of the trainer.")


class Local(Section):
    """Settings of a run on this machine."""

    time: Seconds | None = Field(
        default=None,
        examples=["2h"],
        description="Time limit of each attempt, after which it is ended as by `cancel`; by default none.",
    )
