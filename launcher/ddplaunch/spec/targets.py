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
    """A taint that the job's pods tolerate, in Kubernetes' terms."""

    key: Word | None = Field(
        default=None, examples=["nvidia.com/gpu"], description="Key of the taint. Without it, all taints."
    )
    operator: Literal["Exists", "Equal"] = Field(
        default="Equal", description="How the value is compared. `Equal` by default, as in Kubernetes."
    )
    value: str | None = Field(
        default=None, examples=["present"], description="Value of the taint, for `Equal`."
    )
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="Effect of the taint. Without it, all effects."
    )
    toleration_seconds: WholeSeconds | None = Field(
        default=None,
        examples=[300],
        description="For NoExecute: seconds until eviction. Without it, the pod is never evicted.",
    )


class TopologySpread(Section):
    """How the job's nodes are spread over the cluster's zones or racks."""

    key: Word = Field(description="Topology label, such as topology.kubernetes.io/zone.")
    max_skew: int = Field(
        default=1, ge=1, description="How many pods more than another a zone or rack may have."
    )
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = Field(
        default="DoNotSchedule",
        description="What to do when this is impossible. `DoNotSchedule` by default, as in Kubernetes.",
    )


class Topology(Section):
    """How close together Kueue places the job's pods. Give one of the two."""

    model_config = ConfigDict(json_schema_extra={"x-whole": True})

    required: Word | None = Field(
        default=None,
        description="Topology label, such as that of a rack: the job waits until all its pods fit into one.",
    )
    preferred: Word | None = Field(
        default=None,
        examples=["cloud.example.com/rack"],
        description="Topology label: if all pods do not fit into one, the job gets as few as possible.",
    )


