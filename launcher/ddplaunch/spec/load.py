"""Read a job file into a `JobSpec`, or into all its problems: the only I/O of this layer."""

import stat
import sys
from pathlib import Path

from pydantic import ValidationError

from ddplaunch.spec import document
from ddplaunch.spec.models import API_VERSION, JobSpec, job_model
from ddplaunch.spec.problems import Problem, SpecError

MAX_BYTES = 2**20
"""Size of a job file; whatever is larger is data that was meant for `source`."""

STDIN = "<stdin>"
"""What problems call a job file that came through a pipe."""

_WANTED = "a job file"


def load(path: str | Path) -> JobSpec:
    """The job that *path* describes, `-` being standard input.

    Raises `SpecError` with everything that is wrong, for whatever the file may hold.
    """
    if str(path) == "-":
        return parse(sys.stdin.buffer.read(MAX_BYTES + 1), STDIN)
    return parse(_read(Path(path)), str(path))


def parse(data: bytes, file: str) -> JobSpec:
    """The job in *data*, the bytes of a job file that problems call *file*; raises as `load` does."""
    root, problems = document.parse(_text(data, file), file)
    _refuse_other_versions(root, file)
    spec = None
    values = document.data(root)
    try:
        spec = job_model().model_validate(values)
    except ValidationError as error:
        from ddplaunch.spec import errors  # only a file with a problem needs it

        problems += errors.explain(error, root, values, file)
    if spec is None or problems:
        raise SpecError(problems)
    return spec


def _refuse_other_versions(root: document.Node, file: str) -> None:
    """A file of another kind gets one sentence, not one for each of its keys."""
    if not isinstance(root, document.Mapping):
        found = "a list" if isinstance(root, document.Sequence) else "a single value"
        hint = "begin with `apiVersion: ddplaunch/v1`, and give every line a key"
        raise _error(
            file, root.line, root.column, found=found, wanted="a mapping of keys to values", hint=hint
        )
    entry = root.entries.get("apiVersion")
    if entry is None or not isinstance(entry.node, document.Scalar) or not isinstance(entry.node.value, str):
        return
    text = entry.node.value
    if text == API_VERSION:
        return
    ours = text.startswith("ddplaunch/")
    hint = "a newer ddplaunch may read it" if ours else "this is a file of another program"
    if ours and text.rpartition("/")[2] in ("1", "V1", "v1.0", "v1alpha1", "v1beta1", ""):
        hint = f"write {API_VERSION}"
    raise _error(
        file,
        entry.node.line,
        entry.node.column,
        path="apiVersion",
        found=f'"{text[:60]}"',
        wanted=API_VERSION,
        hint=hint,
    )


def _text(data: bytes, file: str) -> str:
    """The text of a job file: UTF-8, with or without a byte order mark."""
    if len(data) > MAX_BYTES:
        hint = "code and data travel by `source` or `volumes`, not inside the job file"
        raise _error(file, found="more than 1 MiB", wanted=_WANTED, hint=hint)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _error(file, found="UTF-16", wanted="UTF-8", hint="save it as UTF-8")
    if b"\0" in data:
        raise _error(file, found="a binary file", wanted=_WANTED)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = error.object[: error.start]
        line, column = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
        byte = error.object[error.start]
        hint = "save the file as UTF-8"
        raise _error(file, line, column, found=f"the byte 0x{byte:02x}", wanted="UTF-8", hint=hint) from error


def _read(path: Path) -> bytes:
    """Return the file's bytes, at most one more than a job file may have: nothing endless is read."""
    name = str(path)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise _error(name, found="a directory", wanted=_WANTED, hint=_inside(path))
        # The pipes of a shell, /dev/stdin and `<(…)`, have a writer already, and no name that leads to them.
        if stat.S_ISFIFO(mode) and path.resolve().exists():
            hint = "pipe the job file in, and write - for its name: `generate-job | ddplaunch submit -`"
            raise _error(name, found="a named pipe", wanted=_WANTED, hint=hint)
        with path.open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise _error(name, found="no such file", wanted=_WANTED, hint=_near(path)) from error
    except PermissionError as error:
        hint = "the user who runs ddplaunch must be able to read it"
        raise _error(name, found="no permission to read it", wanted=_WANTED, hint=hint) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _error(name, found=f"what cannot be read ({reason})", wanted=_WANTED) from error


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    except OSError:
        return []


def _inside(folder: Path) -> str:
    files = [name for name in _names(folder) if name.endswith((".yaml", ".yml"))]
    return "it holds " + ", ".join(files[:5]) if files else ""


def _near(path: Path) -> str:
    """Files of the same folder whose names look alike; the suffix is what people forget."""
    names = _names(path.parent)
    swapped = [name for name in names if Path(name).stem == path.stem and name.endswith((".yaml", ".yml"))]
    import difflib  # only a missing file needs it

    near = swapped or difflib.get_close_matches(path.name, names, n=1)
    if near:
        return f"did you mean {path.parent / near[0]}?"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    return "`ddplaunch init` writes one to begin with"


def _error(
    file: str, line: int = 0, column: int = 0, *, path: str = "", found: str, wanted: str, hint: str = ""
) -> SpecError:
    return SpecError(
        [Problem(file=file, line=line, column=column, path=path, found=found, wanted=wanted, hint=hint)]
    )
