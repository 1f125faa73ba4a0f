"""What each version of torch shows of a rank's collectives: the one table of it.

The collector names the first version that shows more; `make docs` makes docs/reference/torch-versions.md of
it, and a test compares the row of the installed version with what that version does.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_OLD, _NEW = "TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE"


class Torch(NamedTuple):
    """One minor version.

    `records_gloo`: torch's flight recorder has the collectives of Gloo, and `_dump_fr_trace` reads it.
    `records_nccl`: it has those of NCCL, and `_dump_nccl_trace` reads it. `variable` sets how many it keeps,
    and `is_on` says whether it keeps any without. `ran`: what we have run with it besides the corpus.
    """

    version: str
    records_gloo: bool
    records_nccl: bool
    variable: str
    is_on: bool
    ran: str = ""


TABLE = (
    Torch("2.4", False, True, _OLD, False),
    Torch("2.5", False, True, _OLD, False),
    Torch("2.6", False, True, _OLD, False),
    Torch("2.7", False, True, _OLD, False),
    Torch("2.8", True, True, _NEW, False, "records of 2.8.0 are read in tests"),
    Torch("2.9", True, True, _NEW, False),
    Torch("2.10", True, True, _NEW, False),
    Torch("2.11", True, True, _NEW, True),
    Torch("2.12", True, True, _NEW, True),
    Torch("2.13", True, True, _NEW, True),
    Torch("2.14", True, True, _NEW, True),
    Torch("2.15", True, True, _NEW, True),
)


def is_before_all(version: str) -> bool:
    """Whether '2.3.1+cu121' is older than every version of the table; not if it cannot be read."""
    found = re.match(r"(\d+)\.(\d+)", version)
    oldest = tuple(map(int, TABLE[0].version.split(".")))
    return found is not None and (int(found[1]), int(found[2])) < oldest


FIRST_WITH_GLOO = next(each.version for each in TABLE if each.records_gloo)
