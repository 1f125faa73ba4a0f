"""The checks of a node's own state: configuration, names, memory, shared memory, CPU, disk, clock."""

from __future__ import annotations

import dataclasses
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.agent.checks.make import make_context

from ddplaunch.agent.checks import configuration, machine, network
from ddplaunch.agent.contract import Env, Status

TOO_LONG = "x" * 64 + ".example"
"""No resolver knows a label of more than 63 letters, and none has to be asked."""


@pytest.mark.parametrize(("node", "status"), [(0, Status.PASS), (1, Status.PASS), (2, Status.FAIL)])
def test_a_node_beyond_the_last_is_of_a_job_of_another_size(tmp_path: Path, node: int, status: str) -> None:
    result = configuration.check_configuration(make_context(tmp_path, node=node, environment={}))

    assert status == result.status
    assert result.code == ("world-size-differs" if status == Status.FAIL else "")


def test_a_pods_gate_says_nothing_of_secrets(tmp_path: Path) -> None:
    token = {"TOKEN": {"env": "TOKEN"}}
    missing = configuration.check_configuration(make_context(tmp_path, environment={}, secrets=token))
    in_pod = configuration.check_configuration(
        make_context(tmp_path, environment={Env.TERMINATION: "/x"}, secrets=token)
    )

    assert ("secret-missing", Status.PASS) == (missing.code, in_pod.status)


def test_the_pet_variables_by_which_a_controller_places_nodes_are_none(tmp_path: Path) -> None:
    """Kubeflow's Trainer gives all five, and they are meant; any other beside them is named alone."""
    place = {"NNODES": "2", "NPROC_PER_NODE": "1", "NODE_RANK": "0", "MASTER_ADDR": "n0", "MASTER_PORT": "1"}
    given = {f"PET_{name}": value for name, value in place.items()}
    result = configuration.check_configuration(make_context(tmp_path, environment=given))
    more = configuration.check_configuration(
        make_context(tmp_path, environment={**given, "PET_MAX_RESTARTS": "3"})
    )

    assert (Status.PASS, Status.UNKNOWN) == (result.status, more.status)
    assert "PET_MAX_RESTARTS will change torchrun's options" == more.observed


def test_preset_rank_variables_are_no_warning(tmp_path: Path) -> None:
    """A preset RANK or MASTER_ADDR harms nobody, since torchrun gives its workers their own."""
    environment = {"RANK": "3", "MASTER_ADDR": "elsewhere", "WORLD_SIZE": ""}
    result = configuration.check_configuration(make_context(tmp_path, environment=environment))

    assert result.status == Status.PASS
    assert "RANK, MASTER_ADDR of the environment will be replaced" in result.observed


def test_the_jobs_own_settings_of_nccl_and_gloo_are_facts_over_the_nodes(tmp_path: Path) -> None:
    environment = {"NCCL_DEBUG": "INFO", "NCCL_IB_HCA": "mlx5_0", "HF_TOKEN": "secret"}
    result = configuration.check_configuration(
        make_context(tmp_path, environment=environment, env={"NCCL_DEBUG": "WARN"})
    )

    assert {"NCCL_DEBUG": "WARN", "NCCL_IB_HCA": "mlx5_0"} == result.facts["environment"]


def test_an_interface_that_this_node_does_not_have_is_named(tmp_path: Path) -> None:
    result = configuration.check_configuration(
        make_context(tmp_path, environment={}, gate={"interface": "nosuch0"})
    )

    assert result.status == Status.UNKNOWN
    assert "no interface nosuch0 here, only" in result.observed
    there = configuration.check_configuration(
        make_context(tmp_path, environment={}, gate={"interface": "lo"})
    )
    assert there.status == Status.PASS


def test_the_addresses_of_the_nodes_own_name_and_the_masters_are_facts(tmp_path: Path) -> None:
    result = network.check_names(
        make_context(tmp_path, master_addr="localhost", names=["localhost", "127.0.0.1"])
    )

    assert result.status == Status.PASS
    assert result.facts["own"] == socket.gethostname()
    assert "127.0.0.1" in result.facts["addresses"]["localhost"] + ["127.0.0.1"]
    assert result.facts["addresses"]["127.0.0.1"] == ["127.0.0.1"]


