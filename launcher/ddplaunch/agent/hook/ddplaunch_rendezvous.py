"""Reports each call of init_process_group before the call waits: how this process finds the other ranks.

The report includes variables that the program itself has set, each with its line: by these a script may leave
the rendezvous that its launcher has prepared.
"""

# ruff: noqa: RUF012, SIM105, SLF001 - runs in the user's program, and imports no more than it must

from __future__ import annotations

import os
import sys
import time

import ddplaunch_torch  # type: ignore[import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, ModuleType
    from typing import Any, Optional

    Facts = dict[str, Any]

_NAMES = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
_PREFIXES = ("NCCL_", "GLOO_", "TORCH", "CUDA_")
_KEPT = 64  # variables
_SCRIPT_LIMIT = 1 << 20
_STANDARD = os.path.dirname(os.__file__) + "/"
_UNSET = -1  # torch's own default for rank and world size


class _State:
    settings: dict[str, list[Any]] = {}  # name -> [value, frame, value when the program began]


def watch(called: Callable[[Facts], None], passed: Callable[[], None]) -> None:
    """Call `called` with the facts of every init_process_group, and `passed` when it has returned."""
    _note_settings()

    def action(module: ModuleType) -> None:
        _wrap(module, called, passed)

    ddplaunch_torch.when_imported({"torch.distributed.distributed_c10d": action})


def _wrap(module: Any, called: Callable[[Facts], None], passed: Callable[[], None]) -> None:
    import inspect

    signature = inspect.signature(module.init_process_group)

    def reporting(function: Callable[..., Any], depth: int) -> Callable[..., Any]:
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            try:
                called(_facts(signature.bind(*args, **kwargs).arguments, sys._getframe(depth)))
            except Exception:  # the program must not fail because of us
                pass
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                ddplaunch_torch.step_out(error)
                raise
            try:
                passed()
            except Exception:  # nor here
                pass
            return result

        return init_process_group

    ddplaunch_torch.put_inside(module, "init_process_group", reporting)


# --- the call


def _facts(given: Facts, frame: FrameType) -> Facts:
    """Return the fields of the contract's Rendezvous; `given`: the arguments of the program's call."""
    store, method = given.get("store"), given.get("init_method") or "env://"
    rank, world = _number(given.get("rank")), _number(given.get("world_size"))
    timeout = given.get("timeout")
    facts: Facts = {
        "at": time.time(),
        "backend": str(given.get("backend") or ""),
        "timeout": timeout.total_seconds() if timeout is not None else None,
        "frame": _frame(frame),
        "settings": [[name, *value] for name, value in _State.settings.items()],
        "script": _script(),
    }
    if store is not None:
        facts.update(_of_store(store))
    else:
        facts.update(_of_url(method))
        if facts["method"] == "env":
            rank = _number(os.environ.get("RANK")) if rank is None else rank
            world = _number(os.environ.get("WORLD_SIZE")) if world is None else world
    facts["rank"] = _number(facts.pop("query_rank", None)) if rank is None else rank
    facts["world_size"] = _number(facts.pop("query_world", None)) if world is None else world
    facts.pop("query_rank", None)
    facts.pop("query_world", None)
    facts["given_world"] = (
        _number(os.environ.get("WORLD_SIZE")) if "WORLD_SIZE" not in _State.settings else None
    )
    facts["given_rank"] = _number(_given("RANK"))
    facts["given_port"] = _number(_given("MASTER_PORT"))
    facts["agent_store"] = facts["method"] in ("env", "tcp") and _torchrun_serves(facts)
    return facts


def _given(name: str) -> Optional[str]:
    """Return a variable as the launcher has set it, though the program may have changed it."""
    setting = _State.settings.get(name)
    return os.environ.get(name) if setting is None else setting[2]


