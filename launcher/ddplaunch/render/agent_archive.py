"""Packs the agent: once for a wheel, and in a checkout whenever a source of the agent has changed.

The same sources give the same bytes, whatever machine packs them: no times, owners or modes go in, and bzip2
compresses alike everywhere, which zlib's builds do not.
"""

from __future__ import annotations

import bz2
import hashlib
import io
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from ddplaunch.render import private_names, short_names
from ddplaunch.render.minify import minify
from ddplaunch.render.used_imports import keep_used

_PACKAGE = Path(__file__).parents[1]
_PACKERS = [
    Path(__file__).with_name(f"{name}.py")
    for name in ("agent_archive", "minify", "private_names", "short_names", "used_imports")
]
_JOIN = ("key", "launchers", "munge", "prepare", "run", "spot")
_NO_MPI = "hook/without_mpi.py"
_OUTSIDE = ("outside",)
"""Modules that look at jobs which other launchers have started."""
_HOOK = "/hook/"
"""Modules whose functions users see in the stacks of their own processes: they keep their names."""
_NOT_IN_PODS = (
    "slurm",
    "local",
    *_OUTSIDE,
    "supervisor/mpi_keeper.py",
    "platforms/scheduler_variables.py",
    *(f"join/{name}.py" for name in _JOIN),
)
ARCHIVES: Final = {
    "agent.pyz": ("job_file", _NO_MPI, *_OUTSIDE),
    "agent-for-looks.pyz": (
        "job_file",
        "checks",
        "gate",
        "hub",
        "local",
        "slurm",
        "diagnosis/gate",
        "supervisor/supervisor.py",
        "supervisor/without_hub.py",
        _NO_MPI,
        *(f"join/{name}.py" for name in _JOIN),
    ),
    "agent-for-pods.pyz": ("job_file", *_NOT_IN_PODS),
    "agent-for-charts.pyz": _NOT_IN_PODS,
}
"""File names, with the folders and modules of the agent that each leaves out."""
_INSTEAD: Final = {_NO_MPI: "hook/ddplaunch_mpi.py"}
"""Modules that have the place of others in the archives that do not leave them out."""
_ENTRY = "__main__.py"
_BESIDE = ("packed.py", "unpack_bz2.py")  # beside the entry, as they find and unpack all others
_MODULES = "modules"  # those, by the name that the finder knows
_ORDERS: Final[Sequence[Callable[[str], object]]] = (
    str,
    lambda name: name.rpartition("/")[2],
    lambda name: name[::-1],
    lambda name: _HOOK not in name,
    lambda name: "/diagnosis/" in name,
    len,
)
"""Orders of the modules to try: by name, by the file's name alone, and so on."""
_REGULAR_FILE = 0o100644
_END_MARK = b"PK\5\6"
_END_SIZE = 22


def current(name: str, package: Path = _PACKAGE) -> bytes:
    """The archive of that name, for a checkout.

    Packing takes longer than the rest of `render`, so the result is kept where Python keeps what it compiles,
    and is taken from there until a source changes.
    """
    sources = _sources(name, package)
    head = _head(sources)
    kept = package / "__pycache__" / name
    with suppress(OSError):
        data = kept.read_bytes()
        if data.startswith(head) and data[-_END_SIZE:].startswith(_END_MARK):
            return data
    data = _packed(head, sources)
    with suppress(OSError):
        kept.parent.mkdir(exist_ok=True)  # not there where Python was told to keep nothing, as in many images
        kept.write_bytes(data)
    return data


def packed(name: str, package: Path = _PACKAGE) -> bytes:
    """The archive of that name, packed now. Its second line is the digest of what it was made from."""
    sources = _sources(name, package)
    return _packed(_head(sources), sources)


def _sources(name: str, package: Path) -> dict[str, bytes]:
    instead = {
        package / "agent" / own: package / "agent" / of
        for own, of in _INSTEAD.items()
        if own not in ARCHIVES[name]
    }
    left_out = {*(package / "agent" / each for each in ARCHIVES[name]), *instead.values()}
    modules = [package / "__init__.py", *(package / "agent").rglob("*.py")]
    modules = [path for path in modules if left_out.isdisjoint([path, *path.parents])]
    paths = {instead.get(path, path).relative_to(package.parent).as_posix(): path for path in modules}
    return {name: path.read_bytes() for name, path in sorted(paths.items())}


def _head(sources: Mapping[str, bytes]) -> bytes:
    digest = _digest([*sources.items(), *((path.name, path.read_bytes()) for path in _PACKERS)])
    return f"#!/usr/bin/env python3\n# {digest}\n".encode()


def _digest(sources: Iterable[tuple[str, bytes]]) -> str:
    digest = hashlib.sha256()
    for name, source in sources:
        digest.update(f"{name} {len(source)}\n".encode() + source)
    return digest.hexdigest()


def _packed(head: bytes, sources: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    buffer.write(head)
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in sorted(_members(sources).items()):
            member = zipfile.ZipInfo(name)  # of 1980: the earliest date that there is
            member.create_system = 3  # Unix
            member.external_attr = _REGULAR_FILE << 16
            archive.writestr(member, data)
    return buffer.getvalue()


def _members(sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the zip file's members: Python finds the entry and the finder, and the finder all others."""
    texts = {name: source.decode() for name, source in sources.items()}
    mentions = Counter(word for text in texts.values() for word in {*private_names.words(text)})
    shared = {word for word, modules in mentions.items() if modules > 1}
    files = {name: _smaller(name, text, shared).encode() for name, text in texts.items()}
    first = {name: files.pop(f"ddplaunch/agent/{name}") for name in (_ENTRY, *_BESIDE)}
    orders = [sorted(files, key=lambda name: (key(name), name)) for key in _ORDERS]
    # bzip2 packs one order up to a kilobyte better than another, and which one changes with every edit.
    return {**first, _MODULES: min((_compressed(files, order) for order in orders), key=len)}


def _smaller(name: str, source: str, shared: Collection[str]) -> str:
    """`shared`: the private names that several modules mention."""
    short = short_names.shorten(source)
    small = minify(short if _HOOK in name else private_names.shorten(short, shared))
    return small if name.endswith("__init__.py") else keep_used(small)


def _compressed(files: Mapping[str, bytes], order: Iterable[str]) -> bytes:
    return bz2.compress(b"\0".join(part for name in order for part in (name.encode(), files[name])))
