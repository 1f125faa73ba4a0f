"""Resolves names within a time limit: getaddrinfo has none, and with a dead name server it takes 30 s."""

from __future__ import annotations

import socket
import time
from typing import Any, Union

from ddplaunch.agent.system.background import Task


class UnknownNameError(Exception):
    """There is no such name, the resolver says."""


class UnansweredNameError(Exception):
    """The resolver failed or did not answer in time. The name may exist."""


_UNKNOWN = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


def resolve(name: str, deadline: float) -> list[str]:
    """Return all addresses of `name`, in the resolver's order, by `deadline` (time.monotonic()).

    Raises UnknownNameError or UnansweredNameError.
    """
    if numeric(name):
        return [name]
    return list(dict.fromkeys(str(to[0]) for to in socket_addresses(name, deadline)))


def socket_addresses(name: str, deadline: float) -> list[tuple[Any, ...]]:
    """Return getaddrinfo's socket addresses, including IPv6 scopes. Raises as `resolve` does."""
    answer: list[Union[list[tuple[Any, ...]], OSError, UnicodeError]] = []
    Task(_look_up, name, answer, name=f"resolve {name}").join(max(0.0, deadline - time.monotonic()))
    if not answer:
        raise UnansweredNameError(f"{name}: the resolver did not answer in time")
    result = answer[0]
    if isinstance(result, list):
        return result
    if isinstance(result, socket.gaierror) and result.errno not in _UNKNOWN:
        raise UnansweredNameError(f"{name}: {result.strerror}")
    raise UnknownNameError(f"{name}: {getattr(result, 'strerror', None) or result}")


def _look_up(name: str, answer: list[Union[list[tuple[Any, ...]], OSError, UnicodeError]]) -> None:
    try:
        answer.append([to for *_, to in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)])
    except (OSError, UnicodeError) as error:  # a name that IDNA refuses, as with a label of 64 letters
        answer.append(error)


def numeric(name: str) -> bool:
    """Whether `name` is an address."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, name.partition("%")[0])
            return True
        except OSError:
            continue
    return False


def is_loopback(address: str) -> bool:
    """Whether packets to `address` never leave the machine."""
    return address == "::1" or address.startswith(("127.", "::ffff:127."))


def family(address: str) -> str:
    """Return 'IPv6' or 'IPv4'."""
    return "IPv6" if ":" in address else "IPv4"


def plain_address(address: str) -> str:
    """Return the address without the prefix that an IPv4 address has on a socket of both families."""
    return address[7:] if address.startswith("::ffff:") and "." in address else address
