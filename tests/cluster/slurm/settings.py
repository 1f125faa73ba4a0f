"""The configuration of a test cluster, as text. Pure."""

from __future__ import annotations

from pathlib import Path

NET = "10.99.0"
CONTROLLER = "ctl"
CONTROLLER_ADDRESS = f"{NET}.1"
SLURM_PORTS = "{ 6817, 6818, 61001-63000 }"
"""What Slurm itself speaks on, as nft(8) writes it; SrunPortRange is outside of the ephemeral range."""

KIND, OTHER_KIND = "a100", "h100"
"""Types of the fake GPUs: the first of each node, and all others."""


def address(node: str) -> str:
    """n1 is 10.99.0.11, as seen by every other node."""
    return f"{NET}.{10 + int(node[1:])}"


def hosts(nodes: list[str]) -> str:
    """A correct /etc/hosts, the same for every machine."""
    names = [(CONTROLLER, CONTROLLER_ADDRESS), *((node, address(node)) for node in nodes)]
    return "127.0.0.1 localhost\n" + "".join(f"{where} {name}\n" for name, where in names)


def slurm_conf(folder: Path, nodes: list[str], first_job: int, cgroups: bool, gpus: int, extra: str) -> str:
    """slurm.conf. Slurm finds its nodes by address, so that a test may spoil any name."""
    count = len(nodes)
    track, task = ("proctrack/cgroup", "task/cgroup") if cgroups else ("proctrack/linuxproc", "task/none")
    gres = f" Gres=gpu:{KIND}:1,gpu:{OTHER_KIND}:{gpus - 1}" if gpus else ""
    return f"""\
ClusterName=test
SlurmctldHost={CONTROLLER}({CONTROLLER_ADDRESS})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
SlurmctldPort=6817
SlurmdPort=6818
SrunPortRange=61001-63000
FirstJobId={first_job}
ProctrackType={track}
TaskPlugin={task}
JobAcctGatherType=jobacct_gather/linux
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/log/jobcomp.txt
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=1000
GresTypes=gpu
ReturnToService=2
JobRequeue=1
MinJobAge=3600
KillWait=30
SlurmdTimeout=9
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/state/slurmctld.pid
SlurmctldLogFile={folder}/log/{CONTROLLER}.log
SlurmdSpoolDir={folder}/spool/%n
SlurmdPidFile={folder}/state/slurmd.%n.pid
SlurmdLogFile={folder}/log/%n.log
NodeName=n[1-{count}] NodeAddr={NET}.[11-{10 + count}] CPUs=4 RealMemory=4000{gres} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
{extra}
"""


CGROUP_CONF = """\
CgroupPlugin=cgroup/v1
CgroupAutomount=no
CgroupMountpoint=/sys/fs/cgroup
ConstrainRAMSpace=yes
AllowedRAMSpace=100
ConstrainSwapSpace=no
"""


def gres_conf(folder: Path, gpus: int) -> str:
    """GPUs that nothing but Slurm's bookkeeping knows: character devices that swallow everything."""
    if not gpus:
        return ""
    return f"""\
AutoDetect=off
Name=gpu Type={KIND} File={folder}/dev/gpu0
Name=gpu Type={OTHER_KIND} File={folder}/dev/gpu[1-{gpus - 1}]
"""
