"""Two pods of anybody's Indexed Job do the same when their command is behind `run --join`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.cluster.kubernetes import documented
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.jobs import Documents, with_torch
from tests.transparent import nodes
from tests.transparent.compare import BIN, OURS, PROGRAMS, Outcome
from tests.transparent.table import Row

from ddplaunch.render.archive import agent_archive

HEAD = (
    "mkdir -p /tmp/here && cp /opt/train/*.py /tmp/here && cd /tmp/here && ls -A > /tmp/given;"
    f" export NODE=$JOB_COMPLETION_INDEX FIRST=train-0.train PATH={BIN}:$PATH; "
)
"""Below the command: the folder in which it runs, as the other nodes' tests have it."""
SHOWS = 'find . -type f ! -path "*__pycache__*" | sort | grep -vxFf /tmp/given | sed "s/^/left: /"'
ROWS = [
    pytest.param(row, id=row.name, marks=[pytest.mark.whole] if row.whole else []) for row in nodes.OF_PODS
]

pytestmark = pytest.mark.timeout(900)


class Pods:
    """The Job of the documentation, with our image and torch, on two machines."""

    def __init__(self, cluster: Cluster, namespace: str, work: Path) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._torch = with_torch(cluster)
        (work / "agent.pyz").write_bytes(agent_archive())
        files = [f"--from-file={path}" for path in (work / "agent.pyz", *sorted(PROGRAMS.glob("*.py")))]
        self._kubectl("create", "configmap", "train", *files)
        self._kubectl(
            "create", "secret", "generic", "train", "--from-literal=key=a secret of 32 characters and more"
        )

    def run(self, row: Row, *, under: bool) -> Outcome:
        """Both pods to their end, which are removed then."""
        documents = self._documents(row, under=under)
        self._cluster.apply(*documents, namespace=self._namespace)
        self._cluster.until(
            lambda: len(codes := self._exit_codes()) == nodes_of(documents) and None not in codes.values(),
            "both pods end",
            300,
            lambda: self._cluster.describe(self._namespace),
        )
        codes = self._exit_codes()
        found = Outcome(codes=[codes[name] or 0 for name in sorted(codes)])
        for name in sorted(codes):
            for line in self._kubectl("logs", name).encode().splitlines(keepends=True):
                if under and OURS.match(line):
                    found.ours += line
                else:
                    found.stdout += line
        self._kubectl("delete", "job,service", "train", "--cascade=foreground", "--timeout=120s")
        return found

    def _kubectl(self, *words: str) -> str:
        return self._cluster.kubectl(*words, "--namespace", self._namespace)

    def _exit_codes(self) -> dict[str, int | None]:
        return documented.exit_codes(self._cluster, self._namespace)

    def _documents(self, row: Row, *, under: bool) -> Documents:
        documents = documented.documents()
        (container,) = documented.fitted(documents, self._torch)["containers"]
        words = container["command"]
        ours = words[: words.index("--") + 1] if under else []
        container["command"] = [*ours, "sh", "-c", f"{HEAD}({row.command}); code=$?; {SHOWS}; exit $code"]
        return documents


def nodes_of(documents: Documents) -> int:
    """How many pods the Job has."""
    return next(int(each["spec"]["completions"]) for each in documents if each["kind"] == "Job")


@pytest.mark.whole
@pytest.mark.parametrize("row", ROWS)
def test_pods_do_the_same_under_ddplaunch(cluster: Cluster, namespace: str, tmp_path: Path, row: Row) -> None:
    """Exit code of each, all that they print, the files that they leave."""
    # Both streams are one in a pod's log, in an order of chance, and torch's errors name addresses.
    chance = (*row.volatile, r"\[rank\d\]: ", r"\[[\d.]+\]:\d+")
    row = dataclasses.replace(row, exact=False, compares=("stdout",), volatile=chance)
    pods = Pods(cluster, namespace, tmp_path)
    differs = nodes.report(row, pods.run(row, under=False), pods.run(row, under=True))
    if differs:
        pytest.fail(differs, pytrace=False)
