"""What NCCL, Gloo and TensorPipe take: every rule by an example. `test_real` asks the libraries."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.agent.interfaces.hosts import (
    ALIAS,
    DOCKER,
    ENP,
    ETH,
    ETH6,
    IB,
    IDLE,
    LO6,
    LOCAL6,
    VIRBR,
    address,
    host,
)

from ddplaunch.agent.interfaces import predict
from ddplaunch.agent.interfaces.predict import Address, HostFacts

OLD, NEW = (2, 27, 7), (2, 30, 7)
LO = address("lo", "127.0.0.1/8")
OTHER6 = address("veth7", "fe80::7/64")


def taken(facts: HostFacts, release: predict.Version = NEW) -> str:
    """The interface of the bootstrap, and why it is none."""
    choice = predict.nccl_bootstrap(facts, release)
    return str(choice) if choice.addresses else choice.why


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ((ETH, ENP), ETH),
        ((ENP, ETH, IB), IB),
        ((DOCKER, ETH), ETH),
        ((VIRBR, DOCKER), DOCKER),
        ((VIRBR,), LO),
        ((LO6, ETH6), ETH6),
        ((LO6, LOCAL6), LOCAL6),
        ((ETH, ETH6, LOCAL6), ETH),
        ((), LO),
    ],
)
def test_unset_the_order_is_ib_others_docker_loopback(found: tuple[Address, ...], expected: Address) -> None:
    assert str(expected) == taken(host(*found))


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("eth", ETH),
        ("en", ENP),
        ("eth0:1", ETH),  # what follows a colon does not count
        ("enp94s0np0,eth0", ETH),  # the system's order, not the list's
        ("nosuch,,en", ENP),
        ("=eth0", ETH),
        ("=enp94s0np0,eth", ENP),  # "=" holds for all entries
        ("^lo,eth", ENP),
        ("^eth,en", LO),  # whoever excludes, excludes nothing else
        ("^=lo,eth0", ENP),
        (",,", LO),  # no entry: every interface
        ("e", ETH),  # one letter does not count
        ("=,eth0", ETH),
        ("^=eth0,lo", ENP),
        ("", ETH),
    ],
)
def test_set_it_is_a_prefix_unless_told_otherwise(wanted: str, expected: Address) -> None:
    assert str(expected) == taken(host(ETH, ENP, NCCL_SOCKET_IFNAME=wanted))


@pytest.mark.parametrize(
    "wanted", ["=eth", "nosuch", "=^eth0", "==eth0", "^,", "eth1 ,enp94s0np0 ", " eth0", "é"]
)
def test_set_to_what_is_not_there_nothing_else_is_tried(wanted: str) -> None:
    assert f"NCCL_SOCKET_IFNAME={wanted} matches none" == taken(host(ETH, ENP, NCCL_SOCKET_IFNAME=wanted))


def test_of_a_list_sixteen_names_are_read() -> None:
    many = ",".join(f"no{place}" for place in range(16))

    assert taken(host(ETH, NCCL_SOCKET_IFNAME=f"{many},eth0")).endswith("matches none")
    assert str(ETH) == taken(host(ETH, NCCL_SOCKET_IFNAME=f"{many[: -len(',no15')]},eth0"))


@pytest.mark.parametrize(
    ("family", "expected"), [("AF_INET", ETH), ("AF_INET6", ETH6), ("inet6", ETH), ("AF_INET6 ", ETH)]
)
def test_a_family_is_filtered_if_it_is_spelt_as_in_c_and_else_ignored(family: str, expected: Address) -> None:
    assert str(expected) == taken(host(ETH, LO6, ETH6, NCCL_SOCKET_FAMILY=family))


def test_since_2_28_an_interface_must_run() -> None:
    """Before, a docker bridge without containers was taken, and a cable need not be in."""
    down = address("eth0", "10.0.0.5/24", down=True)

    assert [str(IDLE), str(LO)] == [
        taken(host(IDLE, NCCL_SOCKET_IFNAME="^lo") if release == OLD else host(IDLE), release)
        for release in (OLD, NEW)
    ]
    assert [str(down), str(LO)] == [taken(host(down), release) for release in (OLD, NEW)]


def test_since_2_28_virbr_comes_last() -> None:
    assert [str(VIRBR), str(LO)] == [taken(host(VIRBR), release) for release in (OLD, NEW)]


@pytest.mark.parametrize("release", [OLD, NEW])
def test_with_a_comm_id_its_subnet_decides_alone(release: predict.Version) -> None:
    facts = host(ETH, IDLE, ENP, NCCL_COMM_ID="172.17.3.4:29500", NCCL_SOCKET_IFNAME="eth0")
    facts.names["172.17.3.4"] = ["172.17.3.4"]

    assert str(IDLE) == taken(facts, release)


def test_2_29_takes_the_first_ipv4_interface_outside_the_subnet() -> None:
    """Its comparison is the wrong way round; that of IPv6 is not."""
    facts = host(ETH, ENP, NCCL_COMM_ID="10.0.0.9:29500", names={"10.0.0.9": ["10.0.0.9"]})

    assert [str(ETH), str(LO), str(ETH)] == [taken(facts, (2, minor, 3)) for minor in (28, 29, 30)]
    assert str(ETH6) == taken(host(ETH, ETH6, NCCL_COMM_ID="[fd00::9]:29500"), (2, 29, 7))


def test_a_link_local_comm_id_needs_its_interface() -> None:
    other = address("eth1", "fe80::6/64")
    indexes = {"eth0": LOCAL6.index, "alias": LOCAL6.index, "idle": 99}

    for name in ("eth0", "alias"):
        facts = host(other, LOCAL6, NCCL_COMM_ID=f"[fe80::9%{name}]:29500", indexes=indexes)
        assert str(LOCAL6) == taken(facts)
    for value in ("[fe80::9]:29500", "[fe80::9%nosuch]:1", "[fd00::9%idle]:1", "[nonsense]:1"):
        facts = host(other, LOCAL6, ETH6, NCCL_COMM_ID=value, indexes=indexes)
        assert f"no interface is in the subnet of NCCL_COMM_ID={value}" == taken(facts)
    assert str(ETH6) == taken(host(other, LOCAL6, ETH6, NCCL_COMM_ID="[fd00::9%nosuch]:1", indexes=indexes))


def test_a_host_name_of_64_letters_is_cut_since_2_30() -> None:
    """Before, it ran into what lies behind it, and was no name any more."""
    cut, name = 63 * "n", 64 * "n"
    facts = host(ETH, ENP, NCCL_COMM_ID=f"{name}:29500", names={cut: ["10.0.2.9"], name: ["10.0.0.9"]})

    assert ["", cut] == [predict.comm_id_name(facts, release) for release in (OLD, NEW)]
    assert taken(facts, OLD).endswith("gives no address")
    assert str(ENP) == taken(facts, NEW)


@pytest.mark.parametrize(("release", "expected"), [((2, 26, 2), [ETH, ENP]), ((2, 27, 3), []), (NEW, [])])
def test_since_2_27_data_too_needs_an_address(release: predict.Version, expected: list[Address]) -> None:
    """Before, it was left out of account; where NCCL_SOCKET_IFNAME is set it still is."""
    facts = host(ETH, ENP, NCCL_COMM_ID="nowhere:29500")
    named = replace(facts, environment={**facts.environment, "NCCL_SOCKET_IFNAME": "en"})

    assert [expected, [ENP]] == [predict.nccl_sockets(each, release).addresses for each in (facts, named)]


@pytest.mark.parametrize("value", ["", "x", "nowhere:29500", "[fd00::9", ":29500", "fd00::9:29500"])
def test_nccl_refuses_a_comm_id_without_an_address(value: str) -> None:
    assert f"NCCL_COMM_ID={value} gives no address" == taken(host(ETH, NCCL_COMM_ID=value))


def test_data_goes_by_sixteen_interfaces_at_most() -> None:
    many = [address(f"eth{place}", f"10.9.{place}.1/24") for place in range(20)]

    assert many[:16] == predict.nccl_sockets(host(*many), NEW).addresses
    assert [ETH, ALIAS, ENP] == predict.nccl_sockets(host(ETH, ALIAS, ENP, ETH6), NEW).addresses


def test_without_a_bootstrap_interface_in_the_subnet_data_goes_by_others() -> None:
    outside = host(ETH, ENP, NCCL_COMM_ID="[fd99::1]:29500")

    assert [ETH, ENP] == predict.nccl_sockets(outside, NEW).addresses
    assert [IB] == predict.nccl_sockets(host(ETH, IB, NCCL_COMM_ID="[fd99::1]:29500"), NEW).addresses


@pytest.mark.parametrize(
    ("release", "expected"),
    [((2, 18, 1), "home"), ((2, 23, 4), "other"), ((2, 29, 7), "other"), ((2, 30, 3), "other")],
)
def test_nccl_conf_file_is_read_since_2_23(release: predict.Version, expected: str) -> None:
    facts = host(
        *(address(name, "10.0.0.5/24") for name in ("system", "home", "other")),
        NCCL_CONF_FILE="/other",
        files={
            "/etc/nccl.conf": "NCCL_SOCKET_IFNAME=system",
            "/mine/.nccl.conf": "NCCL_SOCKET_IFNAME=home\n",
            "/other": "NCCL_SOCKET_IFNAME=other\n",
        },
        home="/mine",
    )

    assert f"{expected} 10.0.0.5" == taken(facts, release)
    assert "/" in predict.nccl_bootstrap(facts, release).why, "it says in which file it stands"


def test_since_2_30_the_users_file_lies_where_home_says() -> None:
    """Before, where the password database says."""
    files = {f"/{name}/.nccl.conf": f"NCCL_SOCKET_IFNAME={name}\n" for name in ("passwd", "home")}
    facts = host(
        address("passwd", "10.0.0.5"), address("home", "10.0.0.6"), HOME="/home", home="/passwd", files=files
    )

    assert ["passwd 10.0.0.5", "home 10.0.0.6"] == [taken(facts, release) for release in ((2, 29, 7), NEW)]


def test_the_environment_is_stronger_than_any_file_even_when_it_is_empty() -> None:
    files = {"/etc/nccl.conf": "NCCL_SOCKET_IFNAME=en\n"}

    assert str(ENP) == taken(host(ETH, ENP, files=files))
    assert str(ETH) == taken(host(ETH, ENP, files=files, NCCL_SOCKET_IFNAME=""))


@pytest.mark.parametrize(
    ("text", "release", "expected"),
    [
        ("#NCCL_SOCKET_IFNAME=en\n", NEW, ETH),
        ("# a=b\nNCCL_SOCKET_IFNAME=en", NEW, ENP),
        ("NCCL_SOCKET_IFNAME = en\n", NEW, ETH),
        ("NCCL_SOCKET_IFNAME=en\nNCCL_SOCKET_IFNAME=eth\n", NEW, ENP),
        ("NCCL_SOCKET_IFNAME=en\r\n", NEW, ENP),
        ("NCCL_SOCKET_IFNAME=en\0rest\n", NEW, ENP),
        (f"NCCL_SOCKET_IFNAME=^lo,{1016 * ','}ethernet\n", NEW, ENP),  # of which three letters are read
    ],
)
def test_a_files_first_line_wins_untrimmed(text: str, release: predict.Version, expected: Address) -> None:
    """Nothing is trimmed; the first line wins; of a value 1023 bytes are read, and none after a NUL."""
    assert str(expected) == taken(host(ETH, ENP, files={"/etc/nccl.conf": text}), release)


def test_before_2_30_a_windows_line_end_belongs_to_the_value() -> None:
    facts = host(ETH, files={"/etc/nccl.conf": "NCCL_SOCKET_IFNAME=eth0\r\n"})

    assert taken(facts, (2, 29, 7)).endswith("matches none")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2.27.5", (2, 27, 5)),
        ("2.26.2.post1", (2, 26, 2)),
        ("", predict.NEWEST),
        ("nonsense", predict.NEWEST),
    ],
)
def test_a_version_nobody_knows_is_the_newest(text: str, expected: predict.Version) -> None:
    assert expected == predict.nccl_version(text)


@pytest.mark.parametrize(
    ("rdma", "environment", "expected"),
    [
        (False, {}, [ETH, ENP, OTHER6]),
        (
            False,
            {"NCCL_SOCKET_IFNAME": "^docker,lo"},
            [ETH, ENP],
        ),  # nobody can tell whether fe80:: works there
        (False, {"NCCL_NET_PLUGIN": "ofi"}, [ETH]),
        (False, {"NCCL_NET_PLUGIN": "none"}, [ETH, ENP, OTHER6]),
        (True, {}, [ETH]),
        (True, {"NCCL_IB_DISABLE": "0"}, [ETH]),
        (True, {"NCCL_IB_DISABLE": "1"}, [ETH, ENP, OTHER6]),
        (True, {"NCCL_NET": "Socket"}, [ETH, ENP, OTHER6]),
        (True, {"NCCL_SOCKET_IFNAME": "=enp94s0np0"}, [ENP]),
    ],
)
def test_peers_must_reach_the_bootstrap_and_what_carries_data(
    rdma: bool, environment: dict[str, str], expected: list[Address]
) -> None:
    """Which is all of its sockets' interfaces, unless RDMA or a plugin does it."""
    facts = host(DOCKER, ETH, ENP, OTHER6, **environment)

    assert expected == predict.nccl_reached(facts, NEW, rdma).addresses


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("eth0", [ETH]),
        ("enp94s0np0,eth0", [ENP, ETH]),
        ("docker0", [IDLE]),
        ("eth0:1", [ALIAS]),
        ("eth", []),
        ("=eth0", []),
        ("eth0,nosuch", []),
        ("eth0,", [ETH]),
        (",eth0", []),
        ("eth0,,enp94s0np0", []),
        ("é", []),
    ],
)
def test_gloo_takes_whole_names_in_order_and_fails_at_a_wrong_one(value: str, expected: list[object]) -> None:
    facts = host(ETH, ALIAS, ENP, IDLE, ETH6, GLOO_SOCKET_IFNAME=value, names={"": []})

    assert expected == predict.gloo(facts).addresses


