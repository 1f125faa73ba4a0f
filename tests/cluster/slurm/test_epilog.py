"""Slurm's epilog on real nodes: what a job left is taken away, and nothing of anybody else.

Processes are not tracked by control groups here, so that a process can leave its job.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.slurm.cluster import Cluster, missing
from tests.cluster.slurm.machines import ROOT

USER = "daemon"
LEAVE = """#!/bin/bash
touch /dev/shm/nccl-{name} /dev/shm/torch_1_{name}
mkdir -p /tmp/ddplaunch-$SLURM_JOB_ID/run /tmp/ddplaunch-$SLURM_JOB_ID-1 /tmp/torchelastic_{name}/x
touch /tmp/ddplaunch-$SLURM_JOB_ID.tar /dev/shm/results-{name}
setsid --fork sleep 3{name} >/dev/null 2>&1
until [ -e {end} ]; do sleep 0.1; done
"""


@pytest.fixture(name="loose", scope="module")
def _loose(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One node with our epilog, from which jobs can escape."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    cluster = Cluster.up(nodes=1, cgroup=False)
    opt = cluster.folder / "opt"
    subprocess.run([ROOT / "slurm/install", opt], env={**cluster.env, "PYTHON": sys.executable}, check=True)
    yield cluster
    cluster.down()


@pytest.fixture(name="node")
def _node(loose: Cluster) -> Iterator[str]:
    loose.configure(f"Epilog={loose.folder}/opt/epilog.d/ddplaunch")
    yield "n1"
    print(loose.logs())
    loose.power_off("n1")
    loose.power_on("n1")
    loose.restore()


def leave(cluster: Cluster, name: str, user: str = USER) -> tuple[int, Path]:
    """A job that has left things on the node, and the file by whose creation it ends."""
    end = cluster.shared / f"end-{name}"
    end.unlink(missing_ok=True)
    job = cluster.submit(LEAVE.format(name=name, end=end), user=user)
    cluster.until(lambda: f"sleep 3{name}" in cluster.processes("n1").values(), "it left a process", 20)
    return job, end


def finish(cluster: Cluster, job: int, end: Path) -> None:
    """Let it end, and its epilog with it."""
    end.touch()
    assert "COMPLETED" == cluster.ended(job)


def sleepers(cluster: Cluster) -> list[str]:
    """Which jobs' processes are left, by their sleep."""
    return sorted(words for words in cluster.processes("n1").values() if words.startswith("sleep 3"))


def of_job(name: str, job: int) -> list[str]:
    """What is seen of `leave`."""
    here = [f"/dev/shm/nccl-{name}", f"/dev/shm/results-{name}", f"/dev/shm/torch_1_{name}"]
    there = [f"/tmp/ddplaunch-{job}-1", f"/tmp/ddplaunch-{job}.tar", f"/tmp/ddplaunch-{job}/run"]
    return sorted([*here, *there, f"/tmp/torchelastic_{name}/x"])


@pytest.mark.whole
def test_without_the_epilog_everything_stays(loose: Cluster, node: str) -> None:
    """What the other tests see go is really left by the job."""
    loose.configure()
    job, end = leave(loose, "1")

    finish(loose, job, end)

    assert (of_job("1", job), ["sleep 31"]) == (loose.leftovers(node), sleepers(loose))


def test_what_a_job_left_is_taken_away(loose: Cluster, node: str) -> None:
    """Its process, its folders, what NCCL and torch made; files of other names are the user's own affair."""
    job, end = leave(loose, "1")
    assert of_job("1", job) == loose.leftovers(node)

    finish(loose, job, end)

    assert (["/dev/shm/results-1"], []) == (loose.leftovers(node), sleepers(loose))


def test_a_running_job_of_the_same_user_keeps_what_is_its_own(loose: Cluster, node: str) -> None:
    """Of two jobs of one user, the one that ends takes nothing of the other along."""
    old, old_end = leave(loose, "1")
    # Files of the job that ends are older than the other job: only then it is certain whose they are.
    loose.run(node, ["sleep", "2"])
    young, young_end = leave(loose, "2")

    finish(loose, old, old_end)
    after = loose.leftovers(node), sleepers(loose)
    finish(loose, young, young_end)

    assert (sorted(["/dev/shm/results-1", *of_job("2", young)]), ["sleep 32"]) == after
    assert (["/dev/shm/results-1", "/dev/shm/results-2"], []) == (loose.leftovers(node), sleepers(loose))


@pytest.mark.whole
def test_what_may_be_a_running_jobs_stays_until_that_ends(loose: Cluster, node: str) -> None:
    """A file that is younger than the other job of its user is left alone, whoever made it."""
    old, old_end = leave(loose, "1")
    loose.run(node, ["sleep", "2"])
    young, young_end = leave(loose, "2")

    finish(loose, young, young_end)
    after = loose.leftovers(node)
    finish(loose, old, old_end)

    kept = ["/dev/shm/nccl-2", "/dev/shm/results-2", "/dev/shm/torch_1_2", "/tmp/torchelastic_2/x"]
    assert sorted([*of_job("1", old), *kept]) == after
    assert ["/dev/shm/results-1", "/dev/shm/results-2"] == loose.leftovers(node)


