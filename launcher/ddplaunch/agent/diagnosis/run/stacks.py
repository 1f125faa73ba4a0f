"""Reads a Python stack: which frame is the user's, and in which torch function the rank is.

Stacks come from three sources (hook, py-spy, faulthandler), which write file names differently: these may be
shortened to what an import would find. In kept evidence, function names may be qualified.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Optional

from ddplaunch.agent.contract import Files, Frame, Stack

_TORCH = re.compile(r"(^|/)(torch|torchgen|functorch)/|(^|/)ddplaunch_(ring|rendezvous|work)\.py$")
"""torch, and the hook's wrappers around its functions."""
_THIRD_PARTY = re.compile(r"(^|/)((site|dist)-packages|mpi4py)/")
_STANDARD = re.compile(
    r"/lib(64)?/python\d[^/]*/(?!site-packages/|dist-packages/)|/python\d+\.zip/|^<|"
    r"^(threading|queue|socket|ssl|selectors|subprocess|runpy|contextlib|functools|pickle|shutil|tarfile|zipfile)"
    r"\.py$|^(multiprocessing|concurrent|importlib|asyncio|json|logging|http|urllib)/"
    r"|(^|/)ddplaunch_(hook|rendezvous|ring|spawn|torch|work)\.py$"
)
_DISTRIBUTED = re.compile(r"(^|/)torch/(distributed/(distributed_c10d|utils)|nn/parallel/distributed)\.py$")
_DDP = re.compile(r"(^|/)torch/nn/parallel/distributed\.py$")
_MPI4PY = re.compile(r"(^|/)mpi4py/MPI\b")
_MAKES = re.compile(r"(^|/)torch/(distributed/|nn/parallel/distributed\.py$)")
_WRAPPERS = ("wrapper", "inner")
"""Names of torch's decorators."""
_BACKWARD = re.compile(r"(^|/)torch/(autograd/|nn/parallel/distributed\.py$)")
_LOADER = re.compile(r"(^|/)torch/utils/data/")

_SLEEPS = re.compile(r"(^|/)(threading|queue|subprocess|socket|ssl|selectors)\.py$|(^|/)multiprocessing/")
_PROCESSES = re.compile(r"(^|/)(multiprocessing/|subprocess\.py$)")
_COPY = re.compile(rf"^.*/[^/]+-(\d+|[0-9a-f]{{12}})/{Files.WORK}/")
_THREADING = re.compile(r"(^|/)threading\.py$")
_FORK = re.compile(r"(^|/)multiprocessing/popen_fork\.py$")
_CHILD = re.compile(r"(^|/)multiprocessing/process\.py$")
_THREADS = re.compile(r"(^|/)(threading\.py|queue\.py|concurrent/futures/\w+\.py)$")
_COMPILER = re.compile(r"(^|/)torch/_dynamo/convert_frame\.py$")
_ENDS = re.compile(r"(^|/)(threading\.py:_shutdown|multiprocessing/util\.py:_exit_function)$")
_SPAWN = re.compile(r"(^|/)torch/multiprocessing/spawn\.py$")

_COLLECTIVE = re.compile(
    r"(all_(gather|reduce|to_all)|broadcast|(reduce_)?scatter|gather|reduce|i?send|i?recv"
    r")(_(coalesced|into_tensor|tensor|object|object_list|single))?"
    r"|(monitored_)?barrier|batch_isend_irecv|new_(sub)?groups?|split_group|destroy_process_group"
    r"|_verify_param_shape_across_processes|_sync_module_states"
)
"""Functions of torch.distributed in which a rank waits for others, as the user calls them."""

_POLLS = re.compile(
    r"(^|/)(filelock(/\w+)?\.py:(_poll_until_acquired|acquire)|torch/utils/file_baton\.py:wait)$"
)
"""Functions that try again and again to get a lock on a file, and sleep in between."""
_TRIES = re.compile(r"(^|/)filelock/|^<|(generic|posix)path\.py$")

_INIT = frozenset({"init_process_group", "init_device_mesh"})
_PLAIN = {
    "_verify_param_shape_across_processes": "DDP's comparison of parameters",
    "_sync_module_states": "DDP's first broadcast of parameters",
}


def main(stacks: Iterable[Stack]) -> list[Frame]:
    """Return the frames of the main thread, innermost first; empty if there are none."""
    for stack in stacks:
        if stack.main:
            return stack.frames
    return []


def user_frame(frames: Sequence[Frame]) -> Optional[Frame]:
    """Return the innermost frame of the user's own code; of an installed package if there is no other.

    With neither, that of a program which Python was given by `-c` or on its stdin.
    """
    foreign = None
    for frame in users(frames):
        if not _THIRD_PARTY.search(frame.file):
            return frame
        foreign = foreign or frame
    given = [frame for frame in frames[-1:] if frame.file in ("<string>", "<stdin>")]
    return foreign or (given[0] if given else None)


