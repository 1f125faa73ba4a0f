"""Which connection is dropped when too many wait to prove that they know the key."""

from __future__ import annotations

from ddplaunch.agent.hub.server import UnauthenticatedConnections


def test_no_connection_is_dropped_while_there_is_room() -> None:
    connections: UnauthenticatedConnections[str] = UnauthenticatedConnections()

    assert [None] * 3 == [connections.add("10.0.0.1", f"guest {number}", 3) for number in range(3)]


def test_a_flood_drops_its_own_connections_and_no_other_nodes() -> None:
    connections: UnauthenticatedConnections[str] = UnauthenticatedConnections()
    connections.add("10.0.0.1", "a node", 3)
    for number in range(2):
        connections.add("10.0.0.9", f"flood {number}", 3)

    assert ["flood 0", "flood 1"] == [connections.add("10.0.0.9", f"flood {number}", 3) for number in (2, 3)]
    assert ["a node", "flood 2", "flood 3"] == connections.guests()


def test_of_many_addresses_the_oldest_connection_is_dropped() -> None:
    connections: UnauthenticatedConnections[str] = UnauthenticatedConnections()
    for number in range(3):
        connections.add(f"10.0.0.{number}", f"guest {number}", 3)

    assert "guest 0" == connections.add("10.0.0.7", "guest 7", 3)


def test_a_connection_that_has_authenticated_makes_room_and_leaves_only_once() -> None:
    connections: UnauthenticatedConnections[str] = UnauthenticatedConnections()
    connections.add("10.0.0.1", "guest 0", 1)

    assert connections.remove("10.0.0.1", "guest 0")
    assert not connections.remove("10.0.0.1", "guest 0")
    assert connections.add("10.0.0.1", "guest 1", 1) is None
