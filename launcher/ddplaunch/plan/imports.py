"""Finds a folder's training script, and what one runs: modules that it imports, and files that it names.

A module is looked for as Python would do it: in the script's folder, then where a job can add folders with
PYTHONPATH. Nothing is imported or run. What is installed on the nodes does not matter.

`ddplaunch init` and `submit` call it, to propose what has to be under `source`; whatever reads a job file
calls it, to note modules that are missing there.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import re
import warnings
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from ddplaunch.errors import UsageError
from ddplaunch.plan.source import LIMIT, LeftOut

SMALL: Final = 100_000
"""Bytes of a folder of configurations up to which the whole folder is proposed."""
_SETTINGS: Final = (".cfg", ".conf", ".gin", ".ini", ".json", ".toml", ".yaml", ".yml")
_TABLES: Final = (".csv", ".tsv", ".txt")
_CONVENTIONAL: Final = ("conf", "config", "configs")
_MOST_MODULES = 5000
_MOST_FILES = 5000
_MOST_BYTES = 5_000_000
"""Bytes in one module: a larger one is generated, and imports nothing of interest."""
_PATH = re.compile(r"(?:\.{1,2}/)*\w[\w ./-]{0,200}")


class Kept(NamedTuple):
    """A path that the code names but that is not proposed, and how many bytes are there, or at least how
    many.
    """

    path: str
    size: int


class Needs(NamedTuple):
    """A script's command and needs. Paths are POSIX paths relative to the job file's folder."""

    command: tuple[str, ...]
    paths: tuple[str, ...]
    python_path: tuple[str, ...] = ()  # folders in which Python does not look by itself
    kept: tuple[Kept, ...] = ()


class _Imports(NamedTuple):
    names: list[tuple[int, tuple[str, ...], tuple[str, ...]]]  # level, module, and the names taken from it
    texts: list[str]
    computed: bool  # it imports some module whose name is not in the text


def find(script: Path, base: Path) -> Needs:
    """Return what `script` needs. It must be in `base`, the job file's folder, or below it.

    Raises UsageError for a script that is elsewhere, or that does not exist.
    """
    if not script.is_file():
        raise UsageError(f"there is no script {script}", hint="name an existing script with --script")
    search = _Search(script.absolute(), base.absolute())
    search.run()
    return search.needs()


def missing(script: Path, base: Path, sent: Container[str]) -> list[str]:
    """Return the modules in `base`, and below it, that `script` imports and that are not `sent`.

    The names in `sent` are POSIX paths relative to `base`. Files that the code only names are not returned.
    """
    search = _Search(script.absolute(), base.absolute())
    search.run()
    imported = (path.relative_to(search.base) for path in search.modules if path not in search.named)
    return sorted(
        path.as_posix()
        for path in imported
        if not any(each.as_posix() in sent for each in (path, *path.parents))  # a parent: if it is a link
    )


class _Search:
    def __init__(self, script: Path, base: Path) -> None:
        if not script.is_relative_to(base):
            raise UsageError(
                f"{script} is outside of {base}, the job file's folder",
                hint=f"write the job file next to it: {script.parent / 'job.yaml'}",
            )
        self.base = base
        self.script = script
        self.own = script.parent
        self.is_module = bool(_level(_imports(script))) and self.own != base
        self.modules: dict[Path, Path] = {script: base}  # and the folder in which Python finds each
        if not self.is_module:
            self.modules[script] = self.own
        elif (top := self._top(script)) is not None:
            self.modules[script] = top.parent
        root = self.modules[script]
        parents = [each for each in self.own.parents if each.is_relative_to(base)]
        first = [base, root] if self.is_module else [self.own]
        self.folders = list(dict.fromkeys([*first, base, *parents, base / "src"]))
        self.python_path = [root] if self.is_module and root != base else []
        self.named: dict[Path, None] = {}
        self.kept: dict[str, int] = {}

    def run(self) -> None:
        """Read every module once."""
        waiting = [self.script]
        seen: set[Path] = set()
        while waiting and len(seen) < _MOST_MODULES:
            file = waiting.pop()
            if file in seen:
                continue
            seen.add(file)
            found = _imports(file)
            before = set(self.modules)
            for text in found.texts:
                self._name(text, file.parent)
            for level, module, names in found.names:
                self._import(file, level, module, names)
            if found.computed:
                self._whole(file)
            waiting += [each for each in self.modules if each not in before]

    def _import(self, file: Path, level: int, module: tuple[str, ...], names: tuple[str, ...]) -> None:
        if level:
            package = file.parents[level - 1] if level <= len(file.parents) else self.base
            if package.is_relative_to(self.base):
                self._add(_walk(package, module, names), self.modules[file], names)
            return
        for regular in (True, False):  # a folder without __init__.py comes after all others, wherever it is
            for folder in self.folders:
                if _is_regular(folder, module[0]) != regular:
                    continue
                files = _walk(folder, module, names)
                if files:
                    self._add(files, folder, names)
                    if folder not in (self.folders[0], *self.python_path):
                        self.python_path.append(folder)
                    return

    def _add(self, files: list[Path], root: Path, names: tuple[str, ...]) -> None:
        for file in files:
            self.modules.setdefault(file, root)
        if "*" in names and files:
            self._whole(files[-1])

    def _name(self, text: str, beside: Path) -> None:
        """Keep the file or folder that a text in the code names. A program is read like the script."""
        for folder in (self.base, beside):
            path = _plain(folder / text)
            if path.is_relative_to(self.base) and path != self.base and _exists(path):
                self.named[path] = None
                if path.suffix == ".py" and path.is_file():
                    self.modules.setdefault(path, path.parent)

    def _whole(self, file: Path) -> None:
        """Add all modules of the package of a module that imports others by computed names."""
        top = self._top(file)
        if top is not None:
            for each in _bounded(top):
                if each.suffix == ".py":
                    self.modules.setdefault(each, self.modules[file])

    def _top(self, file: Path) -> Path | None:
        """Return the folder of the outermost package that contains the module; None: no package does."""
        top, root = None, self.modules[file]
        for folder in file.parents:
            if folder == root or not (folder / "__init__.py").is_file():
                break
            top = folder
        return top

    def needs(self) -> Needs:
        """Return what was found."""
        chosen: dict[Path, None] = {self.script: None}
        large: dict[Path, bool] = {}
        for file in self.modules:
            top = None if file == self.script and not self.is_module else self._top(file)
            if top is not None and top not in large:
                size = sum(each.lstat().st_size for each in _bounded(top))
                large[top] = size > LIMIT
                if large[top]:
                    self.kept[self._named(top)] = size
            chosen[file if top is None or large[top] else top] = None
        self._settings(chosen)
        paths = [self._named(path) for path in chosen if not any(up in chosen for up in path.parents)]
        module = self.script.relative_to(self.modules[self.script]).with_suffix("")
        return Needs(
            ("-m", ".".join(module.parts)) if self.is_module else (self._named(self.script),),
            (*paths[:1], *sorted(paths[1:])),
            tuple(self._named(folder) for folder in self.python_path),
            tuple(Kept(path, size) for path, size in sorted(self.kept.items())),
        )

    def _settings(self, chosen: dict[Path, None]) -> None:
        """Add files and folders of settings: those that the code names, and those with a usual name."""
        usual = [folder / name for folder in (self.own, self.base) for name in _CONVENTIONAL]
        for path in dict.fromkeys([*usual, *self.named]):
            if any(part.startswith(".") for part in path.parts[len(self.base.parts) :]):
                continue
            if path in chosen or any(up in chosen for up in path.parents) or not _exists(path):
                continue
            if any(each.is_relative_to(path) for each in self.modules):
                continue  # a folder of code: what is imported from it is known
            files = _bounded(path) if path.is_dir() else [path]
            size = sum(each.lstat().st_size for each in files)
            kinds = (*_SETTINGS, ".py") if path.is_dir() else (*_SETTINGS, *_TABLES)
            settings = bool(files) and all(each.suffix in kinds for each in files)
            if settings and size <= SMALL:
                chosen[path] = None
            elif files and (path not in usual or any(each.suffix in _SETTINGS for each in files)):
                self.kept[self._named(path)] = size

    def _named(self, path: Path) -> str:
        return path.relative_to(self.base).as_posix()


def _level(found: _Imports) -> int:
    return max((level for level, _, _ in found.names), default=0)


def _imports(file: Path) -> _Imports:
    """Return what a file imports, and its short texts; nothing if it is not Python of this version."""
    found = _Imports([], [], computed=False)
    try:
        if file.stat().st_size > _MOST_BYTES:
            return found
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return found
    computed = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.names.extend((0, tuple(alias.name.split(".")), ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = tuple(node.module.split(".")) if node.module else ()
            found.names.append((node.level, module, tuple(alias.name for alias in node.names)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if _PATH.fullmatch(node.value):
                found.texts.append(node.value.rstrip("/"))
        elif isinstance(node, ast.Call):
            computed |= _called(node, found)
    return found._replace(computed=computed)


def _called(call: ast.Call, found: _Imports) -> bool:
    """Add the module that a call of `import_module` names. Returns whether the name is computed."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name in ("iter_modules", "walk_packages"):
        return True
    if name not in ("import_module", "__import__") or not call.args:
        return False
    first: ast.AST = call.args[0]
    whole = isinstance(first, ast.Constant)
    while not isinstance(first, ast.Constant):  # f"models.{name}", "models." + name
        parts = getattr(first, "values", None) or [getattr(first, "left", None)]
        if not isinstance(parts[0], ast.AST):
            return True
        first = parts[0]
    text = str(first.value).lstrip(".")
    level, names = len(str(first.value)) - len(text), () if whole else ("*",)
    module = text if whole else text.rpartition(".")[0]
    if module or level:
        found.names.append((level, tuple(module.split(".")) if module else (), names))
    return not whole