def users(frames: Sequence[Frame]) -> list[Frame]:
    """Return the frames of the user's own code and of installed packages, without torch."""
    return [f for f in frames if not (_TORCH.search(f.file) or _STANDARD.search(f.file))]


def of_libraries(frames: Sequence[Frame]) -> bool:
    """Whether Python or torch alone has raised and caught it, as a Pool does while it waits."""
    return bool(frames) and not users(frames)


def in_torch(frames: Sequence[Frame]) -> bool:
    """Whether any of the frames belongs to torch, or to the hook's wrappers around it."""
    return any(_TORCH.search(frame.file) for frame in frames)


def is_own(frames: Sequence[Frame]) -> bool:
    """Whether the user's own code is in the stack, and not only code of packages."""
    return any(not _THIRD_PARTY.search(frame.file) for frame in users(frames))


def sleeps_in_python(frames: Sequence[Frame]) -> bool:
    """Whether this thread waits in Python's own library, and the user's code has called that, not torch."""
    callers = [frame for frame in frames if not _SLEEPS.search(frame.file)]
    return len(callers) < len(frames) and frames[0] not in callers and users(callers[:1]) != []


def ended_thread(frames: Sequence[Frame]) -> bool:
    """Whether an exception with these frames has ended a thread: it went through all of the program's own."""
    return frames[-1:] != [] and bool(_THREADING.search(frames[-1].file)) and "_bootstrap" in frames[-1].name


def ended_process(frames: Sequence[Frame]) -> bool:
    """Whether an exception with these frames has ended a process that multiprocessing has started."""
    return frames[-1:] != [] and bool(_CHILD.search(frames[-1].file)) and frames[-1].name == "_bootstrap"


def is_forked(frames: Sequence[Frame]) -> bool:
    """Whether multiprocessing has forked this process: its stack begins with that of its parent."""
    return any(frame.name == "_launch" and _FORK.search(frame.file) for frame in frames)


def is_pythons(frames: Sequence[Frame]) -> bool:
    """Whether Python has started this thread. Autograd's own threads do the work of the main one."""
    return any("_bootstrap" in frame.name and _THREADING.search(frame.file) for frame in frames)


def waits_for_process(frames: Sequence[Frame]) -> bool:
    """Whether the user's code waits for a process that it has started, or for that process's output."""
    inner = list(takewhile(lambda frame: _STANDARD.search(frame.file), frames))
    return any(_PROCESSES.search(frame.file) for frame in inner)


def waits_for_thread(frames: Sequence[Frame]) -> bool:
    """Whether the user's code waits for another thread: for its end, its result, or an item in a queue."""
    inner = list(takewhile(lambda frame: _STANDARD.search(frame.file), frames))
    return inner != [] and all(_THREADS.search(frame.file) for frame in inner)


def idles_in_loop(frames: Sequence[Frame]) -> bool:
    """Whether asyncio's loop has nothing to run, and waits for a thread, a socket or a timer."""
    inner = list(takewhile(lambda frame: _STANDARD.search(frame.file), frames))
    return any(
        frame.file.endswith("asyncio/base_events.py") and _name(frame) == "_run_once" for frame in inner
    )


def at_end(frames: Sequence[Frame]) -> bool:
    """Whether the program is over, and Python waits for its threads or its children before it ends."""
    outermost = "".join(f"{frame.file}:{_name(frame)}" for frame in frames[-1:])
    return _ENDS.search(outermost) is not None and not users(frames)


def ends_a_queue(frame: Frame) -> bool:
    """Whether this is where Python, at its end, joins the thread that feeds a multiprocessing.Queue."""
    return f"{frame.file}:{_name(frame)}".endswith("multiprocessing/queues.py:_finalize_join")


def collective(frames: Sequence[Frame]) -> Optional[str]:
    """Return the collective in which this stack is, by the name that the user called; None: in none."""
    found = None
    for frame in frames:
        if _DISTRIBUTED.search(frame.file) and _COLLECTIVE.fullmatch(_name(frame)):
            found = _name(frame)
        elif found and not _TORCH.search(frame.file):
            break
    return _PLAIN.get(found, found) if found else None


def compiles(frames: Sequence[Frame]) -> bool:
    """Whether torch.compile compiles here: what its compiler calls, or waits for, belongs to that."""
    return any(_COMPILER.search(frame.file) for frame in frames)


def calls(frames: Sequence[Frame], function: str) -> bool:
    """Whether this stack is in this function of torch.distributed, called by the user or by torch."""
    return any(_name(frame) == function and _DISTRIBUTED.search(frame.file) for frame in frames)


