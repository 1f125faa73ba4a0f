"""The kinds of value that a job file holds: each with its bounds and the words of its error.

Durations and quantities are parsed when the file is loaded: a `Seconds` field holds a float of seconds and a
`ByteCount` field an int of bytes, whatever way they were written, so that nobody further down parses text.
"""

from typing import Annotated

from msgspec import Meta, Struct

# `unit` tells the loader which parser of units.py turns the text into the number; `wanted` is the error's
# word for a good value. `x-written-as` is the type in the file, which schema.py puts in place of the loaded
# one.
Seconds = Annotated[
    float,
    Meta(
        gt=0,
        le=31_536_000,  # a year, well below what timers overflow at
        extra={"unit": "duration", "wanted": "a duration such as 10s, 2m or 1h30m"},
        extra_json_schema={
            "x-written-as": ["string", "number"],
            "pattern": r"^(\d+(\.\d+)?(ms|s|m|h|d))+$",
            "examples": ["10s", "2m", "1h30m"],
        },
    ),
]
"""A duration: text with units (`1h30m`) or a plain number of seconds; loaded as a float of seconds."""

SlurmTime = Annotated[
    float,
    Meta(
        gt=0,
        le=31_536_000,
        extra={"unit": "slurm_time", "wanted": 'a time such as 90m, 12h, "1:30:00" or "2-00:00:00"'},
        extra_json_schema={
            "x-written-as": ["string"],
            "pattern": r"^((\d+(\.\d+)?(ms|s|m|h|d))+|(\d+-)?\d+(:\d\d){1,2}|\d+-\d+)$",
            "examples": ["90m", "1:30:00", "2-00:00:00"],
        },
    ),
]
"""A duration, or Slurm's own `[d-]hh:mm:ss`; no bare number, since Slurm takes that for minutes."""

ByteCount = Annotated[
    int,
    Meta(
        gt=0,
        le=2**60,
        extra={"unit": "quantity", "wanted": "a quantity such as 16Gi or 500M, or a number of bytes"},
        extra_json_schema={
            "x-written-as": ["string", "integer"],
            "pattern": r"^\d+(\.\d+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$",
            "examples": ["16Gi", "500M"],
        },
    ),
]
"""An amount of memory or disk in Kubernetes' suffixes (Ki Mi Gi Ti k M G T); loaded as an int of bytes."""

WholeSeconds = Annotated[int, Meta(ge=0)]

UserId = Annotated[int, Meta(ge=0, le=2**31 - 1)]

Cores = Annotated[float, Meta(gt=0)]

DeviceCount = Annotated[int, Meta(ge=0, le=64)]

Port = Annotated[int, Meta(ge=1, le=65535, extra={"wanted": "a port from 1024 to 32767"})]

EnvName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        extra={"wanted": "a variable name: letters, digits and _, not beginning with a digit"},
    ),
]

Word = Annotated[str, Meta(pattern=r"^\S+$", extra={"wanted": "one word, without blanks"})]
"""A value that stands alone on a command line; a blank in it is always a slip."""

Line = Annotated[str, Meta(pattern=r"^[^\r\n]+$", extra={"wanted": "text on one line"})]

AbsolutePath = Annotated[
    str, Meta(pattern=r"^/[^\r\n]*$", extra={"wanted": "an absolute path, beginning with /"})
]

DnsLabel = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        max_length=63,
        extra={"wanted": "lower-case letters, digits and '-', at most 63 characters", "slug": True},
    ),
]

DnsName = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        max_length=253,
        extra={"wanted": "lower-case letters, digits, '-' and '.', at most 253 characters", "slug": True},
    ),
]


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A mapping of the job file whose keys are known; an unknown key is an error."""
