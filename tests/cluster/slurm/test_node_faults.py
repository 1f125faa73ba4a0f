"""Nodes of a Slurm job that lack something, or differ: the verdict, and a start once its hint is followed."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.agent.gate.torches import make_torch
from tests.busy import BUSY
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.conftest import TaskProlog
from tests.cluster.slurm.gate_jobs import (
    BY_NAME,
    GATE_ONLY,
    MASTER,
    Start,
    mended,
    names,
    seconds,
    verdict,
)
from tests.cluster.slurm.gpu_jobs import WITH_GPU

SERVE = "import socket, time; s = socket.create_server(('', {})); print('up', flush=True); time.sleep(600)"
SERVE_HTTP = """
from http.server import *
server = HTTPServer(("", 8080), BaseHTTPRequestHandler)
print("up", flush=True)
server.serve_forever()
"""
ONLY_N3 = '[ "$SLURMD_NODENAME" = n3 ] || exit 0\n'
OTHER_SIZE = """
tar=$(echo /tmp/ddplaunch-$SLURM_JOB_ID-*.tar)
[ -e "$tar" ] || exit 0 # the gate's step only
cd "$(mktemp -d)" && tar -xf "$tar"
sed -i 's/"nproc_per_node": *1/"nproc_per_node":2/' plan.json
tar -cf "$tar" * && rm -r "$PWD"
"""
"""A plan that was rendered for another number of ranks."""
IB = (
    "link add ib0 type veth peer name ib0p",
    "addr add 10.88.0.1/24 dev ib0",
    "link set ib0 up",
    "link set ib0p up",
)
"""NCCL's first choice; it leads nowhere."""
Serve = Callable[[str, str], int]


@pytest.fixture(name="serve")
def _serve(cluster: Cluster) -> Iterator[Callable[[str, str], None]]:
    """A function that runs a program on a node, and returns when it is up."""
    started = []

    def serve(node: str, program: str) -> None:
        started.append(cluster.start(node, [sys.executable, "-u", "-c", program]))
        assert started[-1].stdout is not None
        assert "up\n" == started[-1].stdout.readline()

    yield serve
    for node in cluster.nodes:
        for pid, words in cluster.processes(node).items():
            if words.startswith(f"{sys.executable} -u -c"):  # nsenter waits for it, and passes no signal on
                os.kill(pid, signal.SIGKILL)
    for process in started:
        process.communicate(timeout=BUSY * 5)


@pytest.fixture(name="gpus")
def _gpus(cluster: Cluster) -> Iterator[None]:
    """Every node has a GPU, as far as a look into /dev can tell, and an ib0."""
    for node in cluster.nodes:
        cluster.run(node, ["sh", "-ec", WITH_GPU])
        for words in IB:
            cluster.run(node, ["ip", *words.split()])
    yield
    for node in cluster.nodes:
        cluster.run(node, ["umount", "--lazy", "/dev"])
        cluster.run(node, ["ip", "link", "del", "ib0"])


# --- a node was started otherwise


@pytest.mark.whole
@pytest.mark.fault("rank-duplicate")
def test_two_nodes_with_one_index(start: Start, task_prolog: TaskProlog) -> None:
    """Something in n3's environment gives it the place of n2."""
    task_prolog(f"{ONLY_N3}echo export DDPLAUNCH_NODE=1")
    job = start()

    code, nodes, found = verdict(job)
    assert ("rank-duplicate", [1]) == (code, nodes)
    assert found.sentence.startswith("two agents claim to be node 1 (n2): pid ")
    assert "on n3" in found.sentence
    task_prolog("true")
    mended(start)


@pytest.mark.whole
@pytest.mark.fault("world-size-differs")
def test_a_node_that_was_started_for_another_size(start: Start, task_prolog: TaskProlog) -> None:
    """What n3 was given is of another rendering of the job."""
    task_prolog(ONLY_N3 + OTHER_SIZE)
    job = start()

    code, nodes, found = verdict(job)
    assert ("world-size-differs", [2]) == (code, nodes)
    assert "node 2 (n3) was started for 3 nodes x 2, the others for 3 nodes x 1" == found.sentence
    task_prolog("true")
    mended(start)


@pytest.mark.fault("version-differs")
@pytest.mark.whole
def test_a_node_with_another_torch(start: Start, task_prolog: TaskProlog, work: Path) -> None:
    """A folder that only n3's PYTHONPATH has."""
    other = make_torch(work / "other", "2.13.0", "2.27.5")["PYTHONPATH"]
    task_prolog(f"{ONLY_N3}echo export PYTHONPATH={other}")
    job = start()

    code, nodes, found = verdict(job)
    assert ("version-differs", [2]) == (code, nodes)
    assert found.sentence.startswith("node 2 (n3) has torch 2.13.0")
    task_prolog("true")
    mended(start)