@pytest.mark.parametrize(
    ("resolved", "bindable", "expected"),
    [
        (["10.0.0.5"], ["10.0.0.5"], "eth0 10.0.0.5"),
        (["10.9.9.9", "10.0.0.5"], ["10.0.0.5"], "eth0 10.0.0.5"),
        (["127.0.1.1"], ["127.0.1.1"], "lo 127.0.1.1"),
        (["10.9.9.9"], ["127.0.0.1"], "lo 127.0.0.1"),
        ([], ["127.0.0.1"], "lo 127.0.0.1"),
        ([], [], "none"),
        (["fd00::5"], ["fd00::5"], "eth0 fd00::5"),
        ([f"fe80::5%{LOCAL6.index}"], [f"fe80::5%{LOCAL6.index}"], "eth0 fe80::5"),
    ],
)
def test_unset_gloo_takes_the_first_address_of_the_hosts_name_or_loopback(
    resolved: list[str], bindable: list[str], expected: str
) -> None:
    facts = host(ETH, LO6, ETH6, LOCAL6, name="n1", names={"n1": resolved}, bindable=bindable)

    assert [expected] * 2 == [str(predict.gloo(facts)), str(predict.tensorpipe(facts))]


def test_a_host_name_of_64_letters_is_too_long_for_gloo() -> None:
    """Linux allows it, torch does not; where an interface is named nobody asks for the host's name."""
    name = f"n1.{61 * 'x'}"
    facts = host(ETH, name=name, names={name: ["10.0.0.5"]}, bindable=["10.0.0.5"])
    named = replace(facts, environment={"GLOO_SOCKET_IFNAME": "eth0"})

    seen = predict.gloo(facts).addresses, predict.gloo(facts).why
    assert ([], "this host's name has 64 letters, more than torch can hold: set GLOO_SOCKET_IFNAME") == seen
    assert [[ETH]] * 2 == [predict.gloo(named).addresses, predict.tensorpipe(facts).addresses]


