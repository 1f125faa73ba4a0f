"""From the plan to the command line, its environment and its folder."""

from __future__ import annotations

import io
import os
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from ddplaunch.agent.contract import Env, JobPlan, RendezvousSettings
from ddplaunch.agent.supervisor import launch
from ddplaunch.agent.supervisor.launch import LaunchContext, LaunchError, start
from ddplaunch.agent.supervisor.rank_tracker import RankTracker
from ddplaunch.agent.system import processes
from ddplaunch.agent.system.secrets import MissingSecretError

PLAN = JobPlan(
    "digits",
    2,
    4,
    ["{python}", "-m", "torch.distributed.run", "--node-rank={node}", "--is-host={is_host}"],
    ["train.py", "{node}"],
    python="/opt/python",
)
AGREED = RendezvousSettings("10.0.0.5", 29511, {"MASTER_ADDR": "10.0.0.5", "GLOO_SOCKET_IFNAME": "eth0"})


@pytest.fixture(name="place")
def _place(tmp_path: Path) -> LaunchContext:
    return LaunchContext(str(tmp_path), 1)


def environment(
    plan: JobPlan, place: LaunchContext, own: dict[str, str], agreed: RendezvousSettings | None = None
) -> dict[str, str]:
    """Of node 1, for an agent whose own environment is `own`."""
    return launch.launch_environment(plan, 1, 0, agreed, place, own)


def test_placeholders_are_replaced_in_the_launch_part_alone() -> None:
    words = launch.launch_command(PLAN, 1, 0, None)
    torchrun = ["/opt/python", "-m", "torch.distributed.run", "--node-rank=1", "--is-host=0"]
    assert [*torchrun, "train.py", "{node}"] == words


def test_the_resume_arguments_come_from_the_second_attempt_on() -> None:
    plan = replace(PLAN, launch=["torchrun"], resume_args=["--resume", "{node}"])
    first, second = (launch.launch_command(plan, 1, attempt, None) for attempt in (0, 1))

    assert (["torchrun", "train.py", "{node}"], ["--resume", "{node}"]) == (first, second[len(first) :])


def test_the_folder_of_the_job_file_is_the_one_to_resume_from(place: LaunchContext) -> None:
    """Without one, the folder that the job's own environment names."""
    own = {Env.RESUME_DIR: "/jobs/7/resume"}

    assert "/jobs/7/resume" == environment(PLAN, place, own)[Env.RESUME_DIR]
    assert "/checkpoints" == environment(replace(PLAN, resume_dir="/checkpoints"), place, own)[Env.RESUME_DIR]


def test_torchrun_gets_the_number_of_nodes_that_start() -> None:
    plan = replace(PLAN, launch=["--nnodes={nnodes}"])

    assert "--nnodes=2" == launch.launch_command(plan, 1, 0, AGREED)[0]
    assert "--nnodes=1" == launch.launch_command(plan, 1, 0, replace(AGREED, nodes=1))[0]


def test_what_the_gate_agreed_goes_before_the_plan() -> None:
    plan = replace(
        PLAN, launch=["{master_addr}:{master_port}", "{run_id}"], master_addr="n0", master_port=29400
    )

    assert launch.launch_command(plan, 0, 2, AGREED)[:2] == ["10.0.0.5:29511", "digits-2"]
    assert launch.launch_command(plan, 0, 2, None)[:2] == ["n0:29400", "digits-2"]


def test_the_key_never_reaches_the_trainer(place: LaunchContext) -> None:
    env = environment(PLAN, place, {Env.KEY: "secret", "PATH": "/bin"})

    assert Env.KEY not in env
    assert "secret" not in str(env)
    assert env["PATH"] == "/bin"