def test_nothing_of_another_user_is_touched(loose: Cluster, node: str) -> None:
    """Not his processes and files, nor the folder of a job whose number only begins alike."""
    job, end = leave(loose, "1")
    others = [
        "/dev/shm/nccl-root",
        "/dev/shm/torch_root",
        f"/tmp/ddplaunch-{job}-2",
        f"/tmp/ddplaunch-{job}0",
    ]
    loose.run(node, ["touch", *others])
    loose.run(node, ["chown", USER, others[-1]])
    loose.run(node, ["sh", "-c", "SLURM_JOB_ID=1 setsid --fork sleep 39 >/dev/null 2>&1"])

    finish(loose, job, end)

    assert (sorted([*others, "/dev/shm/results-1"]), ["sleep 39"]) == (loose.leftovers(node), sleepers(loose))


def test_a_link_leads_nowhere(loose: Cluster, node: str) -> None:
    """A job that leaves a link in place of its folder has the link removed, not what it points to."""
    loose.run(node, ["sh", "-c", "mkdir /tmp/precious; touch /tmp/precious/file; chmod 777 /tmp/precious"])
    script = (
        "#!/bin/bash\nln -s /tmp/precious /tmp/ddplaunch-$SLURM_JOB_ID\nln -s /tmp/precious /dev/shm/nccl-1\n"
    )

    assert "COMPLETED" == loose.ended(loose.submit(script, user=USER))

    assert ["/tmp/precious/file"] == loose.leftovers(node)


def test_a_process_that_calls_itself_slurms_is_no_such(loose: Cluster, node: str) -> None:
    """Its title does not save it from the epilog."""
    escape = "exec -a 'slurmstepd: [1.batch]' sleep 600"
    script = f"""#!/bin/bash
setsid --fork bash -c "{escape}" >/dev/null 2>&1
until pgrep -x sleep >/dev/null; do :; done
"""

    assert "COMPLETED" == loose.ended(loose.submit(script, user=USER))
    loose.idle()

    assert [] == [words for words in loose.processes(node).values() if "600" in words]


@pytest.mark.whole
def test_a_job_that_fills_the_disk_drains_no_node(loose: Cluster, node: str) -> None:
    """What its user left goes, if it is too much for the next job and the user has no other job there."""
    ours = f"{loose.folder}/opt"
    loose.configure(f"Epilog={ours}/epilog.d/ddplaunch", f"Prolog={ours}/prolog.d/ddplaunch")
    loose.run(node, ["sh", "-c", "echo kept >/tmp/kept"])
    other, end = leave(loose, "1")
    deep = "mkdir -p /tmp/.hidden/folder && echo x >/tmp/.hidden/folder/file && chmod 0 /tmp/.hidden"
    fill = f"#!/bin/bash\n{deep}\ncat /dev/zero >/tmp/filled 2>/dev/null\ntrue\n"

    assert "COMPLETED" == loose.ended(loose.submit(fill, user=USER))
    assert "/tmp/filled" in loose.leftovers(node)
    finish(loose, other, end)
    loose.idle()
    assert ["/dev/shm/results-1", "/tmp/kept"] == loose.leftovers(node)
    assert "COMPLETED" == loose.ended(loose.submit("#!/bin/bash\ntrue\n", user="nobody"), 20)


@pytest.mark.whole
def test_a_job_of_root_is_cleaned_up_too(loose: Cluster, node: str) -> None:
    """Its process and its folders go; Slurm's daemon and the epilog are root's as well, and live."""
    job, end = leave(loose, "1", user="root")

    finish(loose, job, end)
    loose.idle()

    assert [] == sleepers(loose)
    assert [] == [path for path in loose.leftovers(node) if "ddplaunch" in path]


@pytest.mark.whole
def test_a_process_that_cannot_be_killed_drains_the_node(loose: Cluster, node: str) -> None:
    """What SIGKILL does not end may hold memory or a GPU: no further job shall meet it."""
    freezer = Path("/sys/fs/cgroup/freezer") / loose.folder.name
    freezer.mkdir()
    try:
        job, end = leave(loose, "1")
        pid = next(pid for pid, words in loose.processes(node).items() if words == "sleep 31")
        (freezer / "cgroup.procs").write_text(str(pid))
        (freezer / "freezer.state").write_text("FROZEN")
        end.touch()
        loose.until(
            lambda: "drain" in loose.login(["sinfo", "--noheader", "--format=%T"]).stdout, "drained", 30
        )
        said = (loose.folder / "log/n1.log").read_text()
    finally:
        (freezer / "freezer.state").write_text("THAWED")
        loose.until(lambda: not (freezer / "cgroup.procs").read_text(), "it is gone", 20)
        freezer.rmdir()

    assert f"of job {job} does not end, not even by SIGKILL" in said
