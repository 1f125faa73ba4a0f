"""Gate and supervisor in the manifests of other controllers: what is added, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ddplaunch.errors import UsageError
from ddplaunch.inject import Settings, change

GOLDEN = Path(__file__).parents[2] / "golden" / "inject"
MANIFESTS = ("job", "jobset", "pytorchjob", "volcano", "volcano-pytorch")
IMAGE = Settings(agent_image="registry.example/ddplaunch-agent:1")
JOB = (GOLDEN / "job.yaml").read_text()


def injected(text: str, settings: Settings = IMAGE) -> str:
    """The text with gate and supervisor."""
    return change.inject(text, "train.yaml", settings).text


def refused(text: str, settings: Settings = IMAGE) -> str:
    """The message with which it is refused."""
    with pytest.raises(UsageError) as caught:
        injected(text, settings)
    return f"{caught.value.message} | {caught.value.hint}"


def changed(text: str, old: str, new: str) -> str:
    """The text with something else in one place."""
    assert 1 == text.count(old)
    return text.replace(old, new)


@pytest.mark.parametrize("case", MANIFESTS)
def test_the_injected_manifest_is_the_golden_one(case: str) -> None:
    """Whole: comments, order and style of what was there stay."""
    assert (GOLDEN / f"{case}.injected.yaml").read_text() == injected((GOLDEN / f"{case}.yaml").read_text())


@pytest.mark.parametrize("case", MANIFESTS)
def test_removal_gives_back_the_same_bytes(case: str) -> None:
    text = (GOLDEN / f"{case}.injected.yaml").read_text()

    assert (GOLDEN / f"{case}.yaml").read_text() == change.remove(text, "train.yaml").text


@pytest.mark.parametrize("case", MANIFESTS)
def test_a_second_time_is_refused(case: str) -> None:
    said = refused((GOLDEN / f"{case}.injected.yaml").read_text())

    assert "found a part of ddplaunch, wanted a manifest without it | `ddplaunch inject --remove`" in said


@pytest.mark.parametrize("case", MANIFESTS)
def test_json_is_a_manifest_as_well(case: str) -> None:
    """JSON stays JSON, and removal gives back its bytes."""
    for document in yaml.safe_load_all((GOLDEN / f"{case}.yaml").read_text()):
        if document["kind"] == "Service":
            continue
        for indent in (None, 2):
            text = json.dumps(document, indent=indent)
            there = injected(text)

            (wanted,) = (
                each
                for each in yaml.safe_load_all((GOLDEN / f"{case}.injected.yaml").read_text())
                if each["kind"] == document["kind"]
            )
            assert wanted == json.loads(there)
            assert text == change.remove(there, "train.json").text


def test_the_users_line_ends_stay() -> None:
    """A file of Windows has none of ours."""
    text = JOB.replace("\n", "\r\n")
    there = injected(text)

    assert there.count("\n") == there.count("\r\n")
    assert text == change.remove(there, "train.yaml").text


def test_options_added_by_hand_are_taken_out_too() -> None:
    """What stands before `--` is the agent's."""
    edited = changed(injected(JOB), "- --join\n", "- --join\n        - --kill-after=1800\n")

    assert JOB == change.remove(edited, "train.yaml").text


def test_what_was_changed_elsewhere_since_stays() -> None:
    """A new image of the trainer is no reason to refuse the removal."""
    old, new = "registry.example/trainer:1", "registry.example/trainer:2"

    assert changed(JOB, old, new) == change.remove(changed(injected(JOB), old, new), "train.yaml").text


def test_a_file_without_ddplaunch_has_nothing_to_remove() -> None:
    """Not even a volume that happens to have the name."""
    text = changed(
        JOB, "      - name: data\n        persistent", "      - name: ddplaunch\n        persistent"
    )

    with pytest.raises(UsageError, match="found nothing of ddplaunch"):
        change.remove(text, "train.yaml")
    assert "train.yaml:37: spec.template.spec.volumes[0]: found a part of ddplaunch" in refused(text)


def test_the_container_that_trains_is_named_where_there_are_two() -> None:
    """The other one stays as it is."""
    volumes = "      volumes:\n      - name: data\n        pers"
    text = changed(JOB, volumes, f"      - {{name: logs, image: registry.example/logs:1}}\n{volumes}")

    assert "containers: found train, logs, wanted the name of the container that trains" in refused(text)
    chosen = Settings(agent_image="i", container="train")
    (job,) = (each for each in yaml.safe_load_all(injected(text, chosen)) if each["kind"] == "Job")
    assert {"name": "logs", "image": "registry.example/logs:1"} == job["spec"]["template"]["spec"][
        "containers"
    ][1]
    assert "found train, logs, wanted a container trainer" in refused(
        text, Settings(agent_image="i", container="trainer")
    )