def test_later_words_go_before_earlier_ones(place: LaunchContext) -> None:
    plan = replace(PLAN, env={"A": "plan", "MASTER_ADDR": "plan"}, secrets={"TOKEN": {"env": "MY_TOKEN"}})
    own = {"A": "own", "TOKEN": "own", "MY_TOKEN": "hidden", "MASTER_ADDR": "own"}
    env = environment(plan, place, own, AGREED)

    assert (env["A"], env["TOKEN"], env["MASTER_ADDR"]) == ("plan", "hidden", "10.0.0.5")
    assert (env[Env.JOB], env[Env.NODE], env[Env.ATTEMPT]) == ("digits", "1", "0")


def test_a_users_own_command_keeps_his_own_environment(place: LaunchContext) -> None:
    """For `ddplaunch run -- …` the gate only fills gaps."""
    plan = replace(PLAN, nproc_per_node=None, launch=[], command=["torchrun", "train.py"])
    env = environment(plan, place, {"MASTER_ADDR": "mine"}, AGREED)

    assert (env["MASTER_ADDR"], env["GLOO_SOCKET_IFNAME"]) == ("mine", "eth0")
    # torchrun sets it for several ranks; a program that is alone has all cores.
    assert "OMP_NUM_THREADS" not in env


def test_defaults_yield_to_whoever_set_them(place: LaunchContext) -> None:
    env = environment(PLAN, place, {"OMP_NUM_THREADS": "8", "PET_REDIRECTS": "1"})

    assert (env["OMP_NUM_THREADS"], env["PET_REDIRECTS"]) == ("8", "1")
    seen = "1", "2000", place.ranks
    assert (env["PYTHONUNBUFFERED"], env["TORCH_FR_BUFFER_SIZE"], env["PET_LOG_DIR"]) == seen
    assert "OMP_NUM_THREADS" not in environment(replace(PLAN, nproc_per_node=1), place, {})


def test_nccl_listens_on_a_port_of_the_job_and_node(place: LaunchContext) -> None:
    """On the usual port ranks of two jobs would answer for each other."""
    names = {
        launch.launch_environment(replace(PLAN, job=job), node, 0, None, place, {})["NCCL_RAS_ADDR"]
        for job in ("first", "second")
        for node in (0, 1)
    }

    assert 4 == len(names)
    assert all(name.startswith("127.0.0.1:") for name in names)
    assert names.isdisjoint({"127.0.0.1:28028"})


def test_where_nccl_listens_is_the_users_choice(place: LaunchContext, tmp_path: Path) -> None:
    assert environment(PLAN, place, {"NCCL_RAS_ADDR": "mine:1"})["NCCL_RAS_ADDR"] == "mine:1"

    (tmp_path / "nccl.conf").write_text("NCCL_RAS_ADDR=theirs:2\n")
    given = {"NCCL_CONF_FILE": str(tmp_path / "nccl.conf")}
    assert "NCCL_RAS_ADDR" not in environment(PLAN, place, given)
    assert "NCCL_RAS_ADDR" not in environment(PLAN, place, {"NCCL_RAS_ENABLE": "0"})


def test_a_schedulers_rank_does_not_make_torchrun_a_worker(place: LaunchContext) -> None:
    """RANK in the pod's environment is the pod's; a plain program's own RANK is kept."""
    own = {"RANK": "3", "LOCAL_RANK": "0"}
    plain = replace(PLAN, launch=[], command=["python", "train.py"])

    assert "RANK" not in environment(PLAN, place, own)
    assert environment(plain, place, own)["RANK"] == "3"


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ({"env": "NOT_SET"}, "the secret TOKEN is not there: the variable NOT_SET is not set on this node"),
        (
            {"file": "/absent/token"},
            "the secret TOKEN is not there: /absent/token: No such file or directory",
        ),
    ],
)
def test_a_missing_secret_is_named(place: LaunchContext, reference: dict[str, str], expected: str) -> None:
    with pytest.raises(MissingSecretError) as caught:
        environment(replace(PLAN, secrets={"TOKEN": reference}), place, {})

    assert str(caught.value) == expected
    assert "TOKEN" in caught.value.hint