@pytest.mark.fault("image-lacks")
def test_a_python_that_one_node_lacks(cluster: Cluster, start: Start) -> None:
    """It was installed in a folder of each machine's own, and forgotten on one."""
    for node in ("n1", "n2"):
        python = cluster.path(node, "/tmp/torch-python")
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)

    code, nodes, found = verdict(start(python="/tmp/torch-python"))
    assert ("image-lacks", [2]) == (code, nodes)
    assert "node 2 (n3): there is no /tmp/torch-python; wanted: Python >= 3.9" == found.sentence
    assert "`python:` in the job file" in found.hint
    mended(start, python=sys.executable)


# --- a node has too little


@pytest.mark.whole
@pytest.mark.fault("shm-too-small")
def test_shared_memory_of_one_node(cluster: Cluster, start: Start) -> None:
    """The command of the hint makes it larger."""
    cluster.run("n2", ["mount", "-o", "remount,size=16M", "/dev/shm"])
    shared = {"resources": {"shm": "64Mi", "memory": "900Mi"}}
    job = start(**shared)

    code, nodes, found = verdict(job)
    assert ("shm-too-small", [1]) == (code, nodes)
    assert "node 2 (n2): /dev/shm is 16 MiB; wanted: 64 MiB".replace("node 2", "node 1") == found.sentence
    (command,) = re.findall(r"`(mount [^`]+)`", found.hint)
    cluster.run("n2", command.replace("SIZE", "64M").split())
    mended(start, **shared)


@pytest.mark.whole
@pytest.mark.fault("memory-too-small")
def test_less_memory_than_the_job_file_says(start: Start) -> None:
    """Somebody has changed it on sbatch's command line, and Slurm's control group keeps to that."""
    job = start("--mem=600M", resources={"memory": "900Mi"})

    code, nodes, found = verdict(job)
    assert ("memory-too-small", [0, 1, 2]) == (code, nodes)
    assert "its control group has 600 MiB of memory; wanted: 900 MiB" in found.sentence
    mended(start, "--mem=600M", resources={"memory": "600Mi"})


@pytest.mark.fault("disk-full")
@pytest.mark.whole
def test_no_room_for_temporary_files(cluster: Cluster, start: Start) -> None:
    """On one node, where the job's TMPDIR lies."""
    cluster.fill("n2", "/dev/shm")
    elsewhere = {"env": {"TMPDIR": "/dev/shm"}}

    code, nodes, found = verdict(start(**elsewhere))
    assert ("disk-full", [1]) == (code, nodes)
    assert found.sentence.startswith("node 1 (n2): cannot write to /dev/shm: No space left on device")
    cluster.run("n2", ["mount", "-o", "remount,size=64M", "/dev/shm"])
    mended(start, **elsewhere)


@pytest.mark.fault("cpu-busy")
def test_a_node_with_fewer_cpus_than_ranks(cluster: Cluster, start: Start) -> None:
    """What its daemon starts inherits its mask. The job starts, and says who is slow."""
    two = {"nproc_per_node": 2}
    (daemon,) = cluster._daemons("n2", "slurmd")
    cpu = min(os.sched_getaffinity(daemon))
    cluster.login(["taskset", "--all-tasks", "--pid", "--cpu-list", str(cpu), str(daemon)])
    try:
        job = start(GATE_ONLY, "--overcommit", **two)
        state = job.ended(40)
        print(job.output)
        assert ("COMPLETED", []) == (state, job.bundle().verdicts)
        assert " note: cpu-busy: node 1 (n2): 1 CPUs, " in job.output
        assert " for 2 ranks; ranks will take turns" in job.output
        job = start(GATE_ONLY, nproc_per_node=1)
        assert ("COMPLETED", False) == (job.ended(40), "ranks will take turns" in job.output)
    finally:
        cluster.kill_slurmd("n2")
        cluster.start_slurmd("n2")


@pytest.mark.fault("files-too-few")
@pytest.mark.whole
def test_a_daemon_that_may_not_open_many_files(cluster: Cluster, start: Start) -> None:
    """The hub has slurmd's limit, which not even root's own processes are given back."""
    (daemon,) = cluster._daemons("n1", "slurmd")
    cluster.login(["prlimit", f"--pid={daemon}", "--nofile=34:34"])
    try:
        code, nodes, found = verdict(start("--propagate=NONE"))
        assert ("files-too-few", [0]) == (code, nodes)
        assert "node 0: the hub may open 34 files, and needs 35 for 3 nodes" == found.sentence
        assert "`LimitNOFILE=` of slurmd" in found.hint
    finally:
        cluster.kill_slurmd("n1")
        cluster.start_slurmd("n1")
    mended(start, "--propagate=NONE")


