"""The cluster that all tests here stand on: what it promises is true, and what is broken is mended."""

from __future__ import annotations

import sys
import time
from importlib import metadata
from typing import Any

import pytest
from tests.cluster.kubernetes import images
from tests.cluster.kubernetes.cache import ClusterError
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.faults import Faults

SERVE = "import socket; s = socket.create_server(('', 29500))\nwhile True: s.accept()[0].sendall(b'x' * 4000)"
READ = """
import socket, sys
connection = socket.create_connection((sys.argv[1], 29500), 3)
connection.settimeout(3)
got = b""
while len(got) < 4000:
    got += connection.recv(4000)
print(len(got))
"""
RESOLVE = "import socket; print(socket.gethostbyname('kubernetes.default.svc.cluster.local'))"


def pod(name: str, node: str, program: str = SERVE, torch: bool = False, **container: Any) -> dict[str, Any]:
    """A pod on that node which runs a Python program."""
    mounts = images.mounts() if torch else []
    each: dict[str, Any] = {
        "name": "main",
        "image": images.TRAINER,
        "imagePullPolicy": "IfNotPresent",
        "command": [sys.executable if torch else "python3", "-c", program],
        "volumeMounts": [{"name": f"v{n}", "mountPath": str(path)} for n, path in enumerate(mounts)],
        **container,
    }
    spec = {
        "nodeName": node,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [each],
        "volumes": [{"name": f"v{n}", "hostPath": {"path": str(path)}} for n, path in enumerate(mounts)],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def ended(cluster: Cluster, namespace: str, name: str) -> Any:
    """Its status, when it is over."""
    cluster.until(
        lambda: cluster.get("pod", name, "-n", namespace)["status"]["phase"] in ("Succeeded", "Failed"),
        f"{name} ends",
        60,
        lambda: cluster.describe(namespace),
    )
    return cluster.get("pod", name, "-n", namespace)["status"]


@pytest.fixture(name="pair")
def _pair(cluster: Cluster, namespace: str) -> tuple[str, str]:
    """A namespace with a pod on each worker, both of which listen, and the second one's address."""
    cluster.apply(*(pod(f"p{n}", node) for n, node in enumerate(cluster.workers)), namespace=namespace)
    cluster.kubectl(
        "wait", "pods", "--all", "-n", namespace, "--for=condition=Ready", "--timeout=60s", timeout=70
    )
    address: str = cluster.get("pod", "p1", "-n", namespace)["status"]["podIP"]
    return namespace, address


def reads(cluster: Cluster, pair: tuple[str, str]) -> str:
    """What the first pod gets from the second: the last line of what it says."""
    namespace, address = pair
    words = ["kubectl", "exec", "-n", namespace, "p0", "--", "python3", "-c", READ, address]
    done = cluster.run(words, check=False)
    # The line before kubectl's own, which tells the exit code.
    lines = [
        line for line in f"{done.stdout}{done.stderr}".splitlines() if "terminated with exit" not in line
    ]
    return lines[-1]


def resolves(cluster: Cluster, namespace: str) -> bool:
    """Whether a pod finds the API server's name."""
    words = ["kubectl", "exec", "-n", namespace, "p0", "--", "python3", "-c", RESOLVE]
    return cluster.run(words, check=False).returncode == 0


def test_pods_see_the_projects_torch_as_anybody(cluster: Cluster, namespace: str) -> None:
    """The environment of this machine is in the nodes, and an ordinary user may read it."""
    program = "import os, torch; print(torch.__version__.split('+')[0], os.getuid())"
    cluster.apply(pod("torch", cluster.workers[0], program, torch=True), namespace=namespace)

    assert "Succeeded" == ended(cluster, namespace, "torch")["phase"]
    version, user = cluster.kubectl("logs", "-n", namespace, "torch").split()
    assert ("1000", metadata.version("torch").split("+")[0]) == (user, version)


def test_the_trainer_image_fits_a_restricted_namespace(cluster: Cluster) -> None:
    """It has its own Python, and runs where nothing but the least is allowed."""
    safe = {
        "allowPrivilegeEscalation": False,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    with cluster.namespace(**{"pod-security.kubernetes.io/enforce": "restricted"}) as namespace:
        cluster.apply(pod("p", cluster.workers[0], "print(6 * 7)", securityContext=safe), namespace=namespace)

        assert "Succeeded" == ended(cluster, namespace, "p")["phase"]
        assert "42\n" == cluster.kubectl("logs", "-n", namespace, "p")
        with pytest.raises(ClusterError, match="violates PodSecurity"):
            cluster.apply(pod("q", cluster.workers[0]), namespace=namespace)


def test_memory_beyond_the_limit_kills(cluster: Cluster, namespace: str) -> None:
    """The kernel does it, and the pod's status tells."""
    limits = {"limits": {"memory": "64Mi"}}
    program = "x = b'x' * (200 << 20); print(len(x))"
    cluster.apply(pod("p", cluster.workers[0], program, resources=limits), namespace=namespace)

    (state,) = ended(cluster, namespace, "p")["containerStatuses"]
    assert ("OOMKilled", 137) == tuple(state["state"]["terminated"][key] for key in ("reason", "exitCode"))


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("tcp dport 29500 drop", "TimeoutError: timed out"),
        ("tcp dport 29500 reject with tcp reset", "ConnectionRefusedError: [Errno 111] Connection refused"),
        ("tcp sport 29500 meta length gt 1000 drop", "TimeoutError: timed out"),
        ("tcp dport 29500 reject with icmpx admin-prohibited", "OSError: [Errno 113] No route to host"),
    ],
)
def test_a_nodes_firewall_breaks_what_its_pods_say(
    cluster: Cluster, pair: tuple[str, str], faults: Faults, rule: str, said: str
) -> None:
    """Dropped, refused, too long, or prohibited: each looks to a pod as in real life, until mended."""
    assert "4000" == reads(cluster, pair)

    faults.nft(cluster.workers[1], rule)

    assert said == reads(cluster, pair)
    faults.clear_nft(cluster.workers[1])
    assert "4000" == reads(cluster, pair)


