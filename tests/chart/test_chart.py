"""The chart itself: what Helm says of it, how it is packaged, and its words for what goes wrong."""

from __future__ import annotations

import base64
import importlib.machinery
import importlib.util
import json
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from tests.chart.conftest import AGENT, CHART, MARKS, ROOT, Helm, by_chart

from ddplaunch import __version__
from ddplaunch.agent.job_file import read
from ddplaunch.render.archive import agent_archive

pytestmark = MARKS

JOB = """\
apiVersion: ddplaunch/v1
name: run
command: [train.py]
image: trainer
"""


@pytest.fixture(name="job")
def _job(tmp_path: Path) -> Path:
    """A job file to write more into."""
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


@pytest.fixture(name="package")
def _package(monkeypatch: pytest.MonkeyPatch, chart: Path, tmp_path: Path) -> ModuleType:
    """scripts/package-chart as a module, at work on a copy."""
    loader = importlib.machinery.SourceFileLoader("package_chart", str(ROOT / "scripts" / "package-chart"))
    spec = importlib.util.spec_from_loader("package_chart", loader)
    assert spec is not None
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    shutil.copytree(chart, tmp_path / "charts" / "ddplaunch")
    (tmp_path / "charts" / "ddplaunch" / AGENT).unlink()
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "CHART", tmp_path / "charts" / "ddplaunch")
    return module


def test_helm_has_nothing_to_say_against_it(helm: Helm, chart: Path) -> None:
    """Not even a warning, with the values of ci/ and with a job that has everything."""
    for values in [*CHART.glob("ci/*.yaml"), ROOT / "tests/golden/kubernetes/full/job.yaml"]:
        done = helm("lint", "--strict", chart, "--values", values)

        assert "1 chart(s) linted, 0 chart(s) failed" in done.stdout
        assert [] == re.findall(r"^\[(?:WARNING|ERROR)\].*$", done.stdout, re.MULTILINE)


def test_its_version_is_the_launchers() -> None:
    """In the spelling of each: Helm wants three numbers."""
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert (__version__, __version__.replace(".dev", "-dev"), ">=1.29.0-0") == (
        about["appVersion"],
        about["version"],
        about["kubeVersion"],
    )


def test_its_schema_knows_every_key_and_nothing_else() -> None:
    """At every level an unknown key is refused and a known one is described."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    parts = [schema, *(each for name, each in schema["$defs"].items() if "PodTemplate" not in name)]

    assert [False] * len(parts) == [part["additionalProperties"] for part in parts]
    assert [] == [
        key for part in parts for key, each in part["properties"].items() if not each.get("description")
    ]


def test_its_values_are_the_defaults(helm: Helm, chart: Path, job: Path) -> None:
    """A default taken away by null is refused, as an empty line of a job file is."""
    done = helm("template", "x", chart, "--values", job, "--set", "nodes=null", check=False)

    assert (1, True) == (done.returncode, "missing property 'nodes'" in done.stderr)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("comand: [a.py]", "additional properties 'comand' not allowed"),
        ("nodes: 2.5", "at '/nodes': got number, want integer"),
        ("gate: {timeout: 5 minutes}", "at '/gate/timeout'"),
        ("gate: {timeout: 1h2h}", 'gate.timeout: found "1h2h", wanted a duration such as 10s, 2m or 1h30m'),
        ("retries: 1", "retries: found 1, wanted 0, or kubernetes.jobset"),
        ("launch: mpi", "launch: found mpi, wanted torchrun or none for --to kubernetes"),
        ("nodes: {min: 2, max: 4}", "at '/nodes': got object, want integer"),
        (
            "nodes: 4\nmin_nodes: 2",
            "rendezvous.backend: found static with a range of nodes, wanted backend: c10d",
        ),
        (
            "launch: mpi\nrendezvous: {timeout: 5m}",
            "rendezvous: found settings of torchrun's rendezvous, wanted none with launch: mpi",
        ),
        ("source: train.py", "--set-file sourceArchive=source.b64"),
        ("kubernetes: {pod_template: {spec: {containers: [{image: x}]}}}", "missing property 'name'"),
        ("image: null", "at '/image': got null, want string"),
        ("kubernetes: {labels: {job-name: x}}", "at '/kubernetes/labels'"),
        ("secrets: {TOKEN: {env: HF_TOKEN}}", "at '/secrets/TOKEN/env': got string, want null"),
        ("volumes: [{name: shm, mount_path: /a, empty_dir: true}]", "at '/volumes/0/name'"),
        ("kubernetes: {restricted: true, host_network: true}", "at '/kubernetes/host_network'"),
    ],
)
def test_what_is_wrong_is_said(helm: Helm, light: Path, job: Path, line: str, said: str) -> None:
    """By the schema where a pod could not say it, else by the agent, in the launcher's words."""
    job.write_text(f"{JOB}{line}\n")
    done = helm("template", "x", light, "--values", job, check=False)
    words = [done.stderr]
    if done.returncode == 0:
        (found, *_) = by_chart(done.stdout)
        words = [each.sentence for each in read.parse(found["data"]["job.json"]).verdicts]

    assert [] != words
    assert said in "\n".join(words)


