"""The field types of the job file, each with its bounds and its error message.

Once a file is loaded, a `Seconds` field holds a float of seconds and a `ByteCount` field an int of bytes,
however they were written. The keys x-wanted, x-hint, x-unit and x-slug in a field's schema are for
`messages`, and are left out of the published schema.
"""

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ddplaunch.agent.job_file.rules import SIGNALS
from ddplaunch.agent.job_file.units import MOST, parse_duration, parse_quantity, parse_slurm_time
from ddplaunch.spec.document import Unclear

Seconds = Annotated[
    float,
    Field(
        gt=0,
        le=MOST["duration"],
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
        le=MOST["slurm_time"],
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
"""A duration, or Slurm's own `[d-]hh:mm:ss`. A bare number is not allowed, because Slurm takes it for
minutes."""

ByteCount = Annotated[
    int,
    Field(
        gt=0,
        le=MOST["quantity"],
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
"""An amount of memory or disk with Kubernetes' suffixes (Ki Mi Gi Ti k M G T); loaded as an int of bytes."""

WholeSeconds = Annotated[int, Field(ge=0)]
UserId = Annotated[int, Field(ge=0, le=2**31 - 1)]
Cores = Annotated[float, Field(gt=0)]
DeviceCount = Annotated[int, Field(ge=0, le=64)]
Port = Annotated[int, Field(ge=1, le=65535, json_schema_extra={"x-wanted": "a port from 1024 to 32767"})]


def _text(pattern: str, wanted: str, **more: Any) -> Any:
    """Return the bounds of a text, with `wanted` for its error message."""
    slug = {"x-slug": True} if more.pop("slug", False) else {}
    return Field(pattern=pattern, json_schema_extra={"x-wanted": wanted, **slug}, **more)


_DEPENDENCY = (
    r"(singleton|(after|afterany|afterburstbuffer|afternotok|afterok)(:[0-9]+(_([0-9]+|\*))?(\+[0-9]+)?)+)"
)

EnvName = Annotated[
    str,
    _text(r"^[A-Za-z_][A-Za-z0-9_]*$", "a variable name: letters, digits and _, not beginning with a digit"),
]
Word = Annotated[str, _text(r"^\S+$", "one word without spaces")]
"""One argument of a command line. A blank in it is always a mistake."""
Line = Annotated[str, _text(r"^[^\r\n]+$", "text on one line")]
AbsolutePath = Annotated[str, _text(r"^/[^\r\n]*$", "an absolute path, beginning with /")]
InterfaceName = Annotated[str, _text(r"^[^\s^=,:/]{1,15}$", "the exact name of one interface, such as eth0")]
KubernetesVersion = Annotated[str, _text(r"^1\.\d+$", 'a quoted version such as "1.31"')]
BindMount = Annotated[str, _text(r"^[^:\s]+(:[^:\s]+){0,2}$", "SRC:DST or SRC:DST:ro")]
SlurmDependency = Annotated[
    str,
    _text(
        rf"^{_DEPENDENCY}((,{_DEPENDENCY})*|(\?{_DEPENDENCY})*)$",
        "a dependency as in Slurm, such as afterok:1234, afterany:1234:1235 or singleton",
    ),
]
SbatchOption = Annotated[
    str,
    _text(r"^-[^\r\n]+$", "an sbatch option such as --gres=gpu:8, without #SBATCH before it"),
]
SignalName = Annotated[
    str,
    _text(
        f"^((SIG)?({'|'.join(SIGNALS)})|(sig)?({'|'.join(SIGNALS).lower()}))$",
        f"a signal that a program can handle: {', '.join(SIGNALS)}",
    ),
]
"""A signal by its POSIX name, with or without SIG, in upper or lower case."""

GpuType = Annotated[
    str,
    _text(
        r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        "a type such as h100: at most 63 letters, digits, '-', '_', '.'",
        max_length=63,
    ),
]
"""A type of GPU in a form that both Slurm and Kubernetes' labels accept."""


def _as_text(value: object) -> object:
    return str(value) if type(value) is int else value


Switches = Annotated[
    str,
    BeforeValidator(_as_text),
    Field(
        pattern=r"^[1-9]\d*(@\d[\d:-]*)?$",
        json_schema_extra={
            "type": ["string", "integer"],
            "minimum": 1,
            "examples": ["1", "1@10:00"],
            "x-wanted": 'a number, if you like with the longest wait, as in "1@10:00"',
        },
    ),
]
"""sbatch's --switches: COUNT or COUNT@TIME."""
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
"""A path, or a list of paths."""


def _yaml_value(value: object) -> object:
    """Return the value as YAML 1.1 reads it, with lists instead of tuples."""
    if isinstance(value, Unclear):
        return value.value
    if isinstance(value, dict):
        return {key: _yaml_value(item) for key, item in value.items()}
    return [_yaml_value(item) for item in value] if isinstance(value, tuple) else value


FreeForm = Annotated[dict[str, Any], BeforeValidator(_yaml_value)]
"""A mapping that is passed on unchanged."""


class Section(BaseModel):
    """A mapping of the job file whose keys are known. An unknown key is an error.

    A validator is built when it is first needed. The default of a key that holds a section is made with
    `model_construct`, which needs none: only that of the whole job is built.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


def _or_a_range(made: dict[str, Any]) -> None:
    number = {key: made.pop(key) for key in ("type", "minimum", "maximum")}
    made["anyOf"] = [
        number,
        {
            "type": "object",
            "properties": {
                "min": {"description": "As `min_nodes`.", **number},
                "max": {"description": "As `nodes`.", **number},
                "newcomers": {"description": "As `newcomers`.", "enum": ["refuse", "join"]},
            },
            "required": ["min", "max"],
            "additionalProperties": False,
        },
        {"type": "string", "pattern": _RANGE},
    ]
    made["x-wanted"] = f"a whole number from 1 to {_MOST_NODES}, or a range such as {{min: 2, max: 4}}"


_MOST_NODES = 10_000
_RANGE = r"^\d{1,5}:\d{1,5}$"
NodeCount = Annotated[int, Field(ge=1, le=_MOST_NODES, json_schema_extra=_or_a_range)]
"""A number of nodes. `node_range` reads a range of them."""


def node_range(value: object) -> tuple[int, int] | None:
    """Return the two numbers of `{min: 2, max: 4}` or of torchrun's `2:4`; None if it is no such range.

    YAML 1.1 reads the bare text as a number in base 60.
    """
    text = value.text if isinstance(value, Unclear) else value
    if isinstance(text, str) and re.fullmatch(_RANGE, text):
        least, _, most = text.partition(":")
        value = {"min": int(least), "max": int(most)}
    if not isinstance(value, dict) or value.keys() != {"min", "max"}:
        return None
    least, most = value["min"], value["max"]
    is_range = all(type(each) is int and 1 <= each <= _MOST_NODES for each in (least, most))
    return (least, most) if is_range else None
