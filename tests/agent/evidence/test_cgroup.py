"""Memory and CPU groups, from /proc and /sys as containers, batch steps and plain machines show them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddplaunch.agent.evidence import cgroup

GIB = 1 << 30


class Root:
    """A tree that stands in for the root of the file system."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, path: str, text: str) -> None:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def __str__(self) -> str:
        return str(self.folder)


@pytest.fixture(name="root")
def _root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def version_2(root: Root, path: str, mounted: str = "/") -> None:
    """A process in `path` of a tree whose folder `mounted` is what can be seen."""
    root.write("proc/self/cgroup", f"0::{path}\n")
    root.write("proc/self/mountinfo", f"30 20 0:26 {mounted} /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")


def test_the_tightest_limit_of_memory_on_the_way_up_counts_with_its_use(root: Root) -> None:
    version_2(root, "/slurm/job_7/step_0")
    for path, limit, used in [
        ("slurm", "max", 5),
        ("slurm/job_7", f"{4 * GIB}", 3 * GIB),
        ("slurm/job_7/step_0", "max", 1),
    ]:
        root.write(f"sys/fs/cgroup/{path}/memory.max", f"{limit}\n")
        root.write(f"sys/fs/cgroup/{path}/memory.current", f"{used}\n")
    root.write("sys/fs/cgroup/slurm/job_7/memory.events", "low 0\noom 2\noom_kill 1\n")

    assert cgroup.memory(str(root)) == cgroup.Memory(4 * GIB, 3 * GIB, 1)


def test_every_limit_of_processes_on_the_way_up_counts(root: Root) -> None:
    version_2(root, "/kubepods/pod_7/ranks")
    for path, limit, used in [
        ("kubepods", "max", 90),
        ("kubepods/pod_7", 100, 80),
        ("kubepods/pod_7/ranks", 50, 20),
    ]:
        root.write(f"sys/fs/cgroup/{path}/pids.max", f"{limit}\n")
        root.write(f"sys/fs/cgroup/{path}/pids.current", f"{used}\n")

    assert [(50, 20), (100, 80)] == cgroup.tasks(str(root))


def test_a_container_with_a_namespace_of_its_own_sees_its_group_as_the_root(root: Root) -> None:
    version_2(root, "/")
    root.write("sys/fs/cgroup/memory.max", f"{GIB}\n")
    root.write("sys/fs/cgroup/memory.current", "4096\n")
    root.write("sys/fs/cgroup/memory.events", "oom_kill 3\n")

    assert cgroup.memory(str(root)) == cgroup.Memory(GIB, 4096, 3)


def test_in_a_container_without_namespace_the_mount_is_the_group(root: Root) -> None:
    version_2(root, "/kubepods/pod1/abc", mounted="/kubepods/pod1/abc")
    root.write("sys/fs/cgroup/memory.max", f"{2 * GIB}\n")
    root.write("sys/fs/cgroup/memory.current", "1\n")

    assert cgroup.memory(str(root)) == cgroup.Memory(2 * GIB, 1, 0)


def test_the_tightest_quota_of_another_process_counts(root: Root) -> None:
    root.write("proc/812/cgroup", "0::/pod/trainer\n")
    root.write("proc/812/mountinfo", "")
    root.write("proc/self/mountinfo", "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    for path, quota, throttled in [("pod", "150000 100000", 40), ("pod/trainer", "400000 100000", 0)]:
        root.write(f"sys/fs/cgroup/{path}/cpu.max", f"{quota}\n")
        root.write(f"sys/fs/cgroup/{path}/cpu.stat", f"nr_periods 50\nnr_throttled {throttled}\n")

    assert cgroup.cpu(str(root), "812") == cgroup.Cpu(50, 40, 1.5)


@pytest.mark.parametrize(
    ("path", "mounted"), [("/../trainer", "/../trainer"), ("/pod/trainer", "/pod/trainer")]
)
def test_limits_of_a_process_in_another_container_are_its_own(root: Root, path: str, mounted: str) -> None:
    """Our own limits say nothing of it: they are read where it sees them, with or without namespaces."""
    version_2(
        root, "/" if path.startswith("/..") else "/pod/ours", "/" if path.startswith("/..") else "/pod/ours"
    )
    root.write("sys/fs/cgroup/memory.max", f"{GIB}\n")
    root.write("proc/812/cgroup", f"0::{path}\n")
    root.write("proc/812/mountinfo", f"40 39 0:26 {mounted} /sys/fs/cgroup ro - cgroup2 cgroup rw\n")
    root.write("proc/812/root/sys/fs/cgroup/memory.max", f"{2 * GIB}\n")
    root.write("proc/812/root/sys/fs/cgroup/memory.current", "7\n")

    assert cgroup.memory(str(root), "812") == cgroup.Memory(2 * GIB, 7, 0)


def test_ours_is_not_taken_for_a_group_that_may_not_be_looked_into(root: Root) -> None:
    version_2(root, "/")
    root.write("sys/fs/cgroup/memory.max", f"{GIB}\n")
    root.write("proc/812/cgroup", "0::/../trainer\n")

    assert cgroup.memory(str(root), "812") == cgroup.Memory(None, None, 0)


def test_limits_use_and_kills_are_read_of_version_1(root: Root) -> None:
    root.write("proc/self/cgroup", "9:name=systemd:/\n4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n")
    root.write(
        "proc/self/mountinfo",
        "31 25 0:27 / /sys/fs/cgroup/memory rw,nosuid shared:12 - cgroup cgroup rw,memory\n"
        "32 25 0:28 / /sys/fs/cgroup/cpu rw shared:13 - cgroup cgroup rw,cpu,cpuacct\n",
    )
    root.write("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", f"{GIB}\n")
    root.write("sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "77\n")
    root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    root.write(
        "sys/fs/cgroup/memory/docker/abc/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"
    )
    root.write("sys/fs/cgroup/cpu/docker/abc/cpu.stat", "nr_periods 50\nnr_throttled 40\nthrottled_time 9\n")

    assert cgroup.memory(str(root)) == cgroup.Memory(GIB, 77, 2)
    assert cgroup.cpu(str(root)) == cgroup.Cpu(50, 40)


def test_a_plain_machine_has_no_limit(root: Root) -> None:
    version_2(root, "/user.slice")
    root.write("sys/fs/cgroup/user.slice/memory.max", "max\n")

    assert cgroup.memory(str(root)) == cgroup.Memory(None, None, 0)
    assert cgroup.cpu(str(root)) is None


def test_without_proc_and_sys_nothing_is_known_and_nothing_fails(root: Root) -> None:
    assert cgroup.memory(str(root)) == cgroup.Memory(None, None, 0)
