"""A tree of nodes to a `JobSpec`, or to everything in it that does not fit the model. Pure.

msgspec stops at the first thing it does not like, so this walks the model beside the tree and asks msgspec
about one value at a time. A value that does not fit is replaced by its default, so that the cross-field rules
can still look at the rest.
"""

import re
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from ddplaunch.spec import units, wishes
from ddplaunch.spec.document import Mapping, Node, Scalar, Sequence, plain
from ddplaunch.spec.models import JobSpec
from ddplaunch.spec.problems import Path, Problem, join
from ddplaunch.spec.wishes import Wish, wish

NOTHING: Any = msgspec.UNSET
"""Stands for a value that could not be made; a problem says why."""

_STAND_INS = {"api_version": "ddplaunch/v1", "name": "", "command": (), "key": "", "mount_path": ""}
"""For required fields that could not be made; rules that touch them are not asked."""

_ELSEWHERE = {
    "nnodes": "nodes",
    "num_nodes": "nodes",
    "replicas": "nodes",
    "nproc": "nproc_per_node",
    "ntasks_per_node": "nproc_per_node",
    "script": "command",
    "args": "command",
    "entrypoint": "command",
    "environment": "env",
    "working_dir": "workdir",
    "cpu": "cpus",
    "gpu": "gpus",
    "mem": "memory",
    "master_addr": "address",
    "master_port": "port",
    "rdzv_backend": "backend",
    "rdzv_timeout": "timeout",
}
"""Words of torchrun, Slurm and Kubernetes for keys that have another name here."""


