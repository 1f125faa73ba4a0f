"""What Gloo and TensorPipe take: every rule by an example. `test_real` asks torch itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.agent.interfaces.hosts import ALIAS, ENP, ETH, ETH6, IDLE, LO6, LOCAL6, address, host

from ddplaunch.agent.interfaces import predict
from ddplaunch.agent.interfaces.predict import HostFacts

LO = address("lo", "127.0.0.1/8")


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
def test_gloo_takes_whole_names_in_the_lists_order(value: str, expected: list[object]) -> None:
    """No prefix, no operator; an interface need not run; one wrong name is an error."""
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
def test_unset_the_hosts_own_name_decides(resolved: list[str], bindable: list[str], expected: str) -> None:
    """The first address that can be bound; without one, loopback."""
    facts = host(ETH, LO6, ETH6, LOCAL6, name="n1", names={"n1": resolved}, bindable=bindable)

    assert [expected] * 2 == [str(predict.gloo(facts)), str(predict.tensorpipe(facts))]


def test_a_host_name_of_64_letters_is_too_long_for_gloo() -> None:
    """Linux allows it, torch does not; where an interface is named nobody asks for the host's name."""
    name = f"n1.{61 * 'x'}"
    facts = host(ETH, name=name, names={name: ["10.0.0.5"]}, bindable=["10.0.0.5"])
    named = replace(facts, environment={"GLOO_SOCKET_IFNAME": "eth0"})

    assert ([], "this host's name has 64 letters, more than torch can hold: set GLOO_SOCKET_IFNAME") == (
        predict.gloo(facts).addresses,
        predict.gloo(facts).why,
    )
    assert [[ETH]] * 2 == [predict.gloo(named).addresses, predict.tensorpipe(facts).addresses]


def test_an_address_that_no_interface_has() -> None:
    """Where nothing was ever up anything can be bound: Gloo asks whose it is, TensorPipe does not."""
    facts = HostFacts([], name="n1", names={"n1": ["10.9.9.9"]}, bindable=["10.9.9.9", "127.0.0.1"])
    nameless = replace(facts, names={"n1": []})

    assert ["none", "- 10.9.9.9"] == [str(predict.gloo(facts)), str(predict.tensorpipe(facts))]
    assert ["none", "- 127.0.0.1"] == [str(predict.gloo(nameless)), str(predict.tensorpipe(nameless))]


def test_one_letter_does_not_count_for_gloo() -> None:
    """As if it were not set, and said so."""
    choice = predict.gloo(
        host(ETH, GLOO_SOCKET_IFNAME="e", name="n1", names={"n1": []}, bindable=["127.0.0.1"])
    )

    assert ("lo 127.0.0.1", True) == (str(choice), choice.why.startswith("GLOO_SOCKET_IFNAME=e is too short"))


@pytest.mark.parametrize(
    ("name", "expected"), [("eth0", ETH), ("docker0", LO), ("nosuch", LO), ("e", LO), ("", LO)]
)
def test_tensorpipe_takes_one_name_that_runs_or_loopback(name: str, expected: object) -> None:
    """A wrong name is no error: peers are given loopback."""
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
    """The lower one listens."""
    assert expected == predict.gloo_connects(own, peer)