def test_an_address_that_no_interface_has_is_refused_by_gloo_alone() -> None:
    """Where nothing was ever up anything can be bound: Gloo asks whose it is, TensorPipe does not."""
    facts = HostFacts([], name="n1", names={"n1": ["10.9.9.9"]}, bindable=["10.9.9.9", "127.0.0.1"])
    nameless = replace(facts, names={"n1": []})

    assert ["none", "- 10.9.9.9"] == [str(predict.gloo(facts)), str(predict.tensorpipe(facts))]
    assert ["none", "- 127.0.0.1"] == [str(predict.gloo(nameless)), str(predict.tensorpipe(nameless))]


def test_an_interface_of_one_letter_does_not_count_for_gloo() -> None:
    choice = predict.gloo(
        host(ETH, GLOO_SOCKET_IFNAME="e", name="n1", names={"n1": []}, bindable=["127.0.0.1"])
    )

    assert ("lo 127.0.0.1", True) == (str(choice), choice.why.startswith("GLOO_SOCKET_IFNAME=e is too short"))


@pytest.mark.parametrize(
    ("name", "expected"), [("eth0", ETH), ("docker0", LO), ("nosuch", LO), ("e", LO), ("", LO)]
)
def test_tensorpipe_takes_one_name_that_runs_or_loopback(name: str, expected: object) -> None:
    facts = replace(host(ETH, IDLE, TP_SOCKET_IFNAME=name), bindable=["127.0.0.1"])

    assert [expected] == predict.tensorpipe(facts).addresses


@pytest.mark.parametrize(
    ("own", "peer", "expected"),
    [
        ("172.17.0.1", "10.0.0.5", True),
        ("10.0.0.5", "172.17.0.1", False),
        ("9.0.0.1", "10.0.0.1", False),  # as numbers, not as text
        ("10.0.0.5", "10.0.0.5", True),  # the ports decide
        ("fd00::10", "fd00::9", True),
        ("fd00::9", "fd00::10", False),
        ("fd00::9", "10.0.0.5", False),
    ],
)
def test_of_two_ranks_the_higher_address_connects(own: str, peer: str, expected: bool) -> None:
    assert expected == predict.gloo_connects(own, peer)