@pytest.mark.parametrize(("version", "code"), [("1.30.9", 1), ("1.31.0", 0)])
def test_an_older_cluster_takes_no_range(helm: Helm, light: Path, job: Path, version: str, code: int) -> None:
    """Its Jobs know no `successPolicy`: the job would wait for pods that never come."""
    job.write_text(f"{JOB}nodes: 4\nmin_nodes: 2\nrendezvous: {{backend: c10d}}\n")
    done = helm("template", "x", light, "--values", job, "--kube-version", version, check=False)

    assert (code, bool(code)) == (done.returncode, "wanted 1.31 or newer" in done.stderr)


@pytest.mark.parametrize(("nodes", "room"), [(10, 48), (11, 47), (100, 47), (101, 46), (10_000, 45)])
def test_a_jobset_leaves_less_room_for_a_name(
    helm: Helm, light: Path, job: Path, nodes: int, room: int
) -> None:
    """The schema knows how much, for no pod would come to say it."""
    codes = []
    for length in (room, room + 1):
        named = JOB.replace("name: run", "name: " + "n" * length)
        job.write_text(f"{named}nodes: {nodes}\nkubernetes: {{jobset: true}}\n")
        codes.append(helm("template", "x", light, "--values", job, check=False).returncode)

    assert [0, 1] == codes


def test_a_field_that_no_template_knows_reaches_the_agent(
    helm: Helm, light: Path, job: Path, tmp_path: Path
) -> None:
    """A new key of the job file is written once, in the model, from which schema and values are made."""
    chart = Path(shutil.copytree(light, tmp_path / "more"))
    schema = json.loads((chart / "values.schema.json").read_text())
    schema["$defs"]["Watchdog"]["properties"]["moon"] = {"type": "string"}
    (chart / "values.schema.json").write_text(json.dumps(schema))
    job.write_text(f"{JOB}watchdog: {{moon: full}}\n")
    (found, *_) = by_chart(helm("template", "x", chart, "--values", job).stdout)

    assert "full" == json.loads(found["data"]["job.json"])["watchdog"]["moon"]


def test_without_the_agent_it_says_how_to_get_it(helm: Helm, light: Path, job: Path, tmp_path: Path) -> None:
    """A chart taken straight from git starts nothing."""
    shutil.copytree(light, tmp_path / "bare", ignore=shutil.ignore_patterns("agent.pyz"))
    done = helm("template", "x", tmp_path / "bare", "--values", job, check=False)

    assert 1 == done.returncode
    assert (
        "this chart does not contain the agent, which every pod runs\n  hint: install the packaged"
        in done.stderr
    )


def test_a_source_that_is_too_large_is_refused(helm: Helm, light: Path, job: Path, tmp_path: Path) -> None:
    """With the launcher's limit."""
    (tmp_path / "source.b64").write_text("A" * 1_000_000)
    words = ["--set-file", f"sourceArchive={tmp_path / 'source.b64'}"]
    done = helm("template", "x", light, "--values", job, *words, check=False)

    assert (1, True) == (done.returncode, "found 750000 bytes, wanted at most 650000" in done.stderr)


