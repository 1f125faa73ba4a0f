"""One star of connections around rank 0. A peer that goes away is an error in Gloo's words."""

import os
import socket
import time

_PATIENCE = 120.0
_peers: "list[socket.socket]" = []


def init_process_group(backend: str) -> None:
    """Wait until every rank is connected to rank 0."""
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if get_rank() == 0:
        with socket.create_server(address, backlog=64) as server:
            _peers.extend(server.accept()[0] for _ in range(int(os.environ["WORLD_SIZE"]) - 1))
    else:
        _peers.append(_connect(address))
    all_reduce([])


def get_rank() -> int:
    """The number of this rank among all of the job."""
    return int(os.environ["RANK"])


def all_reduce(tensor: object) -> None:
    """Return once every rank has called it."""
    if get_rank() == 0:
        for peer in _peers:
            _receive(peer)
        for peer in _peers:
            _send(peer)
    else:
        _send(_peers[0])
        _receive(_peers[0])


def destroy_process_group() -> None:
    """Close what init_process_group opened."""
    for peer in _peers:
        peer.close()


def _connect(address: "tuple[str, int]") -> socket.socket:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return socket.create_connection(address, timeout=_PATIENCE)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _send(peer: socket.socket) -> None:
    try:
        peer.sendall(b".")
    except OSError:
        raise _gone() from None


def _receive(peer: socket.socket) -> None:
    try:
        peer.settimeout(None)
        if peer.recv(1):
            return
    except OSError:
        pass
    raise _gone()


def _gone() -> RuntimeError:
    return RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1")