# --- a node's port, and who is there


@pytest.mark.whole
@pytest.mark.fault("port-in-use")
def test_a_leftover_holds_the_master_port(cluster: Cluster, start: Start, serve: Serve) -> None:
    """It is named by its pid, and what the hint says ends it."""
    serve("n1", SERVE.format(MASTER))
    job = start()

    code, nodes, found = verdict(job)
    assert ("port-in-use", [0]) == (code, nodes)
    assert f"node 0 (n1): port {MASTER} is held by pid " in found.sentence
    assert seconds(job) < BUSY * 5
    (command,) = re.findall(r"`(kill \d+)`", found.hint)
    cluster.run("n1", command.split())
    mended(start)


@pytest.mark.whole
@pytest.mark.fault("stranger-listens")
def test_a_proxy_on_one_node_answers(cluster: Cluster, start: Start, serve: Serve) -> None:
    """It takes every connection to the master's port, until that is excluded from it."""
    serve("n3", SERVE_HTTP)
    chain = "add table ip mesh; add chain ip mesh out { type nat hook output priority 0; }"
    cluster.run("n3", ["nft", f"{chain}; add rule ip mesh out tcp dport {MASTER} redirect to :8080"])
    job = start()

    code, nodes, found = verdict(job)
    assert ("stranger-listens", [0]) == (code, nodes)
    assert "it speaks HTTP" in found.sentence
    assert "exclude the job's ports from it" in found.hint
    cluster.run("n3", ["nft", f"insert rule ip mesh out tcp dport {MASTER} return"])
    mended(start)


@pytest.mark.fault("dns-unanswered")
@pytest.mark.whole
def test_a_name_server_that_is_silent_to_one_node(
    cluster: Cluster, start: Start, work: Path, nowhere: None
) -> None:
    """The job uses a name that n3 would have to ask for."""
    names(cluster, "n3", n1=None)
    code, nodes, found = verdict(start(**BY_NAME))

    assert ("dns-unanswered", [2]) == (code, nodes)
    assert "/etc/resolv.conf" in found.hint
    names(cluster, "n3")
    mended(start, **BY_NAME)


@pytest.fixture(name="nowhere")
def _nowhere(cluster: Cluster, work: Path) -> Iterator[None]:
    """n3 asks a name server to which no packet comes."""
    files = {
        "nsswitch.conf": "hosts: files dns\n",
        "resolv.conf": "nameserver 10.99.0.1\noptions timeout:1\n",
    }
    cluster.nft("n3", "udp dport 53 drop", hook="output")
    for name, text in files.items():
        (work / name).write_text(text)
        cluster.run("n3", ["mount", "--bind", work / name, f"/etc/{name}"])
    yield
    for name in files:
        cluster.run("n3", ["umount", f"/etc/{name}"])


# --- the interface that NCCL takes


@pytest.mark.whole
@pytest.mark.fault("nccl-interface-wrong")
def test_an_interface_for_nccl_that_leads_nowhere(start: Start, gpus: None) -> None:
    """Left out, as the hint says, the gate sets what works, and says so."""
    code, nodes, found = verdict(start(env={"NCCL_SOCKET_IFNAME": "ib"}))

    assert ("nccl-interface-wrong", [0, 1, 2]) == (code, nodes)
    assert "NCCL takes ib0 10.88.0.1, which node" in found.sentence
    assert "; eth0 works" in found.sentence
    assert "leave NCCL_SOCKET_IFNAME out" in found.hint
    assert any(note.startswith("NCCL_SOCKET_IFNAME==eth0 is set on nodes") for note in mended(start))


@pytest.mark.whole
@pytest.mark.fault("nccl-interface-missing")
def test_an_interface_for_nccl_that_is_not_there(start: Start, gpus: None) -> None:
    """The beginning of a name that no interface has; with one that exists, the job starts."""
    code, nodes, found = verdict(start(env={"NCCL_SOCKET_IFNAME": "ens"}))

    assert ("nccl-interface-missing", [0, 1, 2]) == (code, nodes)
    assert "NCCL finds no interface: NCCL_SOCKET_IFNAME=ens matches none" in found.sentence
    assert "NCCL takes a name as the beginning of one" in found.hint
    mended(start, env={"NCCL_SOCKET_IFNAME": "eth"})