def _torchrun_serves(facts: Facts) -> bool:
    """Whether torch expects torchrun's agent to serve the store there, so that no rank opens one."""
    module = sys.modules.get("torch.distributed.rendezvous")
    serves = getattr(module, "_agent_store_serves", None)
    if serves is not None:  # since torch 2.15; before, the answer was the same for every address
        return bool(serves(facts["address"], facts["port"]))
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _of_url(url: str) -> Facts:
    from urllib.parse import parse_qs, urlparse

    parsed = urlparse(url)
    query = parse_qs(parsed.query)
    facts: Facts = {"method": parsed.scheme, "address": "", "port": None, "file": ""}
    if parsed.scheme == "env":
        facts.update(address=os.environ.get("MASTER_ADDR", ""), port=_number(os.environ.get("MASTER_PORT")))
    elif parsed.scheme == "file":
        facts["file"] = parsed.path
        facts["file_used"] = os.path.exists(parsed.path) and os.path.getsize(parsed.path) > 0
    else:
        facts.update(address=parsed.hostname or "", port=parsed.port)
    facts["query_rank"] = query.get("rank", [""])[0]
    facts["query_world"] = query.get("world_size", [""])[0]
    return facts


def _of_store(store: Any) -> Facts:
    """Return the facts of a store, or of the one inside its wrappers, such as PrefixStore."""
    for _ in range(8):
        inner = getattr(store, "underlying_store", None)
        if inner is None:
            break
        store = inner
    return {
        "method": "store",
        "address": str(getattr(store, "host", "") or ""),
        "port": _number(getattr(store, "port", None)),
        "file": str(getattr(store, "path", "") or ""),
    }


def _number(value: Any) -> Optional[int]:
    try:
        number = int(value)
    except (TypeError, ValueError):
        return None
    return None if number == _UNSET else number


def _frame(frame: Optional[FrameType]) -> Optional[list[Any]]:
    """Return [name, file, line] of the user's innermost frame; else of the first outside torch."""
    foreign = None
    while frame is not None:
        path = frame.f_code.co_filename
        place = [frame.f_code.co_name, path, frame.f_lineno or 0]
        if "-packages/" not in path and not path.startswith((_STANDARD, "<frozen")):
            return place
        if foreign is None and not path.startswith((_STANDARD, "<frozen")) and "/torch/" not in path:
            foreign = place
        frame = frame.f_back
    return foreign


def _script() -> str:
    """Return a digest of the program's main file; "" without one."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    if not path:
        return ""
    import hashlib

    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read(_SCRIPT_LIMIT)).hexdigest()[:16]
    except OSError:
        return ""


# --- the environment


def _note_settings() -> None:
    """Wrap putenv, which os.environ calls for every change."""
    if hasattr(os.environ, "putenv"):  # Python 3.8
        os.environ.putenv = _noting(os.environ.putenv)
    else:
        os.putenv = _noting(os.putenv)


def _noting(putenv: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    def noting(name: Any, value: Any) -> None:
        try:
            putenv(name, value)
        except BaseException as error:
            ddplaunch_torch.step_out(error)
            raise
        try:
            key = os.fsdecode(name)
            noted = (key in _NAMES or key.startswith(_PREFIXES)) and len(_State.settings) < _KEPT
            if noted and not _in_torch(sys._getframe(1)):
                before = _State.settings.get(key)
                given = before[2] if before else os.environ.get(key, "")[:200]  # it changes after this
                _State.settings[key] = [os.fsdecode(value)[:200], _frame(sys._getframe(1)), given]
        except Exception:
            pass

    return noting


def _in_torch(frame: Optional[FrameType]) -> bool:
    """Whether torch itself sets the variable, as its compiler sets some when it is imported."""
    while frame is not None and frame.f_code.co_filename.startswith((_STANDARD, "<frozen")):
        if "-packages/" in frame.f_code.co_filename:
            break
        frame = frame.f_back
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    if frame is None or not torch:
        return False
    return frame.f_code.co_filename.startswith(os.path.dirname(torch) + os.sep)
