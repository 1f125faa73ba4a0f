"""Probes that have to wait for their turn."""

from __future__ import annotations

import threading
import time

from tests.ports import own_port

from ddplaunch.agent.contract import MeshTask
from ddplaunch.agent.gate import probe
from ddplaunch.agent.gate.probe import Responder
from ddplaunch.agent.system import ports


def test_a_path_is_tried_when_it_is_its_turn() -> None:
    """Not before, whatever else there is to try meanwhile; the wait does not count as the path's."""
    responder, listener = Responder(b"key", 0), ports.listen("127.0.0.1", 0)
    number = ports.number(listener)
    responder.listen(listener)
    try:
        started = time.monotonic()
        tasks = [MeshTask(0, "127.0.0.1", number, "responder", after) for after in (0.0, 3.0)]
        results = probe.run(1, tasks, b"key", 0)
    finally:
        responder.close(listener)

    assert ["ok", "ok"] == [result.outcome for result in results]
    assert time.monotonic() - started >= 3.0
    assert results[1].seconds < 3.0


def test_a_path_that_opens_while_it_is_tried() -> None:
    """A refusal may pass as silence may: rules of a firewall arrive, a listener comes up."""
    number = own_port()
    responder = Responder(b"key", 0)
    late = threading.Timer(1.0, lambda: responder.listen(ports.listen("127.0.0.1", number)))
    late.start()
    (result,) = probe.run(1, [MeshTask(0, "127.0.0.1", number, "responder")], b"key", 0)
    late.join()
    responder.close(next(iter(responder._threads)))

    assert "ok" == result.outcome
    assert result.detail.startswith("refused for ")
