"""The files named under `source`: measured, read, and named as they will be beside the job."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from ddplaunch.errors import SourceTooLargeError, UsageError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec


LIMIT = 650_000
"""Bytes in a source archive, compressed if need be. It shares a Kubernetes ConfigMap, 1 MiB in all, with the
agent and the plan."""

SLURM_LIMIT = 2_000_000
"""The same for Slurm, whose batch script has both in base64, and at most 4 MiB (max_script_size)."""

UNPACKED_LIMIT = 32 << 20
"""Bytes of source before they are compressed, with a header for each file. No code is larger that fits."""

LOCAL_LIMIT = 256 << 20
"""Bytes of source for a run on this machine, where they are only copied. More than that is data listed by
mistake."""

_TAR_HEADER = 512


class SourceFile(NamedTuple):
    """One file of `source`, already read. `link`: it is a symbolic link, and this is where it leads.

    An empty folder is a file without data whose name ends in a slash.
    """

    data: bytes
    executable: bool = False
    link: str = ""


class Source(NamedTuple):
    """Files by their POSIX path below the ranks' working directory, and what looked private and stays at
    home.
    """

    files: Mapping[str, SourceFile]
    left_out: tuple[str, ...] = ()


class _Found(NamedTuple):
    name: str
    path: Path
    size: int
    link: str = ""


def read(
    paths: tuple[str, ...], base: Path, limit: int = UNPACKED_LIMIT, *, links_outside: bool = False
) -> Source:
    """Return the files that *paths* name, relative to *base*. They are measured first: see *limit*.

    Each file keeps its path relative to *base*: `source: [src]` brings `src/train.py`, for the command
    `src/train.py`. What is outside *base* arrives under its own last name: `../common` as `common`.
    `links_outside`: the nodes may see what links out of a folder lead to, so these stay links. Raises
    UsageError for anything that is missing, too large, no plain file, or a link out of its folder.
    """
    found: list[_Found] = []
    left_out: list[Path] = []
    room = limit
    for each in _find(paths, base, left_out, links_outside=links_outside):
        found.append(each)
        room -= _TAR_HEADER + each.size
        if room < 0:
            _refuse(found, limit)
    files: dict[str, SourceFile] = {}
    room = limit
    for name, path, _, link in found:
        if link or name.endswith("/"):
            file = SourceFile(b"", link=link)
        else:
            with path.open("rb") as stream:
                data = stream.read(room + 1)  # it may have grown meanwhile, and files in /proc have no size
                executable = bool(os.fstat(stream.fileno()).st_mode & 0o100)
            room -= len(data)
            if room < 0:
                _refuse([_Found(name, path, len(data))], limit)
            file = SourceFile(data, executable)
        if files.setdefault(name, file) != file:
            raise UsageError(f"source: two different files would both be {name}", hint="rename one of them")
    named = {(base / given).resolve() for given in paths}
    at_home = {_from(base, path).as_posix() for path in left_out if path.resolve() not in named}
    return Source(files, tuple(sorted(at_home)))


def _from(base: Path, path: Path) -> Path:
    """Return the path relative to `base`; unchanged if `source` named an absolute path outside."""
    return path.relative_to(base) if path.is_relative_to(base) else path


def _refuse(found: list[_Found], limit: int) -> None:
    largest = max(found, key=lambda each: each.size)
    size = sum(each.size for each in found)
    raise SourceTooLargeError(
        f"source: {len(found):,} files with {size:,} bytes were found before the search ended, and "
        f"only {limit:,} may travel with a job; the largest is {largest.name} ({largest.size:,} bytes)",
        hint="list only the code under `source`, or name the rest in a .ddplaunchignore; put data on a "
        "volume, and large code into the image",
    )


def _find(
    paths: tuple[str, ...], base: Path, left_out: list[Path], *, links_outside: bool
) -> Iterator[_Found]:
    """Yield each file once, however many of *paths* lead to it."""
    seen: set[tuple[str, int, int]] = set()
    for given in paths:
        root = base / given
        if not _exists(root, given):
            raise UsageError(f"source: {given} does not exist in {base.absolute()}", hint=_near(root))
        arrives = _arrives(root, base)
        for path in _walk(root, left_out, links_outside=links_outside) if root.is_dir() else [root]:
            name = (arrives / path.relative_to(root)).as_posix()
            link = str(path.readlink()) if path != root and path.is_symlink() else ""
            if link:
                status, size = path.lstat(), 0
                link = _leads(path, link, root)
            elif path.is_dir():
                status, size, name = path.stat(), 0, f"{name}/"
            elif path.is_file():
                status = path.stat()
                size = status.st_size
            else:
                raise UsageError(
                    f"source: {path} is not a plain file",
                    hint="leave it out: list the files and folders that are code",
                )
            key = (name, status.st_dev, status.st_ino)
            if key not in seen:
                seen.add(key)
                yield _Found(name, path, size, link)


def _arrives(root: Path, base: Path) -> PurePosixPath:
    """Return the path, below the ranks' working directory, of something that `source` names."""
    name = os.path.relpath(os.path.normpath(root), os.path.normpath(base))
    parts = PurePosixPath(name).parts
    return PurePosixPath(root.resolve().name) if ".." in parts else PurePosixPath(name)


