"""The field types of the job file, each with its bounds and the words of its error.

Durations and quantities are numbers once a file is loaded: a `Seconds` field holds a float of seconds and a
`ByteCount` field an int of bytes, whichever way they were written. The keys x-wanted, x-hint, x-unit and
x-slug of a field's schema are for `messages` and are left out of the published schema.
"""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ddplaunch.spec.document import Unclear
from ddplaunch.spec.units import parse_duration, parse_quantity, parse_slurm_time

_YEAR = 31_536_000  # well below what timers overflow at

Seconds = Annotated[
    float,
    Field(
        gt=0,
        le=_YEAR,
        json_schema_extra={
            "type": ["string", "number"],
            "pattern": r"^(\d+(\.\d+)?(ms|s|m|h|d))+$",
            "examples": ["10s", "2m", "1h30m"],
            "x-unit": "duration",
            "x-wanted": "a duration such as 10s, 2m or 1h30m",
        },
    ),
    BeforeValidator(parse_duration),
]
"""A duration: text with units (`1h30m`) or a plain number of seconds; loaded as a float of seconds."""

SlurmTime = Annotated[
    float,
    Field(
        gt=0,
        le=_YEAR,
        json_schema_extra={
            "type": "string",
            "pattern": r"^((\d+(\.\d+)?(ms|s|m|h|d))+|(\d+-)?\d+(:\d\d){1,2}|\d+-\d+)$",
            "examples": ["90m", "1:30:00", "2-00:00:00"],
            "x-unit": "slurm_time",
            "x-wanted": 'a time such as 90m, 12h, "1:30:00" or "2-00:00:00"',
        },
    ),
    BeforeValidator(parse_slurm_time),
]
"""A duration, or Slurm's own `[d-]hh:mm:ss`; no bare number, since Slurm takes that for minutes."""

ByteCount = Annotated[
    int,
    Field(
        gt=0,
        le=2**60,
        json_schema_extra={
            "type": ["string", "integer"],
            "pattern": r"^\d+(\.\d+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$",
            "examples": ["16Gi", "500M"],
            "x-unit": "quantity",
            "x-wanted": "a quantity such as 16Gi or 500M, or a number of bytes",
        },
    ),
    BeforeValidator(parse_quantity),
]
"""An amount of memory or disk in Kubernetes' suffixes (Ki Mi Gi Ti k M G T); loaded as an int of bytes."""

WholeSeconds = Annotated[int, Field(ge=0)]
UserId = Annotated[int, Field(ge=0, le=2**31 - 1)]
Cores = Annotated[float, Field(gt=0)]
DeviceCount = Annotated[int, Field(ge=0, le=64)]
Port = Annotated[int, Field(ge=1, le=65535, json_schema_extra={"x-wanted": "a port from 1024 to 32767"})]


def _text(pattern: str, wanted: str, **more: Any) -> Any:
    """The bounds of a text, and what a message says that it must be."""
    slug = {"x-slug": True} if more.pop("slug", False) else {}
    return Field(pattern=pattern, json_schema_extra={"x-wanted": wanted, **slug}, **more)


EnvName = Annotated[
    str,
    _text(r"^[A-Za-z_][A-Za-z0-9_]*$", "a variable name: letters, digits and _, not beginning with a digit"),
]
Word = Annotated[str, _text(r"^\S+$", "one word, without blanks")]
"""A value that stands alone on a command line; a blank in it is always a slip."""
Line = Annotated[str, _text(r"^[^\r\n]+$", "text on one line")]
AbsolutePath = Annotated[str, _text(r"^/[^\r\n]*$", "an absolute path, beginning with /")]
InterfaceName = Annotated[str, _text(r"^[^\s^=,:/]{1,15}$", "the exact name of one interface, such as eth0")]
KubernetesVersion = Annotated[str, _text(r"^1\.\d+$", 'a quoted version such as "1.31"')]
BindMount = Annotated[str, _text(r"^[^:\s]+(:[^:\s]+){0,2}$", "SRC:DST or SRC:DST:ro")]
SbatchOption = Annotated[
    str,
    _text(r"^-[^\r\n]+$", "an sbatch option such as --gres=gpu:8, without #SBATCH before it"),
]
JobName = Annotated[
    str,
    _text(
        r"^[a-z]([-a-z0-9]*[a-z0-9])?$",
        "at most 50 lower-case letters, digits and '-', a letter first",
        max_length=50,
        slug=True,
    ),
]
DnsLabel = Annotated[
    str,
    _text(
        r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        "lower-case letters, digits and '-', at most 63 characters",
        max_length=63,
        slug=True,
    ),
]
DnsName = Annotated[
    str,
    _text(
        r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        "lower-case letters, digits, '-' and '.', at most 253 characters",
        max_length=253,
        slug=True,
    ),
]


def _one_or_many(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Paths = Annotated[
    tuple[Line, ...],
    BeforeValidator(_one_or_many),
    Field(
        json_schema_extra={
            "type": ["string", "array"],
            "pattern": r"^[^\r\n]+$",
            "x-wanted": "a path or a list of paths",
        }
    ),
]
"""One path, or a list of them."""


def _yaml_value(value: object) -> object:
    """Return what YAML 1.1 makes of everything below, with lists in place of tuples."""
    if isinstance(value, Unclear):
        return value.value
    if isinstance(value, dict):
        return {key: _yaml_value(item) for key, item in value.items()}
    return [_yaml_value(item) for item in value] if isinstance(value, tuple) else value


FreeForm = Annotated[dict[str, Any], BeforeValidator(_yaml_value)]
"""A mapping that is passed on as it is."""


class Section(BaseModel):
    """A mapping of the job file whose keys are known; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)