def _is_regular(folder: Path, name: str) -> bool:
    return (folder / name / "__init__.py").is_file() or (folder / f"{name}.py").is_file()


def _walk(folder: Path, module: tuple[str, ...], names: tuple[str, ...]) -> list[Path]:
    """Return the files that run when `module`, and `names` from it, are imported from a folder.

    A folder that has such a name but no module of that name, such as a data set or a log, also gives [].
    """
    found: list[Path] = []
    for part in module:
        package, file = folder / part / "__init__.py", folder / f"{part}.py"
        if package.is_file():
            found.append(package)
        elif file.is_file():
            return [*found, file]
        elif not (folder / part).is_dir():
            return found
        folder = folder / part
    if not module and (folder / "__init__.py").is_file():
        found.append(folder / "__init__.py")
    for name in names:
        if name == "*" and folder.is_dir():
            found += sorted(folder.glob("*.py"))
        files = (folder / name / "__init__.py", folder / f"{name}.py")
        found += [each for each in files if each.is_file()][:1]
    return found


def _bounded(folder: Path) -> list[Path]:
    """Return those files of a folder that would travel, at most `_MOST_FILES`."""
    found: list[Path] = []
    with contextlib.suppress(OSError):  # another user's; `submit` says so
        found.extend(itertools.islice(_files(folder, LeftOut(folder)), _MOST_FILES))
    return found