def _leads(link: Path, target: str, root: Path) -> str:
    """Return where a link leads on a node: a relative path if it stays inside `root`, otherwise the whole
    path.
    """
    there = os.path.normpath(link.parent / target)
    if not Path(target).is_absolute() and Path(there).is_relative_to(os.path.normpath(root)):
        return target
    meant, inside = link.resolve(), root.resolve()
    if not meant.is_relative_to(inside):
        return str(meant)
    return os.path.relpath(meant, inside / link.parent.relative_to(root))


def _near(path: Path) -> str:
    """Return a hint with a file of a similar name."""
    import difflib  # only a missing file needs it

    try:
        near = difflib.get_close_matches(path.name, sorted(each.name for each in path.parent.iterdir()), n=1)
    except OSError:
        near = []
    return f"did you mean {near[0]}?" if near else "paths are relative to the job file"


def _exists(root: Path, given: str) -> bool:
    try:
        return root.exists()
    except OSError as error:  # a name that is too long, or a folder that is another user's
        raise UsageError(
            f"source: {given[:80]} cannot be looked at: {error.strerror}",
            hint="`ls -ld` shows who owns it and the folders above it",
        ) from error


def _walk(root: Path, left_out: list[Path], *, links_outside: bool) -> Iterator[Path]:
    """Yield the files, links and empty folders below `root` that travel."""
    rules = LeftOut(root)
    inside = root.resolve()
    for folder, folders, names in os.walk(root):
        below = Path(folder).relative_to(root)
        links = [name for name in folders if Path(folder, name).is_symlink()]  # os.walk would skip them
        if not folders and not names and Path(folder) != root:
            yield Path(folder)
        folders[:] = sorted(
            name for name in folders if name not in links and not rules.has(f"{(below / name).as_posix()}/")
        )
        for name in sorted([*names, *links]):
            if rules.has((below / name).as_posix()):
                continue
            path = Path(folder, name)
            if path.is_symlink() and not _stays(path, inside, rules, links_outside=links_outside):
                continue
            yield path
    left_out += [root / name for name in rules.noted]


def _stays(link: Path, inside: Path, rules: LeftOut, *, links_outside: bool) -> bool:
    """Whether a link may travel. Raises UsageError if it leads nowhere, or outside."""
    meant = link.resolve()
    if meant.is_relative_to(inside):
        if not meant.exists():
            raise UsageError(
                f"source: {link} is a broken link",
                hint="remove it, or name it in a .ddplaunchignore",
            )
        return not rules.has(meant.relative_to(inside).as_posix())
    if not links_outside:
        raise UsageError(
            f"source: {link} is a link to {meant}, which is outside of {inside}",
            hint="name its target under `source`, copy it into the folder, or name the link in a "
            ".ddplaunchignore; put data on a volume",
        )
    return True


IGNORE_FILE = ".ddplaunchignore"
"""A file in a folder that `source` names. Its patterns have git's syntax and come after those below."""

_MAX_BYTES = 2**20

_CACHES = (
    "__pycache__/",
    ".venv/",
    ".mypy_cache/",
    ".ruff_cache/",
    ".pytest_cache/",
    IGNORE_FILE,
)
"""These never belong to a job, and would change its bytes from one submission to the next."""

_PRIVATE = (
    ".git",
    ".env",
    ".env.*",
    "!.env.example",
    "!.env.sample",
    "!.env.template",
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".netrc",
    ".pgpass",
    ".pypirc",
    ".git-credentials",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
)
"""These look like secrets, or hold whatever a repository has ever held."""


class LeftOut:
    """The rules of one folder. `noted` has the paths that looked private, for a note to the user."""

    def __init__(self, root: Path) -> None:
        # A user who names a private folder itself wants what is in it.
        private = () if _spec(_PRIVATE).match_file(root.resolve().name) else _PRIVATE
        own = _lines(root / IGNORE_FILE)
        try:
            self._spec = _spec((*_CACHES, *private, *own))
        except ValueError as error:
            raise UsageError(
                f"source: {root / IGNORE_FILE} contains a line that is not a pattern: {error}",
                hint="its lines are written as in a .gitignore: see `git help gitignore`",
            ) from error
        self._private = range(len(_CACHES), len(_CACHES) + len(private))
        self.noted: list[str] = []

    def has(self, name: str) -> bool:
        """Whether *name*, a path below the folder, stays at home. A folder's name ends in a slash."""
        found = self._spec.check_file(name)
        if found.include and found.index in self._private:
            self.noted.append(name)
        return bool(found.include)


def _spec(lines: tuple[str, ...]) -> GitIgnoreSpec:
    import pathspec  # only a folder under `source` needs it

    return pathspec.GitIgnoreSpec.from_lines(lines)


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        return []
    with path.open("rb") as stream:
        data = stream.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise UsageError(
            f"source: {path} has more than {_MAX_BYTES:,} bytes",
            hint="it is a list of patterns, like a .gitignore",
        )
    return data.decode("utf-8", "surrogateescape").splitlines()
