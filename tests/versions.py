"""With which versions each suite has run: a plugin of pytest, what keeps its results, and the page of them.

`-p tests.versions` writes the versions into the suite's results, build/times/SUITE.xml.
`python -m tests.versions SUITE...` takes over what these suites say into docs/reference/suites.json, of which
`make docs` makes docs/reference/suites.md. A suite in which a test has failed is not taken over.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import subprocess
import sys
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from _pytest.junitxml import xml_key

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "docs/reference/suites.json"
NODES = ROOT / "docker/kind-node"
WHAT = {
    "quick": "job file, plans, rendering, rules, reports, commands",
    "agent39": "what the agent runs, reads, sends and looks at",
    "processes": "whole agents without training; many and broken inputs",
    "processes39": "whole agents without training",
    "slow": "whole agents with torch",
    "transparent": "commands, plain and under `ddplaunch run`",
    "corpus": "faults and healthy programs, one machine",
    "oldtorch": "the same with the oldest torch",
    "seeds": "programs that users have asked about",
    "slurm": "jobs on three nodes",
    "kubernetes": "jobs on three nodes",
}
"""What a suite of scripts/run-tests is about. One whose name ends with a release is the same suite there."""
PAGE = """\
# What the tests ran on

Generated from suites.json, in which `python -m tests.versions SUITE...` keeps what the suites of
`scripts/run-tests` said when they last passed. Slurm, Kubernetes and torch are the real ones. Tests that were
left out need something that is not there, such as a container runtime, and say so.

[Accuracy](../accuracy.md) says with which versions of torch the programs of the corpus were measured.
What we expect of other versions is under [support](../support.md).

| suite | what it tests | passed | left out | Python | torch | Slurm | Kubernetes | when |
|---|---|---|---|---|---|---|---|---|
"""


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Once the results are begun, and only in the process that writes them."""
    results = config.stash.get(xml_key, None)
    if results is not None:
        for name, version in _versions().items():
            results.add_global_property(name, version)


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    with contextlib.suppress(metadata.PackageNotFoundError):
        found["torch"] = metadata.version("torch")
    slurmctld = shutil.which("slurmctld", path="/usr/sbin:/sbin")
    if slurmctld:
        said = subprocess.run([slurmctld, "-V"], capture_output=True, text=True, check=True).stdout
        found["slurm"] = said.split()[-1]
    if not {"KUBECONFIG", "DDPLAUNCH_KIND_NODE"} & os.environ.keys():  # otherwise it may be any
        with contextlib.suppress(FileNotFoundError):
            found["kubernetes"] = _built_kubernetes()
    return found


def _built_kubernetes() -> str:
    """That of the nodes which are made here, as tests/cluster/kubernetes/images.py chooses it."""
    release = os.environ.get("DDPLAUNCH_TEST_KUBERNETES")
    modules = NODES / (f"kube-{release}" if release else "kube") / "go.mod"
    _, _, version = modules.read_text(encoding="utf-8").partition("k8s.io/kubernetes v")
    return version.split()[0]


def result(file: Path) -> dict[str, Any]:
    """What the results in `file` say. Raises ValueError when a test has failed, or none has run."""
    suite = next(ElementTree.parse(file).iter("testsuite"))
    count = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    if count["failures"] or count["errors"] or not count["tests"]:
        failed = count["failures"] + count["errors"]
        raise ValueError(f"{file}: {failed} of {count['tests']} tests have failed")
    found = {each.get("name", ""): each.get("value", "") for each in suite.iter("property")}
    versions: dict[str, str] = {
        name: found[name] for name in ("python", "torch", "slurm", "kubernetes") if name in found
    }
    if "python" not in versions:
        raise ValueError(f"{file}: it was not written with `-p tests.versions`")
    day = datetime.fromisoformat(suite.get("timestamp", "")).date().isoformat()
    return {"passed": count["tests"] - count["skipped"], "skipped": count["skipped"], **versions, "day": day}


def page(suites: dict[str, dict[str, Any]]) -> str:
    """docs/reference/suites.md."""
    return PAGE + "".join(f"{_row(name, suites[name])}\n" for name in sorted(suites, key=_order))


def _order(name: str) -> tuple[int, str]:
    return list(WHAT).index(name.partition("-")[0]), name


def _row(name: str, found: dict[str, Any]) -> str:
    kind = name.partition("-")[0]
    # Only what the suite really uses.
    torch = found.get("torch", "-") if kind not in ("quick", "agent39", "processes39") else "-"
    slurm, kubernetes = (found[each] if each == kind else "-" for each in ("slurm", "kubernetes"))
    counts = f"{found['passed']} | {found['skipped'] or '-'}"
    versions = f"{found['python']} | {torch} | {slurm} | {kubernetes}"
    return f"| {name} | {WHAT[kind]} | {counts} | {versions} | {found['day']} |"


def load() -> dict[str, dict[str, Any]]:
    """What is kept, by suite."""
    kept: dict[str, dict[str, Any]] = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    return kept


def main(suites: list[str]) -> int:
    """Take over the results of these suites."""
    kept = load()
    for name in suites:
        if name.partition("-")[0] not in WHAT:
            raise ValueError(f"{name}: it has no line in WHAT")
        kept[name] = result(ROOT / f"build/times/{name}.xml")
    KEPT.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