def test_without_dns_no_name_is_found(cluster: Cluster, pair: tuple[str, str], faults: Faults) -> None:
    """CoreDNS taken away and put back."""
    namespace, _ = pair
    assert resolves(cluster, namespace)

    faults.scale_dns(0)

    assert not resolves(cluster, namespace)
    faults.clear()
    assert resolves(cluster, namespace)


def test_an_old_dns_remembers_what_it_did_not_find(
    cluster: Cluster, pair: tuple[str, str], faults: Faults
) -> None:
    """A name asked for before it exists stays missing when it does, and appears within 30 s."""
    namespace, _ = pair
    program = (
        "import socket, sys, time\n"
        "start = time.monotonic()\n"
        "while True:\n"
        "    try: socket.gethostbyname(sys.argv[1]); break\n"
        "    except OSError: print('missing', flush=True); time.sleep(1)\n"
        "print(time.monotonic() - start)"
    )
    faults.cache_denials()
    faults.scale_dns(1)  # two do not remember the same
    name = f"late.{namespace}.svc.cluster.local"
    asks = ["kubectl", "exec", "-n", namespace, "p0", "--", "python3", "-c"]
    assert (
        "gaierror"
        in cluster.run(
            [*asks, RESOLVE.replace("kubernetes.default.svc.cluster.local", name)], check=False
        ).stderr
    )
    service = {"clusterIP": "None", "selector": {"none": "such"}, "ports": [{"port": 1}]}
    meta = {"name": "late"}
    cluster.apply(
        {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {**service, "clusterIP": None}},
        namespace=namespace,
    )

    waited = float(cluster.run([*asks, program, name], timeout=90).stdout.split()[-1])

    assert 15 < waited < 40


def test_fake_gpus_are_scheduled(cluster: Cluster, namespace: str, faults: Faults) -> None:
    """A pod that asks for one runs; the next waits, and the scheduler says for what; then they are gone."""
    faults.add_resource(cluster.workers[0], 1)
    for name in ("first", "second"):
        asks = pod(name, "", resources={"limits": {"nvidia.com/gpu": "1"}})
        del asks["spec"]["nodeName"]
        cluster.apply(asks, namespace=namespace)

    def conditions(name: str) -> list[Any]:
        found: list[Any] = cluster.get("pod", name, "-n", namespace)["status"].get("conditions", [])
        return found

    def why() -> str:
        found = {
            each["status"]: each
            for name in ("first", "second")
            for each in conditions(name)
            if each["type"] == "PodScheduled"
        }
        return str(found["False"]["message"]) if len(found) == 2 else ""

    cluster.until(lambda: why() != "", "one is scheduled, one is not", 30)
    assert "Insufficient nvidia.com/gpu" in why()
    faults.clear()
    assert "nvidia.com/gpu" not in cluster.get("node", cluster.workers[0])["status"]["allocatable"]


def test_an_image_may_be_missing_on_a_node(cluster: Cluster, namespace: str, faults: Faults) -> None:
    """There it cannot be pulled; it comes back."""
    faults.take_image(cluster.workers[1])
    cluster.apply(pod("p", cluster.workers[1]), namespace=namespace)

    def reason() -> str:
        found = cluster.get("pod", "p", "-n", namespace)["status"].get("containerStatuses", [])
        return str(found[0]["state"].get("waiting", {}).get("reason")) if found else ""

    cluster.until(lambda: reason() in ("ErrImagePull", "ImagePullBackOff"), "it is not found", 60, reason)
    faults.clear()
    assert faults.has_image(cluster.workers[1])


def test_a_paused_api_server_answers_later(cluster: Cluster, faults: Faults) -> None:
    """While it is paused nothing is answered, and nothing is refused either."""
    faults.pause_api()
    begun = time.monotonic()

    said = cluster.run(["kubectl", "get", "nodes", "--request-timeout=3s"], check=False)

    assert (1, True) == (said.returncode, time.monotonic() - begun > 2)
    faults.resume_api()
    assert 3 == len(cluster.get("nodes"))


@pytest.mark.timeout(400)
def test_a_node_without_power_is_missed_and_comes_back(
    cluster: Cluster, pair: tuple[str, str], faults: Faults
) -> None:
    """Its pods are gone with it; afterwards pods of both nodes reach each other again."""
    faults.power_off(cluster.workers[1])
    faults.missed(cluster.workers[1])

    assert reads(cluster, pair).endswith(("No route to host", "timed out"))
    faults.clear()
    namespace, _ = pair
    cluster.kubectl("delete", "pod", "p1", "-n", namespace, "--force", "--grace-period=0")
    cluster.apply(pod("p1", cluster.workers[1]), namespace=namespace)
    cluster.kubectl(
        "wait", "pod", "p1", "-n", namespace, "--for=condition=Ready", "--timeout=60s", timeout=70
    )
    address = cluster.get("pod", "p1", "-n", namespace)["status"]["podIP"]
    assert "4000" == reads(cluster, (namespace, address))