def test_a_secret_in_a_file_ends_before_its_newline(place: LaunchContext, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hidden\n")
    plan = replace(PLAN, secrets={"TOKEN": {"file": str(tmp_path / "token")}})

    assert environment(plan, place, {})["TOKEN"] == "hidden"


def test_the_hook_is_found_before_the_users_modules(place: LaunchContext) -> None:
    env = launch.with_hook({"PYTHONPATH": "/mine:/other"}, place, "socket")

    assert env["PYTHONPATH"] == f"{place.hook}:/mine:/other"
    assert env[Env.HOOK] == "socket"
    assert launch.with_hook({}, place, "socket")["PYTHONPATH"] == place.hook


def archive(path: Path, *members: tarfile.TarInfo) -> str:
    """A tar of `members` at `path`."""
    with tarfile.open(path, "w") as tar:
        for member in members:
            member.size = 3 if member.isfile() else 0
            tar.addfile(member, io.BytesIO(b"abc") if member.isfile() else None)
    return str(path)


def test_the_source_is_unpacked_once(tmp_path: Path) -> None:
    script = tarfile.TarInfo("src/run.sh")
    script.mode = 0o755
    archive(tmp_path / "source.tar", tarfile.TarInfo("train.py"), script)
    place = LaunchContext(str(tmp_path), 0)
    place.prepare()
    (tmp_path / "work/train.py").write_text("changed")
    place.prepare()

    source = tmp_path / "work"
    assert (source / "train.py").read_text() == "changed"
    assert os.access(source / "src/run.sh", os.X_OK)
    assert not os.access(source / "train.py", os.X_OK)
    assert environment(PLAN, place, {})[Env.SOURCE] == str(source)


KEPT = replace(PLAN, outputs="/set/by/the/test")


def on_volume(tmp_path: Path, node: int, submission: str = "1f3a9c2d-aaaa") -> LaunchContext:
    """Of a node whose pod has a folder of its own, and a volume that all pods see."""
    plan = replace(KEPT, outputs=str(tmp_path / "runs"))
    folder = tmp_path / f"pod-{node}-{submission}"
    folder.mkdir(exist_ok=True)
    return LaunchContext(str(folder), node, None, launch.volume_folder(plan, {Env.SUBMISSION: submission}))


def test_ranks_stand_on_the_volume_in_a_folder_of_the_job(tmp_path: Path) -> None:
    for node in (0, 1, 0):
        place = on_volume(tmp_path, node)
        archive(Path(place.folder) / "source.tar", tarfile.TarInfo("train.py"))
        place.prepare()
        assert str(tmp_path / "runs/digits-1f3a9c2d/work") == place.workdir(KEPT)
        assert place.workdir(KEPT) == environment(PLAN, place, {})[Env.SOURCE]
        (Path(place.work) / f"by-{node}").write_text("x")
        (Path(place.work) / "train.py").write_text("changed")
    other = on_volume(tmp_path, 0, "2b-bbbb")
    other.prepare()

    assert ["node-0", "node-1", "work"] == sorted(os.listdir(tmp_path / "runs/digits-1f3a9c2d"))
    assert [".ddplaunch-source", "by-0", "by-1", "train.py"] == sorted(
        os.listdir(tmp_path / "runs/digits-1f3a9c2d/work")
    )
    assert "changed" == (tmp_path / "runs/digits-1f3a9c2d/work/train.py").read_text()
    assert [] == os.listdir(tmp_path / "runs/digits-2b-bbbb/work")
    assert Env.SOURCE not in environment(PLAN, other, {})


def test_a_volume_that_cannot_be_written_ends_the_start(tmp_path: Path) -> None:
    """With the folder, the reason and the user; a job without a name of its own never gets another's."""
    (tmp_path / "runs").write_text("no folder")
    with pytest.raises(
        LaunchError, match="runs/digits-1f3a9c2d, the folder for the files of the ranks"
    ) as error:
        on_volume(tmp_path, 0).prepare()
    assert f"user {os.geteuid()}" in error.value.hint

    assert ("", "") == (launch.volume_folder(KEPT, {}), launch.volume_folder(PLAN, {Env.SUBMISSION: "a"}))
    nameless = LaunchContext(str(tmp_path), 0)
    with pytest.raises(LaunchError, match="the job's folder in /set/by/the/test is not known"):
        start(KEPT, nameless, 0, 0, cast("RankTracker", None), "")


def link(name: str, target: str) -> tarfile.TarInfo:
    """A member that is a symbolic link."""
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    return member


@pytest.mark.parametrize(
    "members",
    [
        [tarfile.TarInfo("/etc/evil")],
        [tarfile.TarInfo("a/../../evil")],
        [link("a", ".."), tarfile.TarInfo("a/evil")],
        [link("a", ".."), link("a/b", "/etc")],
    ],
)
def test_an_archive_that_leaves_its_folder_is_refused(tmp_path: Path, members: list[tarfile.TarInfo]) -> None:
    path = archive(tmp_path / "source.tar", *members)

    with pytest.raises(LaunchError, match="is not a plain file below the source folder"):
        launch.unpack(path, str(tmp_path / "source"))
    assert not (tmp_path / "source").exists()


def test_a_link_of_the_source_stays_one(tmp_path: Path) -> None:
    """A data set behind a link is not copied."""
    launch.unpack(archive(tmp_path / "source.tar", link("data", "/datasets/x")), str(tmp_path / "work"))

    assert os.readlink(tmp_path / "work/data") == "/datasets/x"


@pytest.mark.parametrize("seen", [True, False])
def test_ranks_stand_in_the_jobs_own_folder_where_the_node_sees_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: bool
) -> None:
    """What they write stays there. A node that does not see it unpacks the source for itself."""
    (tmp_path / "job/run").mkdir(parents=True)
    (tmp_path / "job/work").mkdir()
    monkeypatch.setenv(Env.SHARED, str(tmp_path / f"job/run/shared-{1 if seen else 2}"))
    (tmp_path / "job/run/shared-1").touch()

    place = LaunchContext(str(tmp_path / f"scratch-{1 if seen else 2}"), 0)

    assert place.work == str(tmp_path / ("job/work" if seen else "scratch-2/work"))


