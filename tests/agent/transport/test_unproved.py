"""Who must go when too many wait to prove themselves."""

from __future__ import annotations

from ddplaunch.agent.transport.unproved import UnprovedConnections


def test_nobody_goes_while_there_is_room() -> None:
    """As many may wait as there is room for."""
    unproved: UnprovedConnections[str] = UnprovedConnections()

    assert [None] * 3 == [unproved.enter("10.0.0.1", f"guest {number}", 3) for number in range(3)]


def test_the_oldest_of_the_most_frequent_address_goes() -> None:
    """A flood from one address drives out its own connections, not the one of another node."""
    unproved: UnprovedConnections[str] = UnprovedConnections()
    unproved.enter("10.0.0.1", "a node", 3)
    for number in range(2):
        unproved.enter("10.0.0.9", f"flood {number}", 3)

    assert ["flood 0", "flood 1"] == [unproved.enter("10.0.0.9", f"flood {number}", 3) for number in (2, 3)]
    assert ["a node", "flood 2", "flood 3"] == unproved.guests()


def test_of_many_addresses_the_oldest_guest_goes() -> None:
    """Where nobody has more connections than others, whoever came first goes first."""
    unproved: UnprovedConnections[str] = UnprovedConnections()
    for number in range(3):
        unproved.enter(f"10.0.0.{number}", f"guest {number}", 3)

    assert "guest 0" == unproved.enter("10.0.0.7", "guest 7", 3)


def test_who_leaves_makes_room() -> None:
    """A guest that has proved itself, or is gone, counts no more; it leaves only once."""
    unproved: UnprovedConnections[str] = UnprovedConnections()
    unproved.enter("10.0.0.1", "guest 0", 1)

    assert unproved.leave("10.0.0.1", "guest 0")
    assert not unproved.leave("10.0.0.1", "guest 0")
    assert unproved.enter("10.0.0.1", "guest 1", 1) is None
