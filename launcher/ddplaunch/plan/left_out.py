"""Leaves files of a folder under `source` at home: caches, secrets, what the user ignores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ddplaunch.errors import UsageError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILE = ".ddplaunchignore"
"""Lies in a folder that `source` names; its patterns have git's syntax and come after those below."""

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
    """The rules of one folder. `noted` has the paths of what looked private, for a note to the user."""

    def __init__(self, root: Path) -> None:
        # A user who names a private folder itself wants what is in it.
        private = () if _spec(_PRIVATE).match_file(root.resolve().name) else _PRIVATE
        own = _lines(root / IGNORE_FILE)
        try:
            self._spec = _spec((*_CACHES, *private, *own))
        except ValueError as error:
            raise UsageError(
                f"source: {root / IGNORE_FILE} holds a line that is no pattern: {error}",
                hint="its lines are those of a .gitignore: see `git help gitignore`",
            ) from error
        self._private = range(len(_CACHES), len(_CACHES) + len(private))
        self.noted: list[str] = []

    def has(self, name: str) -> bool:
        """Whether *name*, a path below the folder, stays at home; a folder's name ends with a slash."""
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
            hint="it is a list of patterns, as a .gitignore is",
        )
    return data.decode("utf-8", "surrogateescape").splitlines()
