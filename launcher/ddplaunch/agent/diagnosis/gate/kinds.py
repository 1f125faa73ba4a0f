"""The subjects of the rules of the gate."""

from __future__ import annotations

from enum import IntEnum


class Kind(IntEnum):
    """The subject of a rule, in the order in which faults have to be mended."""

    IDENTITY = 0
    NAME = 1
    ARRIVAL = 2
    SETTING = 3
    NODE = 4
    PATH = 5
