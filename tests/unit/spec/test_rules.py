"""Values that are right each for itself and wrong together."""

from __future__ import annotations

import ast
import inspect

import pytest

from ddplaunch.agent.job_file import rules
from ddplaunch.spec import load
from ddplaunch.spec.problems import SpecError

HEAD = "apiVersion: ddplaunch/v1\nname: job\n"


def _paths(text: str) -> list[str]:
    """What the rules complain of, as the paths to be mended."""
    command = "" if "command:" in text else "command: [train.py]\n"
    try:
        load.parse((HEAD + command + text).encode(), "job.yaml")
    except SpecError as error:
        return [problem.path for problem in error.problems]
    return []


@pytest.mark.parametrize(
    ("bad", "path", "good"),
    [
        ("rendezvous: {port: 40000}", "rendezvous.port", "rendezvous: {port: 29500}"),
        ("gate: {port: 60999}", "gate.port", "gate: {port: 61000}"),
        ("gate: {port: 1023}", "gate.port", "gate: {port: 1024}"),
        (
            "{rendezvous: {port: 2000}, gate: {port: 2000}}",
            "gate.port",
            "{rendezvous: {port: 2000}, gate: {port: 2001}}",
        ),
        ('rendezvous: {address: "n0:29500"}', "rendezvous.address", 'rendezvous: {address: "fe80::1"}'),
        (
            "{nproc_per_node: 4, resources: {gpus: 2}}",
            "resources.gpus",
            "{nproc_per_node: 4, resources: {gpus: 0}}",
        ),
        ("resources: {gpu_type: h100}", "resources.gpus", "resources: {gpu_type: h100, gpus: 1}"),
        ("resources: {memory: 1Gi, shm: 2Gi}", "resources.shm", "resources: {memory: 1Gi, shm: 1Gi}"),
        (
            "watchdog: {notice_after: 10m}",
            "watchdog.notice_after",
            "watchdog: {notice_after: 10m, kill_after: never}",
        ),
        (
            "{nodes: 2, rendezvous: {max_restarts: 1}}",
            "rendezvous.max_restarts",
            "{nodes: 2, rendezvous: {max_restarts: 1, backend: c10d}}",
        ),
        (
            "{nodes: 2, rendezvous: {max_restarts: 1}}",
            "rendezvous.max_restarts",
            "rendezvous: {max_restarts: 1}",
        ),
        ("{launch: mpi, rendezvous: {timeout: 5m}}", "rendezvous", "{launch: mpi, rendezvous: {}}"),
        (
            "{launch: srun, rendezvous: {timeout: 5m}}",
            "rendezvous",
            "{launch: srun, rendezvous: {port: 2000}}",
        ),
        (
            "{launch: none, command: [a], rendezvous: {backend: c10d}}",
            "rendezvous",
            "{launch: none, command: [a], rendezvous: {address: n0}}",
        ),
        ('env: {RANK: "0"}', "env.RANK", 'env: {MY_RANK: "0"}'),
        ("env: {MASTER_ADDR: n0}", "env.MASTER_ADDR", "rendezvous: {address: n0}"),
        ('env: {PET_NNODES: "2"}', "env.PET_NNODES", 'env: {CARPET_NNODES: "2"}'),
        ("secrets: {DDPLAUNCH_KEY: {env: A}}", "secrets.DDPLAUNCH_KEY", "secrets: {KEY: {env: A}}"),
        ("{env: {A: b}, secrets: {A: {env: A}}}", "secrets.A", "{env: {B: b}, secrets: {A: {env: A}}}"),
        ("env: {NCCL_SOCKET_IFNAME: e}", "env.NCCL_SOCKET_IFNAME", "env: {NCCL_SOCKET_IFNAME: et}"),
        ('env: {NCCL_SOCKET_IFNAME: "=^e0"}', "env.NCCL_SOCKET_IFNAME", "env: {NCCL_SOCKET_IFNAME: ^=e0}"),
        (
            'env: {NCCL_SOCKET_IFNAME: "eth0, eth1"}',
            "env.NCCL_SOCKET_IFNAME",
            'env: {NCCL_SOCKET_IFNAME: "eth0,eth1"}',
        ),
        ("env: {GLOO_SOCKET_IFNAME: ^lo}", "env.GLOO_SOCKET_IFNAME", 'env: {GLOO_SOCKET_IFNAME: "e0,e1"}'),
        ('env: {GLOO_SOCKET_IFNAME: "=eth0"}', "env.GLOO_SOCKET_IFNAME", "env: {GLOO_SOCKET_IFNAME: eth0}"),
        ("env: {NCCL_SOCKET_FAMILY: inet}", "env.NCCL_SOCKET_FAMILY", "env: {NCCL_SOCKET_FAMILY: AF_INET6}"),
        ("command: [torchrun, train.py]", "command[0]", "command: [-m, train]"),
        ("command: [/usr/bin/python3.11, train.py]", "command[0]", "command: [pythonic.py]"),
        ("command: [python, -m, train]", "command[0]", "{launch: mpi, command: [python, train.py]}"),
        ("command: [--nnodes, train.py]", "command[0]", "command: [train.py, --nnodes]"),
        ("command: [train.py --epochs 3]", "command[0]", "command: [my train.py]"),
        ("{launch: mpi, command: [mpirun, ./a]}", "command[0]", "{launch: mpi, command: [./a]}"),
        ("{launch: srun, command: [torchrun, a.py]}", "command[0]", "{launch: srun, command: [a.py]}"),
        (
            "{launch: none, command: [train.py]}",
            "command[0]",
            "{launch: none, command: [accelerate, launch, train.py]}",
        ),
        ("{launch: none, command: [srun, a]}", "command[0]", "{launch: none, command: [./train.py]}"),
        ("secrets: {A: {env: A, file: b}}", "secrets.A", "secrets: {A: {file: b}}"),
        ("metrics: {port: 40000}", "metrics.port", "metrics: {port: 9400}"),
        (
            "{gate: {port: 2000}, metrics: {port: 2000}}",
            "metrics.port",
            "{gate: {port: 2000}, metrics: {port: 2001}}",
        ),
        ("notify: [{}]", "notify[0]", "notify: []"),
        ("notify: [{'command': [a], when: []}]", "notify[0].when", "notify: [{'command': [a], when: [end]}]"),
        (
            "notify: [{'command': [a]}, {'command': [a], webhook: {env: A}}]",
            "notify[1]",
            "notify: [{'command': [a]}, {webhook: {env: A}, when: [end], format: slack}]",
        ),
        ("notify: [{events: false}]", "notify[0]", "notify: [{events: true}]"),
        ("notify: [{webhook: {}}]", "notify[0].webhook", "notify: [{webhook: {file: /a}}]"),
        ("secrets: {A: {}}", "secrets.A", "secrets: {A: {secret: {name: a, key: b}}}"),
        (
            "volumes: [{name: a, mount_path: /a}]",
            "volumes[0]",
            "volumes: [{name: a, mount_path: /a, empty_dir: true}]",
        ),
        (
            "volumes: [{name: a, mount_path: /a, claim: c}, {name: a, mount_path: /b, claim: c}]",
            "volumes[1].name",
            "volumes: [{name: a, mount_path: /a, claim: c}, {name: b, mount_path: /b, claim: c}]",
        ),
        (
            "volumes: [{name: a, mount_path: /a, claim: c}, {name: b, mount_path: /a, claim: c}]",
            "volumes[1].mount_path",
            "volumes: []",
        ),
        (
            "{volumes: [{name: a, mount_path: /a, claim: c}], outputs: {volume: b}}",
            "outputs.volume",
            "{volumes: [{name: a, mount_path: /a, claim: c}], outputs: {volume: a}}",
        ),
        (
            "{volumes: [{name: a, mount_path: /a, empty_dir: true}], outputs: {volume: a}}",
            "outputs.volume",
            "{volumes: [{name: a, mount_path: /a, host_path: /a}], outputs: {volume: a}}",
        ),
        (
            "{volumes: [{name: a, mount_path: /a, claim: c, read_only: true}], outputs: {volume: a}}",
            "outputs.volume",
            "{volumes: [{name: a, mount_path: /a, claim: c, read_only: false}], outputs: {volume: a}}",
        ),
        (
            "{volumes: [{name: a, mount_path: /a, claim: c}], outputs: {volume: a, path: b/../..}}",
            "outputs.path",
            "{volumes: [{name: a, mount_path: /a, claim: c}], outputs: {volume: a, path: b..}}",
        ),
        (
            "kubernetes: {tolerations: [{operator: Exists, value: a}]}",
            "kubernetes.tolerations[0].value",
            "kubernetes: {tolerations: [{operator: Exists}]}",
        ),
        (
            "kubernetes: {tolerations: [{}]}",
            "kubernetes.tolerations[0]",
            "kubernetes: {tolerations: [{key: a}]}",
        ),
        (
            "kubernetes: {tolerations: [{key: a, toleration_seconds: 3}]}",
            "kubernetes.tolerations[0].toleration_seconds",
            "kubernetes: {tolerations: [{key: a, toleration_seconds: 3, effect: NoExecute}]}",
        ),
        ("slurm: {extra: [--nodes=3]}", "slurm.extra[0]", "slurm: {extra: [--nodefile=x]}"),
        ("slurm: {extra: ['--signal=USR1@60']}", "slurm.extra[0]", "slurm: {extra: [--signals]}"),
        (
            "{signal: {name: USR1, before: 2m}, slurm: {time: 2m}}",
            "signal.before",
            "{signal: {name: USR1, before: 2m}, slurm: {time: 3m}}",
        ),
        (
            "{signal: {name: USR1, before: 2m}, local: {time: 60s}}",
            "signal.before",
            "{signal: {name: USR1, before: 30s}, local: {time: 60s}}",
        ),
        (
            "slurm: {container: {image: a}}",
            "slurm.container",
            "slurm: {container: {image: a, runtime: pyxis}}",
        ),
    ],
)
def test_a_rule_finds_what_is_wrong_and_leaves_the_rest(bad: str, path: str, good: str) -> None:
    """Each rule speaks up for its fault, and is silent one step away from it."""
    assert [path] == _paths(_block(bad))
    assert [] == _paths(_block(good))


def _block(text: str) -> str:
    """`{a: 1, b: 2}` as the lines of a file: keys stand at the top, the rest may stay in braces."""
    if not text.startswith("{"):
        return text
    depth, parts, part = 0, [], ""
    for char in text[1:-1]:
        depth += (char in "{[") - (char in "}]")
        if char == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += char
    return "\n".join([*parts, part.strip()])


def test_every_rule_is_asked() -> None:
    """A rule that was written and not listed would never speak."""
    tree = ast.parse(inspect.getsource(rules))
    written = {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and isinstance(node.returns, ast.Subscript)
        if ast.unparse(node.returns) == "Iterator[Finding]"
    }

    assert written == {rule.__name__ for rule in rules.RULES}
    assert len(rules.RULES) == len(written)


def test_the_split_command_is_proposed() -> None:
    with pytest.raises(SpecError) as caught:
        load.parse((HEAD + 'command: ["train.py --epochs 3"]').encode(), "job.yaml")

    assert 'write [train.py, --epochs, "3"]' == caught.value.problems[0].hint