def test_the_package_holds_the_launchers_agent(
    package: ModuleType, helm: Helm, job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Same sources, same bytes; and Helm makes of it what it makes of the folder."""
    packages = []
    for _ in range(2):
        assert 0 == package.main()
        packages.append((tmp_path / capsys.readouterr().out.strip()).read_bytes())
    made = tmp_path / "build" / "charts" / f"ddplaunch-{__version__.replace('.dev', '-dev')}.tgz"
    whole = helm("template", "x", made, "--values", job).stdout

    assert packages[0] == packages[1]
    assert agent_archive() == (tmp_path / "charts" / "ddplaunch" / AGENT).read_bytes()
    again = helm("template", "x", tmp_path / "charts" / "ddplaunch", "--values", job).stdout
    assert by_chart(whole) == by_chart(again)


@pytest.mark.parametrize(
    ("case", "name", "more"),
    [
        ("full", "full", ["nodes=1,rendezvous.backend=static,rendezvous.max_restarts=2"]),  # two never meet
        ("elastic", "range", ["min_nodes=3"]),
    ],
)
def test_the_test_is_a_small_job_of_its_own(
    helm: Helm, light: Path, case: str, name: str, more: list[str]
) -> None:
    """Two nodes and no devices, so that it finds room beside the job; every object of it goes again."""
    job = ROOT / "tests" / "golden" / "kubernetes" / case / "job.yaml"
    test = "templates/tests/all-reduce.yaml"
    text = helm("template", "x", light, "--values", job, "--set", *more, "--show-only", test)
    found: list[dict[str, Any]] = [each for each in yaml.safe_load_all(text.stdout) if each]
    workload = next(each for each in found if each["kind"] == "Job")
    containers = workload["spec"]["template"]["spec"]["containers"]

    assert {"Job", "ConfigMap", "Service", "NetworkPolicy"} == {each["kind"] for each in found}
    assert {f"{name}-test"} == {each["metadata"]["name"] for each in found}
    assert {"test"} == {each["metadata"]["annotations"]["helm.sh/hook"] for each in found}
    assert (2, [False]) == (workload["spec"]["parallelism"], ["resources" in each for each in containers])
    assert [] == by_chart(text.stdout)
    (files,) = (each["data"] for each in found if each["kind"] == "ConfigMap")
    assert ["all_reduce.py", "job.json"] == sorted(files)
    assert (["/ddplaunch/all_reduce.py"], []) == (
        read.parse(files["job.json"]).plan.command,
        read.parse(files["job.json"]).verdicts,
    )


def test_the_key_is_random_and_where_the_pods_look_for_it(helm: Helm, light: Path, job: Path) -> None:
    """Another one for each installation; every container of the job that has a key takes it from there."""
    keys = set()
    for _ in range(2):
        found = list(yaml.safe_load_all(helm("template", "x", light, "--values", job).stdout))
        (secret,) = (each for each in found if each and each["kind"] == "Secret")
        (workload,) = (
            each
            for each in found
            if each and each["kind"] == "Job" and "helm.sh/hook" not in each["metadata"]["annotations"]
        )
        pod = workload["spec"]["template"]["spec"]
        asked = [
            variable["valueFrom"]["secretKeyRef"]
            for container in [*pod["initContainers"], *pod["containers"]]
            for variable in container.get("env", ())
            if variable["name"] == "DDPLAUNCH_KEY"
        ]
        keys.add(base64.b64decode(secret["data"]["key"]))
        assert [{"name": secret["metadata"]["name"], "key": "key", "optional": True}] * 3 == asked

    assert [43, 43] == [len(key) for key in keys]


def test_an_installer_is_told_how_to_go_on(helm: Helm, light: Path, job: Path) -> None:
    """The commands to follow, for this release and this job."""
    done = helm("install", "run1", light, "--values", job, "--namespace", "ml", "--dry-run=client")

    for command in ("ddplaunch status kubernetes://ml/run", "helm test run1 --namespace ml"):
        assert command in done.stdout


ROLE = {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]}


@pytest.mark.parametrize(
    ("more", "account", "made"), [("", "run", ["run"]), ("service_account: ann", "ann", [])]
)
def test_the_right_to_create_events_is_given_when_it_is_asked_for(
    helm: Helm, light: Path, job: Path, more: str, account: str, made: list[str]
) -> None:
    """To the pods' service account, which is created unless the job file names one; and nothing else is.

    `helm test` tells nobody, and needs none of it.
    """
    job.write_text(f"{JOB}notify: [{{events: true}}]\nkubernetes: {{{more}}}\n")
    words = ["template", "x", light, "--values", job]
    plain = {each["kind"] for each in yaml.safe_load_all(helm(*words).stdout)}
    done = [each for each in yaml.safe_load_all(helm(*words, "--set", "createRole=true").stdout) if each]
    found: dict[str, list[dict[str, Any]]] = {each["kind"]: [] for each in done}
    for each in done:
        found[each["kind"]].append(each)

    assert {*plain, "Role", "RoleBinding", *(["ServiceAccount"] if made else [])} == set(found)
    assert made == [each["metadata"]["name"] for each in found.get("ServiceAccount", [])]
    assert [[ROLE]] == [each["rules"] for each in found["Role"]]
    (binding,) = found["RoleBinding"]
    assert [{"kind": "ServiceAccount", "name": account}] == binding["subjects"]
    assert ("Role", found["Role"][0]["metadata"]["name"]) == (
        binding["roleRef"]["kind"],
        binding["roleRef"]["name"],
    )
    pod, test = (each["spec"]["template"]["spec"] for each in found["Job"])
    names = [volume["name"] for volume in (*pod["volumes"], *test["volumes"])]
    assert (1, account if not made else None) == (
        names.count("service-account"),
        test.get("serviceAccountName"),
    )
    assert (account, False) == (pod["serviceAccountName"], pod["automountServiceAccountToken"])