def test_a_masters_name_that_does_not_resolve_fails_with_how_long_was_asked(tmp_path: Path) -> None:
    result = network.check_names(
        dataclasses.replace(make_context(tmp_path, master_addr=TOO_LONG), again=True)
    )

    assert (result.status, result.code) == (Status.FAIL, "dns-not-found")
    assert "asked for" in result.observed


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"master_addr": "localhost"}, "localhost"),
        (
            {"launch": ["{python}", "--master-addr={master_addr}"]},
            "",
        ),  # torchrun hands on what the gate finds
        ({}, "127.0.0.9"),  # the user's own, of the node's environment
        ({"env": {"MASTER_ADDR": "127.0.0.8"}}, "127.0.0.8"),  # and of the job file
        ({"launch": [], "command": []}, ""),  # a prologue: what the gate finds is exported
    ],
)
def test_the_master_is_whom_ranks_look_for(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    """The job file's, else the user's MASTER_ADDR where nothing replaces it, else the gate's own."""
    context = make_context(tmp_path, environment={"MASTER_ADDR": "127.0.0.9"}, **changes)

    assert expected == network.check_names(context).facts["master"]


def test_a_peers_name_that_does_not_resolve_is_only_noted(tmp_path: Path) -> None:
    result = network.check_names(make_context(tmp_path, names=["127.0.0.1", TOO_LONG]))

    assert result.status == Status.UNKNOWN
    assert TOO_LONG in result.facts["unresolved"]


def test_of_a_thousand_nodes_a_node_asks_for_its_neighbours_and_node_0(tmp_path: Path) -> None:
    peers = [f"127.0.1.{n % 250}" if n < 250 else f"127.0.2.{n % 250}" for n in range(1000)]
    context = make_context(tmp_path, node=500, nodes=1000, names=peers)

    assert len(network.check_names(context).facts["addresses"]) <= 5


@pytest.mark.parametrize(
    ("wanted", "status"), [(None, Status.PASS), (1, Status.PASS), (1 << 60, Status.FAIL)]
)
def test_the_memory_of_the_machine_or_its_group_is_held_against_the_demand(
    tmp_path: Path, wanted: int | None, status: str
) -> None:
    result = machine.check_memory(make_context(tmp_path, resources={"memory": wanted}))

    assert status == result.status
    assert result.facts["total"] > 0


def test_memory_that_others_hold_is_waited_for_and_what_is_never_there_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "meminfo", lambda: {"MemTotal": 1 << 20, "MemAvailable": 1 << 10})
    held = machine.check_memory(make_context(tmp_path, resources={"memory": 1 << 20}))
    lacking = machine.check_memory(make_context(tmp_path, resources={"memory": 1 << 21}))

    assert (Status.FAIL, 0.0) == (held.status, held.patience)
    assert (Status.FAIL, None) == (lacking.status, lacking.patience)


def test_meminfo_is_read_in_bytes(tmp_path: Path) -> None:
    """/proc/meminfo counts in kB, and has lines without a unit."""
    path = tmp_path / "meminfo"
    path.write_text("MemTotal:       65843064 kB\nMemAvailable:   12 kB\nHugePages_Total:       0\n")

    assert {"MemTotal": 67423297536, "MemAvailable": 12288, "HugePages_Total": 0} == machine.meminfo(
        str(path)
    )


@pytest.mark.parametrize(("wanted", "status"), [(1, Status.PASS), (1 << 60, Status.FAIL)])
def test_shared_memory_is_held_against_the_demand(tmp_path: Path, wanted: int, status: str) -> None:
    result = machine.check_shm(make_context(tmp_path, resources={"shm": wanted}))

    assert status == result.status
    assert result.code == ("shm-too-small" if status == Status.FAIL else "")


def test_without_shared_memory_a_demand_fails_and_any_other_job_is_warned(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere")

    assert machine.check_shm(make_context(tmp_path, resources={"shm": 1}), nowhere).status == Status.FAIL
    assert machine.check_shm(make_context(tmp_path), nowhere).status == Status.UNKNOWN


def test_too_few_cpus_are_a_warning_and_never_a_failure(tmp_path: Path) -> None:
    result = machine.check_cpu(make_context(tmp_path, resources={"cpus": 10_000.0}))

    assert result.status == Status.UNKNOWN
    assert "the job asks for 10000" in result.observed
    assert result.facts["cpus"] > 0


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "200000 100000\n"}, 2.0),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "150000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1.5),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({}, None),
    ],
)
def test_a_cpu_quota_is_read_of_both_versions_of_control_groups(
    tmp_path: Path, files: dict[str, str], expected: float | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    assert expected == machine.cpu_quota(str(tmp_path))


def test_a_disk_that_takes_no_files_fails_as_a_full_one_does(tmp_path: Path) -> None:
    """A file system that takes no files at all is as good as full. /proc is one, for root as well."""
    result = machine.check_disk(make_context(tmp_path, environment={"TMPDIR": "/proc/self"}))

    assert result.status == Status.UNKNOWN
    assert "/proc/self" in result.observed


def test_a_container_without_a_tmp_folder_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A root file system that may only be read is no fault: the ranks are given a folder of the job's."""
    monkeypatch.setattr(machine, "TMP", "/nowhere")
    result = machine.check_disk(make_context(tmp_path, environment={}))

    assert (Status.PASS, True) == (result.status, "/nowhere" not in result.observed)