class Walk:
    """One walk over one file. `problems` is what is wrong, `replaced` the paths where a default stands in."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.replaced: list[Path] = []

    def job(self, root: Node) -> JobSpec | None:
        """The spec, with defaults for what does not fit; None when there is no mapping to begin with."""
        spec = self.struct(root, wish(JobSpec), ())
        return spec if isinstance(spec, JobSpec) else None

    def value(self, node: Node, want: Wish, path: Path) -> Any:
        """*node* as the model wants it, or `NOTHING`."""
        if get_origin(want.base) in (Union, UnionType):
            return self.union(node, want, path)
        if wishes.is_struct(want.base):
            return self.struct(node, want, path)
        if get_origin(want.base) is tuple:
            return self.sequence(node, want, path)
        if get_origin(want.base) is dict:
            return self.mapping(node, want, path)
        return self.leaf(node, want, path)

    def union(self, node: Node, want: Wish, path: Path) -> Any:
        """A type that may be null, or one of some words, beside its one real kind of value."""
        members = get_args(want.base)
        words = [word for member in members if get_origin(member) is Literal for word in get_args(member)]
        kinds = [member for member in members if member is not NoneType and get_origin(member) is not Literal]
        if isinstance(node, Scalar):
            if node.value is None and NoneType in members:
                return None
            if isinstance(node.value, str) and node.value in words:
                return node.value
        if not kinds:
            return self.leaf(node, wish(Literal[tuple(words)]), path)
        kind = wish(kinds[0])
        extra = {**kind.extra, **want.extra}
        if words:
            extra["wanted"] = f"{wishes.wanted(kind)}, or {' or '.join(words)}"
        kind = msgspec.structs.replace(kind, extra=extra)
        if isinstance(node, Scalar) and (near := wishes.did_you_mean(node.text, words)):
            return self.refuse(node, kind, path, hint=near)
        return self.value(node, kind, path)

    def struct(self, node: Node, want: Wish, path: Path) -> Any:
        if not isinstance(node, Mapping):
            return self.refuse(node, want, path)
        known = wishes.fields(want.base)
        values: dict[str, Any] = {}
        for key, entry in node.entries.items():
            if key in known:
                values[known[key].name] = self.value(entry.node, wish(known[key].type), (*path, key))
            else:
                self.unknown(entry.line, entry.column, (*path, key), list(known))
        for key, field in known.items():
            if field.required and key not in node.entries:
                text = wishes.wanted(wish(field.type))
                self.add(node.line, node.column, (*path, key), "nothing", text, f"add the key {key}")
            if field.required and values.get(field.name, NOTHING) is NOTHING:
                values[field.name] = _STAND_INS[field.name]
        return want.base(**{name: value for name, value in values.items() if value is not NOTHING})

    def sequence(self, node: Node, want: Wish, path: Path) -> Any:
        item_want = wish(get_args(want.base)[0])
        if want.extra.get("one_or_many") and isinstance(node, Scalar) and isinstance(node.value, str):
            item = self.value(node, item_want, path)
            return NOTHING if item is NOTHING else (item,)
        if not isinstance(node, Sequence) or len(node.items) < wishes.minimum(want):
            return self.refuse(node, want, path)
        items = [self.value(item, item_want, (*path, index)) for index, item in enumerate(node.items)]
        if NOTHING in items:
            self.replaced.append(path)  # the others have moved up: nothing can be said about their places
        return tuple(item for item in items if item is not NOTHING)

    def mapping(self, node: Node, want: Wish, path: Path) -> Any:
        if not isinstance(node, Mapping):
            return self.refuse(node, want, path)
        key_type, value_type = get_args(want.base)
        if value_type is Any:
            return plain(node)
        key_want, value_want = wish(key_type), wish(value_type)
        values: dict[str, Any] = {}
        for key, entry in node.entries.items():
            if not key_want.fits(key):
                hint = "write NAME: value" if "=" in key else ""
                text = wishes.wanted(key_want)
                self.add(entry.line, entry.column, (*path, key), "this key", text, hint)
                continue
            value = self.value(entry.node, value_want, (*path, key))
            if value is not NOTHING:
                values[key] = value
        return values

    def leaf(self, node: Node, want: Wish, path: Path) -> Any:
        if not isinstance(node, Scalar):
            return self.refuse(node, want, path)
        # `on` and `no` are what a person may write for a switch; anywhere else a surprise is an error.
        if node.reading and not (want.base is bool and isinstance(node.value, bool)):
            return self.refuse(node, want, path)
        value: Any = node.value
        if isinstance(value, str) and "\0" in value:
            self.add(node.line, node.column, path, "a NUL character", "text that a program can be given", "")
            return NOTHING
        if unit := want.extra.get("unit"):
            try:
                value = units.PARSERS[unit](value)
            except units.UnitError as error:
                return self.refuse(node, want, path, hint=str(error))
        if not want.fits(value):
            return self.refuse(node, want, path)
        return msgspec.convert(value, want.bounds, strict=True)

    def unknown(self, line: int, column: int, path: Path, known: list[str]) -> None:
        """An unknown key: its place if the model has one of that name, else the nearest name here."""
        word = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", str(path[-1]).replace("-", "_")).lower()
        word = _ELSEWHERE.get(word, word)
        hint = f"did you mean {word}?" if word in known else ""
        if not hint and (places := [join(place) for place in _places(JobSpec, word)]):
            hint = f"it is called {' or '.join(places)}"
        hint = hint or wishes.did_you_mean(str(path[-1]), known)
        wanted = "a known key" if hint else "one of " + ", ".join(known) if known else "no key"
        self.add(line, column, path, "an unknown key", wanted, hint)

    def refuse(self, node: Node, want: Wish, path: Path, *, hint: str = "") -> Any:
        hint = hint or wishes.hint(node, want, path)
        self.add(node.line, node.column, path, wishes.found(node, path), wishes.wanted(want), hint)
        return NOTHING

    def add(self, line: int, column: int, path: Path, found: str, wanted: str, hint: str) -> None:
        self.replaced.append(path)
        self.problems.append(
            Problem(
                file=self.file,
                line=line,
                column=column,
                path=join(path),
                found=found,
                wanted=wanted,
                hint=hint,
            )
        )


def _places(struct: type[msgspec.Struct], key: str, path: Path = ()) -> list[Path]:
    """Where else in the model *key* stands, in the sections (not in lists or mappings)."""
    places = [(*path, key)] if key in wishes.fields(struct) else []
    for name, field in wishes.fields(struct).items():
        base = wish(field.type).base
        if wishes.is_struct(base):
            places += _places(base, key, (*path, name))
    return places