def _files(top: Path, rules: LeftOut) -> Iterator[Path]:
    folders = [top]
    while folders:
        for path in sorted(folders.pop().iterdir()):
            below = path.relative_to(top).as_posix()
            if path.is_dir() and not path.is_symlink():
                if not rules.has(f"{below}/"):
                    folders.append(path)
            elif not rules.has(below):
                yield path


def _plain(path: Path) -> Path:
    """Return the path without `..`, even if there are links on the way."""
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts[1:] = parts[1:-1]
        else:
            parts.append(part)
    return Path(*parts)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


_USUAL: Final = ("train.py", "main.py")
_NO_SCRIPTS = re.compile(r"(setup|conftest|noxfile|test_.*|.*_test)\.py|[-.].*")
_NO_FOLDERS = re.compile(r"[-._].*|tests?|venv|env|node_modules|build|dist|site-packages")
_TRAINS = re.compile(
    rb"\b(init_process_group|init_device_mesh|LOCAL_RANK|torchrun|Accelerator|Fabric|Trainer"
    rb"|DistributedDataParallel|FullyShardedDataParallel|fully_shard|deepspeed\.initialize)\b"
)
"""What a script does that is started as ranks, by itself or by a framework."""
_IS_RUN = re.compile(rb"^if __name__ *== *['\"]__main__['\"]", re.MULTILINE)
_MOST_SCRIPT_BYTES = 5_000_000
_MOST_SCRIPTS = 500


class FoundScript(NamedTuple):
    """The script that is meant; where that is not clear, None and the possible ones."""

    script: Path | None
    candidates: tuple[Path, ...] = ()


def find_script(folder: Path) -> FoundScript:
    """Return the training script of a folder.

    It is train.py, main.py, the only one that is called like train_x.py, the only one that starts or uses a
    process group, or the only one that can be run; else such a one in the folders below; else the only file.
    """
    here = _scripts(folder)
    below = [
        each for each in _that(_TRAINS, _below(folder)) if each.name in _USUAL or _IS_RUN.search(_text(each))
    ]
    training, runs = _that(_TRAINS, here), _that(_IS_RUN, here)
    groups = [*_usual(here), training, [each for each in training if each in runs], runs]
    groups += [*_usual(below), below, here]
    script = next((group[0] for group in groups if len(group) == 1), None)
    return FoundScript(script, () if script else tuple(runs or here or below))


def _usual(scripts: list[Path]) -> list[list[Path]]:
    named = [[each for each in scripts if each.name == name] for name in _USUAL]
    return [*named, [each for each in scripts if each.name.startswith("train")]]


def _that(question: re.Pattern[bytes], files: Iterable[Path]) -> list[Path]:
    return [each for each in files if question.search(_text(each))]


def _text(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(_MOST_SCRIPT_BYTES)
    except OSError:
        return b""


def _scripts(folder: Path) -> list[Path]:
    try:
        files = sorted(folder.glob("*.py"))
    except OSError:
        return []
    return [path for path in files if path.is_file() and not _NO_SCRIPTS.fullmatch(path.name)]


def _below(folder: Path) -> list[Path]:
    """Return the scripts in the folders below, two levels deep."""
    found: list[Path] = []
    for pattern in ("*/", "*/*/"):
        try:
            folders = sorted(folder.glob(pattern))
        except OSError:
            continue
        for each in folders:
            if not any(_NO_FOLDERS.fullmatch(part) for part in each.relative_to(folder).parts):
                found += _scripts(each)
    return found[:_MOST_SCRIPTS]
