"""Which processes of a machine are the ranks of a job that ddplaunch did not start."""

from __future__ import annotations

import pytest

from ddplaunch.agent.outside import find_ranks
from ddplaunch.agent.outside.find_ranks import JobRanks, Seen, Tree

SHELL, TORCHRUN = 10, 20


def worker(pid: int, rank: int, parent: int = TORCHRUN, program: str = "python3.9", **more: str) -> Seen:
    """A process as torchrun starts it."""
    environment = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_PORT": "29500"}
    return Seen(pid, parent, program, {**environment, **more}, "python train.py")


def tree(*processes: Seen, libraries: tuple[str, ...] = ()) -> Tree:
    """With a shell that has started torchrun; each process has loaded these `libraries`."""
    launchers = [Seen(SHELL, 1, "bash", {}), Seen(TORCHRUN, SHELL, "python3.9", {})]
    return Tree(
        {each.pid: each for each in (*launchers, *processes)}, loaded=lambda pid, name: name in libraries
    )


def members(found: JobRanks) -> list[tuple[int, int]]:
    """(rank, process) of each."""
    return [(each.rank, each.program) for each in found.members]


@pytest.mark.parametrize("pid", [SHELL, TORCHRUN, 31, 41])
def test_any_process_of_a_job_leads_to_its_ranks(pid: int) -> None:
    found = find_ranks.ranks_of_process(pid, tree(worker(31, 0), worker(32, 1), worker(41, 1, parent=32)))

    assert ([(0, 31), (1, 32)], 29500) == (members(found), found.port)
    assert [2, 2] == [each.world_size for each in found.members]


def test_a_jobs_own_hub_is_found_by_a_variable_of_its_job() -> None:
    command = "/usr/bin/python3 -I -S /shared/run/2/agent.pyz hub --name n1 --folder /shared/run/2 --port=0"
    hub = Seen(50, 1, "python3.9", {"SLURM_JOB_ID": "7"}, command)
    other = Seen(51, 1, "python3.9", {"SLURM_JOB_ID": "8"}, command.replace("run/2", "run/3"))
    supervisor = Seen(52, 1, "python3.9", {"SLURM_JOB_ID": "9"}, command.replace(" hub ", " run "))

    asked = [f"SLURM_JOB_ID={job}" for job in (7, 8, 9)]
    found = [find_ranks.folder_of_hub(each, tree(hub, other, supervisor)) for each in asked]
    assert ["/shared/run/2", "/shared/run/3", ""] == found


def test_two_torchruns_with_one_meeting_point_are_one_job() -> None:
    other = worker(33, 1, parent=21)
    third = worker(34, 1, parent=22, MASTER_PORT="29501")

    assert [(0, 31), (1, 33)] == members(
        find_ranks.ranks_of_process(TORCHRUN, tree(worker(31, 0), other, third))
    )


def test_several_jobs_below_one_process_are_told_apart() -> None:
    with pytest.raises(find_ranks.NoRanksError, match="process 10 has the ranks of 2 jobs") as raised:
        find_ranks.ranks_of_process(SHELL, tree(worker(31, 0), worker(34, 1, MASTER_PORT="29501")))

    assert raised.value.hint.endswith("pid:31, pid:34")


def test_the_python_below_a_script_is_the_rank() -> None:
    script = worker(31, 0, program="bash")

    assert [(0, 35)] == members(find_ranks.ranks_of_process(SHELL, tree(script, worker(35, 0, parent=31))))


def test_a_pods_number_in_place_of_a_ranks_is_understood() -> None:
    launcher = worker(30, 0, WORLD_SIZE="1")
    ranks = [worker(31, 0, parent=30), worker(32, 1, parent=30)]

    assert [(0, 31), (1, 32)] == members(find_ranks.ranks_of_process(SHELL, tree(launcher, *ranks)))


def test_of_two_processes_with_one_number_that_of_the_own_tree_counts() -> None:
    """That of the own tree counts; of two elsewhere neither does, for one may be left of an earlier job."""
    elsewhere = [worker(41, 0, parent=SHELL), worker(42, 1, parent=SHELL), worker(43, 1, parent=SHELL)]

    assert [(0, 31)] == members(find_ranks.ranks_of_process(TORCHRUN, tree(worker(31, 0), *elsewhere)))