REFUSED = [
    ("job", "completionMode: Indexed", "completionMode: NonIndexed", "found NonIndexed, wanted Indexed"),
    ("job", "  completionMode: Indexed\n", "", "spec: found no completionMode"),
    ("job", "parallelism: 2", "parallelism: 1", "parallelism: found 1 of 2 completions, wanted as many"),
    ("job", "completions: 2", "completions: two", "completions: found two, wanted a number from 1"),
    ("job", "      subdomain: train\n", "", "found nothing that names node 0, wanted `subdomain`"),
    (
        "job",
        "        env:\n",
        "        env: []\n        envFrom:\n",
        "env: found an empty list, wanted a list",
    ),
    ("job", "        command:\n", "        args:\n", "found no command, wanted the command that trains"),
    ("job", "NCCL_DEBUG  # loud, for now", "DDPLAUNCH_KEY", "env[0]: found a part of ddplaunch"),
    ("job", "kind: Job", "kind: CronJob", "found v1 Service, batch/v1 CronJob, wanted one of batch/v1 Job,"),
    ("job", "kind: Job", "kind: [Job]", "found a list, wanted text"),
    ("job", "  namespace: vision\n", "  {{- if x }}\n", "wanted YAML | a template must be rendered first"),
    ("jobset", "replicas: 1", "replicas: 2", "replicas: found 2, wanted 1: the nodes are pods of one Job"),
    (
        "jobset",
        "  failurePolicy: {maxRestarts: 1}",
        "  network: {enableDNSHostnames: false}",
        "that names node 0",
    ),
    ("pytorchjob", "    Master:", "    Chief:", "found Chief, Worker, wanted Master and Worker"),
    ("pytorchjob", '  nprocPerNode: "2"', "  elasticPolicy: {maxReplicas: 4}", "found an elastic job"),
    ("volcano", "env: []", "ssh: []", "plugins: found ssh, svc, wanted the plugin pytorch, or svc and env"),
    ("volcano-pytorch", "name: worker\n", "name: helper\n", "found master, helper, wanted the tasks master"),
    (
        "volcano-pytorch",
        "--port=23456",
        "--master=chief",
        "found --master=chief, wanted tasks with the plugin's default names",
    ),
]


@pytest.mark.parametrize(("case", "old", "new", "message"), REFUSED)
def test_what_is_not_understood_is_refused(case: str, old: str, new: str, message: str) -> None:
    said = refused(changed((GOLDEN / f"{case}.yaml").read_text(), old, new))

    assert message in said
    assert said.startswith("train.yaml:")


def test_a_trainjob_is_sent_to_its_runtime() -> None:
    """Its pods are described in a runtime, and that of our chart has everything."""
    text = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: a}\n"

    said = refused(text)

    assert "found trainer.kubeflow.org/v1alpha1 TrainJob, wanted one of batch/v1 Job," in said
    assert "charts/ddplaunch-runtimes" in said
    assert "charts/ddplaunch-runtimes" not in refused("apiVersion: v1\nkind: Pod\n")


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
def test_an_mpijob_is_sent_to_its_operators_own_means(version: str) -> None:
    """Its ranks are started in pods whose command is sshd."""
    text = f"apiVersion: kubeflow.org/{version}\nkind: MPIJob\nmetadata: {{name: a}}\n"

    said = refused(text)

    assert f"found kubeflow.org/{version} MPIJob, wanted one of batch/v1 Job," in said
    assert "WaitForWorkersReady" in said
    assert "ddplaunch diagnose kubernetes://NAMESPACE/mpijob/NAME" in said
    assert "WaitForWorkersReady" not in refused("apiVersion: example.org/v1\nkind: MPIJob\n")


def test_an_alias_is_refused() -> None:
    """A change of one place would be one of two."""
    text = changed(JOB, "restartPolicy: Never", "restartPolicy: &x Never")
    text = changed(text, "image: registry.example/trainer:1", "image: *x")

    assert "found an alias (*) of another value, wanted a manifest without aliases" in refused(text)


def test_without_an_image_there_is_nothing_to_inject() -> None:
    """None is published, so that none is guessed."""
    assert "found no --agent-image, wanted the image that contains the agent" in refused(JOB, Settings())


def test_node_0_may_be_named_by_the_user() -> None:
    """By torchrun's argument, or by a variable."""
    text = changed(JOB, "      subdomain: train\n", "")

    for old, new in (
        ("- --nproc-per-node=2\n", "- --nproc-per-node=2\n        - --rdzv-endpoint=a:1\n"),
        ("- name: NCCL_DEBUG  # loud, for now\n", "- name: MASTER_ADDR\n"),
    ):
        assert JOB.count("image") + 1 == injected(changed(text, old, new)).count("image")


def test_every_injected_manifest_has_one_key_and_one_prefix_per_pod() -> None:
    """The same for all nodes of a job, from a Secret: nothing that stands in the manifest is a key."""
    for case in MANIFESTS:
        for pod in pods(yaml.safe_load_all((GOLDEN / f"{case}.injected.yaml").read_text())):
            (container,) = pod["containers"]
            keys = [each for each in container["env"] if each["name"] == "DDPLAUNCH_KEY"]
            secret = {"secretKeyRef": {"name": "ddplaunch", "key": "key"}}
            assert [{"name": "DDPLAUNCH_KEY", "valueFrom": secret}] == keys
            assert 1 == container["command"].count("--join")


def pods(value: Any) -> list[dict[str, Any]]:
    """All PodSpecs in it."""
    if isinstance(value, dict):
        return [value] if "containers" in value else [pod for each in value.values() for pod in pods(each)]
    return [pod for each in value for pod in pods(each)] if not isinstance(value, (str, int)) else []