def test_a_job_inside_of_another_has_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ranks inherit the variable of the outer job, whose source is none of theirs."""
    (tmp_path / "job/run").mkdir(parents=True)
    (tmp_path / "job/work").mkdir()
    (tmp_path / "job/run/shared-1").touch()
    monkeypatch.setenv(Env.SHARED, str(tmp_path / "job/run/shared-1"))

    assert LaunchContext(str(tmp_path / "jobs/run/7"), 0).work == str(tmp_path / "jobs/run/7/work")


@pytest.mark.parametrize(
    ("words", "workdir", "expected"),
    [
        (["no-such-program"], None, "no-such-program is not on PATH on this node"),
        ([sys.executable], "/no/such/folder", "the workdir /no/such/folder is not a folder on this node"),
        (["/etc/passwd"], None, "/etc/passwd is not on PATH on this node"),
    ],
)
def test_what_cannot_be_started_is_said_with_a_hint(
    tmp_path: Path, words: list[str], workdir: str | None, expected: str
) -> None:
    with pytest.raises(LaunchError) as caught:
        launch.start_command(words, dict(os.environ), workdir, str(tmp_path / "log"))

    assert (str(caught.value), bool(caught.value.hint)) == (expected, True)


def test_an_unknown_user_gets_name_and_place(place: LaunchContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of no entry in /etc/passwd, where /tmp is not to be written: he is given a name, and a place."""
    monkeypatch.setattr(processes, "TMP", "/nowhere")
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    env = launch.launch_environment(PLAN, 0, 0, None, place, {})

    assert ("54321", "54321") == (env["USER"], env["LOGNAME"])
    assert os.path.isdir(env["TMPDIR"])
    assert env["TMPDIR"].startswith(place.node)
    assert "there" == launch.launch_environment(PLAN, 0, 0, None, place, {"TMPDIR": "there"})["TMPDIR"]