class Kubernetes(Section):
    """Settings for Kubernetes only, in its own terms."""

    namespace: DnsLabel | None = Field(
        default=None, description="Namespace of the job. By default the namespace of the current context."
    )
    service_account: DnsName | None = Field(
        default=None,
        description="Service account of the pods. None by default, because the pods need no access to "
        "the API.",
    )
    queue: DnsName | None = Field(default=None, description="Kueue LocalQueue that admits the job.")
    jobset: bool = Field(
        default=False,
        description="Create a JobSet instead of a Job. Off by default, because a Job needs no operator.",
    )
    queue_priority: DnsName | None = Field(
        default=None,
        description="Kueue WorkloadPriorityClass of the job. It decides the job's place in the queue, and "
        "which other jobs it may preempt. By default the pods' own priority counts.",
    )
    topology: Topology | None = Field(
        default=None, description="How close together Kueue places the pods. By default anywhere."
    )
    priority_class: DnsName | None = Field(default=None, description="PriorityClass of the pods.")
    node_selector: dict[Word, str] = Field(
        default={}, examples=[{"pool": "a100"}], description="Labels that a machine of the cluster must have."
    )
    affinity: FreeForm = Field(
        default={},
        examples=[{"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}],
        description="Affinity of the pods, written as in Kubernetes: nodeAffinity, podAffinity and "
        "podAntiAffinity.",
    )
    one_per_machine: bool = Field(
        default=False,
        description="Never put two nodes of the job on one machine. Off by default, because a small cluster "
        "may have no other place. The nodes are spread over the machines as well as possible in any case.",
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
        default=(), examples=[["registry"]], description="Secrets used to pull the image."
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        default=None,
        description="When the image is pulled. By default Kubernetes decides by the image's tag.",
    )
    host_network: bool = Field(
        default=False,
        description="Use the machine's network. Off by default, because two jobs on one machine would then "
        "share its ports.",
    )
    network_policy: Literal["ports", "pods", "none"] = Field(
        default="ports",
        description="NetworkPolicy of the pods. `ports`, the default, closes the ports of the hub and of "
        "`rendezvous.port` to everything but the job's pods, and leaves all other ports open. `pods` lets "
        "the pods reach only one another and DNS, for namespaces that deny everything. `none` adds no "
        "policy.",
    )
    topology_spread: TopologySpread | None = Field(
        default=None, description="Spread the pods over zones or racks."
    )
    networks: tuple[Word, ...] = Field(
        default=(),
        examples=[["rdma-net"]],
        description="Additional networks (Multus NetworkAttachmentDefinitions) of each pod.",
    )
    gpu_resource: Word = Field(
        default="nvidia.com/gpu",
        description="Name of the resource that `resources.gpus` requests. NVIDIA's by default.",
    )
    gpu_type_label: Word = Field(
        default="nvidia.com/gpu.product",
        description="Label of the machines that `resources.gpu_type` is compared with. By default the one "
        "that NVIDIA's GPU feature discovery sets. On GKE it is cloud.google.com/gke-accelerator.",
    )
    rdma_resource: Word | None = Field(
        default=None,
        description="Name of the resource that `resources.rdma` requests, as the cluster's device plugin "
        "calls it.",
    )
    cluster_domain: DnsName | None = Field(
        default=None, description="DNS domain of the cluster. By default it is read inside the pod."
    )
    restricted: bool = Field(
        default=False,
        description="Meet the `restricted` Pod Security Standard in full. Off by default, because images "
        "that run as root do not work with it.",
    )
    run_as_user: UserId | None = Field(
        default=None,
        description="User id of the containers; the volumes belong to it, too. By default the image's user.",
    )
    active_deadline: Seconds | None = Field(
        default=None,
        description="Time after which Kubernetes ends the job, counted from its start. None by default: the "
        "watchdog ends a job that hangs, after saving its evidence.",
    )
    ttl: Seconds | None = Field(
        default=None,
        description="Time after which Kubernetes deletes the finished job and its logs. None by default, so "
        "that nothing is lost before you have read it.",
    )
    pod_template: FreeForm = Field(
        default={},
        examples=[{"spec": {"hostIPC": True}}],
        description="Pod template that is merged over the generated one, as Kubernetes merges a strategic "
        "merge patch. Use it for everything that has no key of its own here. Your init containers run "
        "before the gate.",
    )
    version: KubernetesVersion | None = Field(
        default=None,
        description="Kubernetes version to generate files for. By default the cluster is asked when you "
        "submit.",
    )


class Container(Section):
    """The container in which Slurm runs your program."""

    runtime: Literal["none", "pyxis", "apptainer", "singularity", "oci"] = Field(
        default="none",
        description="Container runtime. `none` by default, because every cluster has plain nodes. apptainer "
        "and singularity share one command line: each node uses the one that it has, and the one named here "
        "if it has both. oci is Slurm's own, `srun --container`.",
    )
    image: Line | None = Field(
        default=None,
        description="Image in the runtime's own notation; for oci, the bundle's folder. By default the "
        "job's `image`.",
    )
    mounts: tuple[BindMount, ...] = Field(
        default=(),
        description="Folders of the node that the container sees, as SRC:DST or SRC:DST:ro. Not with oci, "
        "whose bundle lists them.",
    )


class Slurm(Section):
    """Settings for Slurm only. Most keys are sbatch options of the same name."""

    partition: Word | None = Field(default=None, description="Partition, or several separated by commas.")
    account: Word | None = Field(default=None, description="Account to charge.")
    qos: Word | None = Field(default=None, description="Quality of service.")
    time: SlurmTime | None = Field(
        default=None,
        description="Time limit: a duration, or Slurm's own hh:mm:ss. By default the partition's.",
    )
    constraint: Line | None = Field(default=None, description="Features that a node must have.")
    reservation: Word | None = Field(default=None, description="Reservation to run in.")
    nodelist: Word | None = Field(default=None, description="Nodes to use, in Slurm's notation.")
    exclude: Word | None = Field(default=None, description="Nodes to avoid, in Slurm's notation.")
    exclusive: bool = Field(
        default=False,
        description="Share no node with other jobs. Off by default, because the partition decides that.",
    )
    switches: Switches | None = Field(
        default=None,
        description="How many leaf switches the nodes may be spread over, if the cluster knows its "
        "topology. Write COUNT, or COUNT@TIME, where TIME is the longest that the job waits for this. By "
        "default any number.",
    )
    nice: int | None = Field(
        default=None,
        ge=-2_147_483_645,
        le=2_147_483_645,
        description="Lower the job's priority: the higher the number, the later it starts. Only "
        "administrators may use a number below 0.",
    )
    comment: Line | None = Field(default=None, description="Comment stored with the job.")
    dependency: SlurmDependency | None = Field(
        default=None,
        description="Jobs that this one waits for: afterok:ID (has succeeded), afterany:ID (has ended), "
        "afternotok:ID (has failed), after:ID (has started), singleton (only one job of this name at a "
        "time). Join several with `,` to wait for all of them, or with `?` for any. `submit --after HANDLE` "
        "adds an afterok.",
    )
    mpi: Word | None = Field(
        default=None,
        description="With launch: mpi, srun starts the ranks with this --mpi=TYPE, such as pmix; by default "
        "mpirun starts them. With launch: srun the default is `none`.",
    )
    extra: tuple[SbatchOption, ...] = Field(
        default=(),
        examples=[["--mail-type=END"]],
        description="Further sbatch options, one per item, as you would write them after #SBATCH.",
    )
    container: Container = Field(
        default=Container.model_construct(), description="Container of your program."
    )


class Local(Section):
    """Settings for jobs that run on this machine."""

    time: Seconds | None = Field(
        default=None,
        examples=["2h"],
        description="Time limit of each attempt, which is then ended as by `cancel`. None by default.",
    )
