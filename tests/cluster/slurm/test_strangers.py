"""Jobs on nodes where another user waits for their files: nothing is read, replaced or run by that user.

/tmp has no sticky bit here. With it most kernels (fs.protected_regular, fs.protected_symlinks) refuse to open
what another user has put there; the attacks must fail without that help, too.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.busy import BUSY
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.jobs import Job

USER = "daemon"
PROGRAM = """
import os
umask = os.umask(0)
print(f"umask {umask:03o} of {os.getuid()}", flush=True)
"""
ATTACK = '''
"""Makes whatever can be guessed of the coming jobs; then reads and replaces what they write."""
import glob, io, os, sys, tarfile, time

kinds, first, seen = sys.argv[1], int(sys.argv[2]), sys.argv[3]
os.umask(0)
evil = io.BytesIO()
with tarfile.open(fileobj=evil, mode="w") as tar:
    code = b"import os; open(f'/tmp/ran-as-{os.getuid()}', 'w')"
    member = tarfile.TarInfo("agent.pyz")
    member.size = len(code)
    tar.addfile(member, io.BytesIO(code))
for number in range(first, first + 3):
    path = f"/tmp/ddplaunch-{number}"
    if "file" in kinds:
        open(f"{path}.tar", "w").close()
    if "link" in kinds:
        os.symlink("/tmp/precious", f"{path}.tar")
    if "folder" in kinds:
        os.mkdir(path)
print("up", flush=True)
while True:
    if "seen" in kinds: # on another node
        for name in os.listdir(seen):
            open(f"/tmp/{name}.node.tar", "a").close()
    for path in glob.glob("/tmp/ddplaunch-[0-9]*-*[!r]"):
        open(f"{seen}/{os.path.basename(path)}", "a").close()
    for path in glob.glob("/tmp/ddplaunch-[0-9]*") + glob.glob("/tmp/ddplaunch-[0-9]*/*"):
        try:
            with open(path, "rb") as file:
                content = file.read()
            if content and content != evil.getvalue():
                print("read", path, flush=True)
                with open(path, "r+b") as file:
                    file.write(evil.getvalue())
                    file.truncate()
        except OSError:
            pass
    time.sleep(0.001)
'''


class Stranger:
    """Another user's processes, on nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._processes: list[subprocess.Popen[str]] = []

    @property
    def next_job(self) -> int:
        """The number that the next one will have."""
        shown = self._cluster.login(["scontrol", "show", "config"]).stdout
        (number,) = (line.split()[-1] for line in shown.splitlines() if line.startswith("NEXT_JOB_ID"))
        return int(number)

    def waits(self, kinds: dict[str, str]) -> None:
        """From now on, on these nodes, with these kinds of things in the place of the next jobs' files."""
        script = self._cluster.shared / "attack.py"
        script.write_text(ATTACK)
        seen = self._cluster.shared / "seen"
        seen.mkdir()
        seen.chmod(0o777)
        for node, kind in kinds.items():
            self._cluster.run(node, ["sh", "-c", "chmod 0777 /tmp; umask 077; echo mine >/tmp/precious"])
            python: list[str | Path] = ["runuser", f"--user={USER}", "--", "/usr/bin/python3"]
            started = self._cluster.start(node, [*python, script, kind, str(self.next_job), seen])
            self._processes.append(started)
            assert started.stdout is not None
            assert "up\n" == started.stdout.readline()

    def ends(self) -> list[str]:
        """What was read."""
        for node in self._cluster.nodes:
            self._cluster.run(node, ["pkill", "-KILL", "--uid", USER], check=False)
        said = "".join(process.communicate(timeout=BUSY * 10)[0] for process in self._processes)
        self._processes.clear()
        return [line for line in said.splitlines() if line.startswith("read ")]


@pytest.fixture(name="stranger")
def _stranger(cluster: Cluster) -> Iterator[Stranger]:
    stranger = Stranger(cluster)
    yield stranger
    stranger.ends()
    clean = "rm -rf /tmp/ddplaunch-[0-9]* /tmp/ran-as-* /tmp/precious; chmod 1777 /tmp"
    for node in cluster.nodes:
        cluster.run(node, ["sh", "-c", clean])


def unharmed(cluster: Cluster, read: list[str]) -> None:
    """Nothing has come of it."""
    for node in cluster.nodes:
        assert [] == [path for path in cluster.leftovers(node) if "ran-as" in path]
        precious = cluster.path(node, "/tmp/precious")
        assert not precious.exists() or b"mine\n" == precious.read_bytes()
    assert [] == read


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param({"n1": "file"}, marks=pytest.mark.whole),
        pytest.param({"n1": "link folder"}, marks=pytest.mark.whole),
        {"n1": "link folder", "n2": "file folder"},
    ],
)
def test_a_stranger_who_was_there_before(
    cluster: Cluster, work: Path, stranger: Stranger, kinds: dict[str, str]
) -> None:
    """The job runs as if there were none, with its user's own umask, and leaves nothing."""
    stranger.waits(kinds)
    job = Job.submit(cluster, work, PROGRAM, nodes=len(kinds))
    state = job.ended()

    unharmed(cluster, stranger.ends())
    assert "COMPLETED" == state, job.output
    assert len(kinds) == job.output.count("] umask 022 of 0"), job.output
    assert 0o700 == job.folder.stat().st_mode & 0o777
    assert [] == [path for node in kinds for path in cluster.leftovers(node) if f"{job.number}-" in path]


@pytest.mark.whole
def test_the_prologue_beside_a_stranger(cluster: Cluster, opt: Path, work: Path, stranger: Stranger) -> None:
    """What is seen of it on one node does not help on the next."""
    stranger.waits({"n1": "file folder", "n2": "seen"})
    number = cluster.submit(f"#!/bin/bash\nsource {opt}/prologue.sh\necho after\n", "--nodes=2", cwd=work)
    state = cluster.ended(number)

    unharmed(cluster, stranger.ends())
    assert "COMPLETED" == state, (work / f"slurm-{number}.out").read_text()


@pytest.mark.parametrize(
    "trap", ["mkdir {}", pytest.param("mkdir {}.d && ln -s {}.d {}", marks=pytest.mark.whole)]
)
def test_a_stranger_in_the_folder_of_submission(
    cluster: Cluster, work: Path, stranger: Stranger, trap: str
) -> None:
    """What stands in the place of the job's own folder is not used."""
    work.chmod(0o1777)
    for number in range(stranger.next_job, stranger.next_job + 3):
        place = work / f"job-{number}"
        cluster.login(["runuser", f"--user={USER}", "--", "sh", "-c", trap.replace("{}", str(place))])
    job = Job.submit(cluster, work, PROGRAM, nodes=1)

    assert ("FAILED", "30:0") == (job.ended(), job.exit_code), job.output
    assert "is another user's: submit from a folder that nobody else can write to" in job.output
    assert [] == [path for path in work.rglob("*") if path.parent != work]