def shared(file: str) -> str:
    """Return the file's name as all nodes have it: the job's source may be in /tmp or the job's folder."""
    return _COPY.sub(f"/{Files.WORK}/", file)


def in_backward(frames: Sequence[Frame]) -> bool:
    """Whether it is in torch's autograd engine, which calls DDP's collectives without a Python frame."""
    return bool(frames and _BACKWARD.search(frames[0].file))


def in_ddp_forward(frames: Sequence[Frame]) -> bool:
    """Whether DDP's `forward` makes the call, and not the model within it."""
    inner = takewhile(lambda frame: _TORCH.search(frame.file) or _STANDARD.search(frame.file), frames)
    names = [_name(frame) for frame in inner if _DDP.search(frame.file)]
    return "forward" in names and "_run_ddp_forward" not in names


def ddp_step(frames: Sequence[Frame]) -> str:
    """'backward', 'forward': where DDP calls its own collectives; "": in neither."""
    if not in_backward(frames):
        return ""
    return "forward" if _DISTRIBUTED.search(frames[0].file) else "backward"


def torchs_own(frames: Sequence[Frame]) -> Optional[str]:
    """Return the function, as the user called it, in which torch itself calls a collective; None: none.

    'backward' of DDP, 'get_model_state_dict' of FSDP, 'full_tensor' of a DTensor.
    """
    if in_ddp_forward(frames):
        return "DDP's forward"
    if in_backward(frames):
        return "backward"
    named = collective(frames)
    if named is not None:
        return named if named in _PLAIN.values() else None
    inner = list(takewhile(lambda frame: _TORCH.search(frame.file) or _STANDARD.search(frame.file), frames))
    makes = [_name(frame) for frame in inner if _MAKES.search(frame.file)]
    if not makes or not (_MAKES.search(inner[0].file) or inner[0].file.endswith("torch/_ops.py")):
        return None
    called = [name for name in makes if name not in _WRAPPERS and name[0] not in "_<"]
    return [*makes, *called][-1]


def in_init(frames: Sequence[Frame]) -> bool:
    """Whether it is in init_process_group, and so waits for ranks that have not called it.

    init_device_mesh calls it if there is no group yet, and then makes groups of its own.
    """
    names = [_name(frame) for frame in frames if "distributed" in frame.file]
    return not _INIT.isdisjoint(names) and "new_group" not in names and "split_group" not in names


def mpi_function(frames: Sequence[Frame]) -> Optional[str]:
    """Return the mpi4py function in which this stack is, as the program writes it; None: in none."""
    return _name(frames[0]) if frames and _MPI4PY.search(frames[0].file) else None


def in_loader(frames: Sequence[Frame]) -> bool:
    """Whether it waits for a batch in a DataLoader's iterator, or makes one there itself."""
    return any(
        _LOADER.search(frame.file) and _name(frame) in ("__next__", "_next_data", "__iter__")
        for frame in frames
    )


def loader_caller(frames: Sequence[Frame]) -> Optional[Frame]:
    """Return the user's line that asks the DataLoader for the next batch."""
    outer: list[Frame] = []
    for frame in reversed(frames):
        if _LOADER.search(frame.file):
            break
        outer.insert(0, frame)
    return user_frame(outer)


def polls(frames: Sequence[Frame]) -> Optional[Frame]:
    """Return the frame in which it polls for a lock on a file; None if its stack shows no such frame."""
    for frame in frames:
        if _POLLS.search(f"{frame.file}:{_name(frame)}"):
            return frame
        if not _TRIES.search(frame.file):
            return None
    return None


def joins_spawned(frames: Sequence[Frame]) -> bool:
    """Whether it waits for the processes that torch's mp.spawn has started."""
    return any(frame.name == "join" and _SPAWN.search(frame.file) for frame in frames)


def worker_task(frames: Sequence[Frame]) -> Optional[Frame]:
    """Return the frame in which a DataLoader worker makes a batch; None: idle, or its stack is unknown."""
    inner: list[Frame] = []
    for frame in frames:
        if _name(frame) == "_worker_loop":
            return user_frame(inner) if any(_LOADER.search(f.file) for f in inner) else None
        inner.append(frame)
    return None


def chain(frames: Sequence[Frame], limit: int = 6) -> str:
    """'evaluate (train.py:14) > get (queue.py:171)': outermost first, the innermost `limit` frames."""
    names = [f"{_name(frame)} ({frame.file.rpartition('/')[2]}:{frame.line})" for frame in frames[:limit]]
    return ("… > " if len(frames) > limit else "") + " > ".join(reversed(names))


def _name(frame: Frame) -> str:
    return frame.name.rpartition(".")[2]