@pytest.mark.parametrize(
    ("libraries", "found"), [(("libmpi",), [(1, 31)]), (("libtorch",), [(1, 31)]), ((), [])]
)
def test_the_numbers_of_mpirun_count_where_there_are_none_of_torchrun(
    libraries: tuple[str, ...], found: list[tuple[int, int]]
) -> None:
    numbers = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "PMIX_NAMESPACE": "prterun-7"}
    rank = Seen(31, TORCHRUN, "python3.9", numbers)

    assert found == members(find_ranks.ranks_of_process(SHELL, tree(rank, libraries=libraries)))


@pytest.mark.parametrize("size", ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"])
def test_the_size_of_mpiruns_world_is_read_of_its_ranks(size: str) -> None:
    numbers = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "1", size: "4"}
    rank = Seen(31, TORCHRUN, "python3.9", numbers)

    (member,) = find_ranks.ranks_of_process(SHELL, tree(rank, libraries=("libmpi",))).members

    assert 4 == member.world_size


def test_ranks_are_found_by_a_variable_of_their_job() -> None:
    ours, theirs = worker(31, 0, JOB="7"), worker(32, 1, JOB="8")

    assert [(0, 31)] == members(find_ranks.ranks_of_variable("JOB", "7", tree(ours, theirs)))


def test_below_a_process_without_ranks_nothing_is_found() -> None:
    assert [] == members(find_ranks.ranks_of_process(SHELL, tree()))


def numbered(pid: int, rank: int, parent: int = 0, command: str = "python train.py", **more: str) -> Seen:
    """A process with a container's number, as Kubeflow and Volcano give it: without LOCAL_RANK."""
    environment = {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "llm-master-0",
        "MASTER_PORT": "23456",
    }
    return Seen(pid, parent, "python3.9", {**environment, **more}, command)


def container(*processes: Seen, torch: tuple[int, ...] = ()) -> Tree:
    """Of these alone; those with `torch` have loaded it."""
    return Tree({each.pid: each for each in processes}, loaded=lambda pid, _name: pid in torch)


def test_the_ranks_of_a_container_are_torchruns_and_none_that_came_by_exec() -> None:
    """Its ranks are those of torchrun, whatever number the container has; what came by exec is none."""
    torchrun, shell = numbered(1, 1), numbered(90, 1)
    workers = [numbered(pid, rank, 1, LOCAL_RANK=str(rank)) for pid, rank in ((7, 0), (8, 1))]

    found = find_ranks.ranks_of_machine(container(torchrun, *workers, shell, torch=(7, 8)))

    assert ([(0, 7), (1, 8)], 23456) == (members(found), found.port)


def test_a_container_without_torchrun_is_one_rank() -> None:
    script, program, loader = numbered(1, 1, command="sh -c ..."), numbered(7, 1, 1), numbered(8, 1, 7)
    found = find_ranks.ranks_of_machine(container(script, program, loader, numbered(90, 1), torch=(7, 8)))

    assert [(1, 7)] == members(found)
    assert [(0, 2)] == [(each.local_rank, each.world_size) for each in found.members]


def test_of_a_program_that_spawns_others_or_of_two_in_a_container_no_rank_is_guessed() -> None:
    spawned = numbered(7, 1, 1, command="python -c ... --multiprocessing-fork")
    for second in (spawned, numbered(7, 1)):
        assert [] == members(find_ranks.ranks_of_machine(container(numbered(1, 1), second, torch=(1, 7))))


def test_two_jobs_in_a_container_are_told_apart() -> None:
    workers = [numbered(pid, 0, LOCAL_RANK="0", MASTER_PORT=f"{pid}") for pid in (7, 8)]

    with pytest.raises(find_ranks.NoRanksError, match="this container has the ranks of 2 jobs"):
        find_ranks.ranks_of_machine(container(*workers))


def test_the_first_process_of_a_container_and_what_came_by_exec_have_no_starter() -> None:
    assert [1, 90] == container(numbered(1, 0), numbered(7, 0, 1), numbered(90, 0)).roots()
