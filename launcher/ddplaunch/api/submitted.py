"""Functions on submitted jobs: which one is meant, its state, its output, its evidence, its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ddplaunch.agent.text.printable import shell_word
from ddplaunch.errors import (
    ClusterError,
    DdplaunchError,
    NeverStartsError,
    NotFinishedError,
    NotFoundError,
    UsageError,
)

if TYPE_CHECKING:
    from ddplaunch.agent.contract import Bundle
    from ddplaunch.backends import Backend, Deletes
    from ddplaunch.backends.job import Handle, Job, Known, Remains
    from ddplaunch.backends.outputs import Outputs
    from ddplaunch.report import Diagnosis


def parsed(handle: Handle | str) -> Handle:
    """Return the handle. Raises UsageError for what is not one."""
    from ddplaunch.backends.job import Handle

    if not isinstance(handle, (str, Handle)):
        raise UsageError(
            f"{handle!r} is not a job's handle",
            hint="a handle is what `submit` returned, or text: local://job/1",
        )
    return Handle.parse(handle) if isinstance(handle, str) else handle


@contextmanager
def connected(to: str) -> Iterator[Backend]:
    """Connect to a target, and close the connection after use. Raises UsageError for an unknown target."""
    from ddplaunch.backends import connect

    backend = connect(to)
    try:
        yield backend
    except KeyboardInterrupt:
        raise  # at once, because closing waits for a query that is under way
    except BaseException:
        backend.close()
        raise
    backend.close()


@contextmanager
def connected_to(handle: Handle | str) -> Iterator[tuple[Backend, Handle]]:
    """Connect to the target of a handle, and return the handle parsed. Raises UsageError for text that is not
    one.
    """
    found = parsed(handle)
    with connected(found.target) as backend:
        yield backend, found


def known() -> list[Known]:
    """Return the jobs that this user has submitted from here, to all targets, the newest first.

    No scheduler is asked. A target that cannot be used has none.
    """
    from ddplaunch.backends import connect
    from ddplaunch.targets import names

    found = []
    for target in names():
        with suppress(DdplaunchError):
            found += connect(target).known()
    return sorted(found, key=lambda each: each.at, reverse=True)


def last() -> Handle:
    """Return the job that this user submitted last from here. Raises NotFoundError if there is none."""
    newest = next(iter(known()), None)
    if newest is None:
        raise NotFoundError(
            "no job has been submitted from here yet",
            hint="`ddplaunch submit job.yaml` starts one; `ddplaunch list --to slurm` or `--to kubernetes` "
            "shows your jobs on a cluster",
        )
    return newest.handle


def find(text: str, *, sure: bool = False) -> Handle:
    """Return the job that a handle names, or the name of a job that was submitted from here.

    A name means its newest submission, as in `local://digits`; so does one of several targets, unless the
    caller must be `sure`. Raises UsageError then, and NotFoundError when it means none.
    """
    from ddplaunch.backends.job import Handle

    if "://" in text:
        return Handle.parse(text)
    found = {each.handle: each for each in known() if text in _names(each)}
    exact = [handle for handle in found if handle.path == text]
    meant = exact or [*found]
    if not meant:
        raise _no_such_job(text)
    newest = {handle.target: handle for handle in reversed(meant)}
    if len(newest) > 1 and (sure or len(exact) > 1):
        from ddplaunch.report.words import clock

        named = [
            f"{handle} (submitted {clock(found[handle].at)})" for handle in meant if handle in newest.values()
        ]
        raise UsageError(
            f"{text} may be one of {len(named)} jobs: {', '.join(named)}",
            hint=f"give its handle, such as {meant[0]}",
        )
    return meant[0]


def _names(job: Known) -> tuple[str, ...]:
    """Return what names the job besides its whole handle: its number or its own name, and its file's name."""
    path = job.handle.path
    alone = () if job.handle.target == "local" else (path.rpartition("/")[2],)
    return path, *alone, job.name


def _no_such_job(text: str) -> NotFoundError:
    from difflib import get_close_matches

    names = dict.fromkeys(each.name for each in known() if each.name)
    near = get_close_matches(text, names, n=1, cutoff=0.75)  # by default "byhand" is close to "hang"
    return NotFoundError(
        f"no job called {text!r} has been submitted from here",
        hint=f"did you mean {near[0]}? For a job that was not submitted from here, use its handle"
        if near
        else f"if it is a Slurm job, use slurm://{text}"
        if text.isdecimal()
        else "`ddplaunch list` shows the jobs here, and `ddplaunch list --to slurm` those on a cluster; "
        "for a job that ddplaunch did not submit, use its handle",
    )


def status(handle: Handle | str) -> Job:
    """Return the present state of the job. Raises NotFoundError, UsageError, ClusterError."""
    with connected_to(handle) as (backend, found):
        return backend.job(found)


def jobs(to: str = "local") -> list[Job]:
    """Return all jobs of this user that are known to a target, the newest first. Raises ClusterError."""
    with connected(to) as backend:
        return backend.jobs()


def logs(
    handle: Handle | str,
    *,
    nodes: Collection[int] | None = None,
    ranks: Collection[int] | None = None,
    tail: int | None = None,
    follow: bool = False,
) -> Iterator[str]:
    """Yield lines of the ranks' output, without newline. Each begins with [node/rank].

    `nodes`, `ranks`: only lines from these; a line must match both. `tail`: begin with only the last so many
    lines. With `follow`, wait for more until the job has ended. Raises as `status` does, at the first line.
    """
    from ddplaunch.backends.job import Selection

    wanted = Selection(
        nodes=None if nodes is None else frozenset(nodes),
        ranks=None if ranks is None else frozenset(ranks),
        tail=tail,
    )
    with connected_to(handle) as (backend, found):
        # A backend also yields "" after each moment without output.
        yield from filter(None, backend.logs(found, wanted, follow=follow))


def outputs(handle: Handle | str, *, listed: bool = True) -> list[Outputs]:
    """Return what the ranks wrote below their working directory, by folder. Raises as `status` does.

    For pods, that is what they wrote to the volume in the job file's `outputs`; if there is none,
    NotFoundError. Looking there may take a pod: unless `listed`, only the folder is named.
    """
    from ddplaunch.backends import BringsOutputs, KeepsOutputs

    with connected_to(handle) as (backend, found):
        if not listed and isinstance(backend, BringsOutputs):
            return backend.outputs_unseen(found)
        return backend.outputs(found) if isinstance(backend, KeepsOutputs) else []


def bring_outputs(
    handle: Handle | str, to: Path, check: Callable[[Sequence[Outputs]], None] = lambda _: None
) -> list[Outputs]:
    """Return what `outputs` does, with all files where this machine can see them. Raises as `outputs`.

    Files on a cluster's volume are brought to `to`, an empty folder, once `check` has accepted them. Files
    that this machine can see stay where they are.
    """
    from ddplaunch.backends import BringsOutputs, KeepsOutputs

    with connected_to(handle) as (backend, found):
        if isinstance(backend, BringsOutputs):
            return backend.bring_outputs(found, to, check)
        here = backend.outputs(found) if isinstance(backend, KeepsOutputs) else []
        check(here)
        return here


def diagnose(
    job: Handle | str | Path,
    *,
    attempt: int | None = None,
    launch_attempt: int | None = None,
    again: bool = False,
    debug_image: str = "",
) -> Diagnosis:
    """Return the job with its evidence and its verdicts, the cause to fix first at the front.

    Of a job that runs, this collects the evidence of all ranks now, and the job goes on. In place of a
    handle, `job` may be the file of a bundle; with `again`, that is judged by the rules of this version. It
    may name a job which ddplaunch did not start: `pid:1234`, a process of it on this machine, or its pods,
    `kubernetes://NAMESPACE/KIND/NAME` or `kubernetes://NAMESPACE?selector=KEY=VALUE`.
    `attempt`: of a job that came back, an earlier one, from 0 on, by what it left.
    `launch_attempt`: of one whose launch command went on after a failure, an attempt within it that failed.
    `debug_image`: pods of anybody's are looked at from a container of this image, which is added to each and
    stays in its spec: where theirs have no Python, or may not trace.
    Raises as `status`; UsageError for a file that is no bundle, for `again` without one, for an attempt
    that has left nothing, and for `debug_image` without such pods.
    """
    from ddplaunch.backends import foreign_jobs, saved
    from ddplaunch.report import diagnose

    pid, pods = foreign_jobs.process_named(str(job)), foreign_jobs.pods_named(str(job))
    if debug_image and pods is None:
        raise UsageError(
            f"only pods can get a debug container, and {job} names none",
            hint="name the pods' owner: kubernetes://NAMESPACE/KIND/NAME, where KIND is, for example, job",
        )
    if pid is not None or pods is not None:
        if attempt is not None or launch_attempt is not None or again:
            raise UsageError(
                "a job that ddplaunch did not start has no attempts, and no bundle that could be judged "
                "again",
                hint=f"`ddplaunch diagnose {shell_word(str(job))}` looks at it now",
            )
        return diagnose(
            *(foreign_jobs.diagnose(pid) if pid is not None else _in_pods(pods or "", debug_image))
        )
    if isinstance(job, Path) or (isinstance(job, str) and saved.names_file(job)):
        if attempt is not None and launch_attempt is None:
            raise UsageError(
                "only a job has attempts", hint="a bundle has only one attempt: leave out the number"
            )
        opened = saved.open_bundle(Path(job), again)
        return diagnose(
            *(opened if launch_attempt is None else saved.open_launch_attempt(*opened, launch_attempt))
        )
    if again:
        raise UsageError(
            "only a bundle file can be judged again",
            hint=f"`ddplaunch diagnose {job} --bundle FILE` writes one",
        )
    with connected_to(job) as (backend, found):
        now = backend.job(found)
        if attempt is not None and attempt != now.attempt:
            earlier = saved.open_attempt(now, attempt)
            return diagnose(
                *(earlier if launch_attempt is None else saved.open_launch_attempt(*earlier, launch_attempt))
            )
        handle = now.handle
        bundle = backend.collect(handle)
        if launch_attempt is not None:
            return diagnose(*saved.open_launch_attempt(backend.job(handle), bundle, launch_attempt))
        return diagnose(foreign_jobs.explained(backend.job(handle), bundle), bundle)


def _in_pods(path: str, debug_image: str) -> tuple[Job, Bundle | None]:
    from ddplaunch.backends.kubernetes import foreign_evidence

    return foreign_evidence.diagnose(path, debug_image)


def cancel(handle: Handle | str) -> Job:
    """Collect evidence, stop the job, and return it when it has ended. An ended job stays as it is.

    Raises as `status` does, and ClusterError if the job does not end.
    """
    with connected_to(handle) as (backend, found):
        return backend.cancel(found)


def remains(handle: Handle | str) -> Remains | None:
    """Return what a job has left and `delete` removes; None for a job that ddplaunch has not started.

    Raises as `status` does, and ClusterError for anything that belongs to another user, or is not as
    ddplaunch makes it.
    """
    with connected_to(handle) as (backend, found):
        return _deleting(backend, found).remains(found)


def delete(handle: Handle | str) -> None:
    """Remove all that an ended job has left: its folder with its output, objects in a cluster, its evidence.

    Raises as `remains` does, and UsageError for a job that has not ended or that ddplaunch has not started.
    """
    with connected_to(handle) as (backend, found):
        deleting = _deleting(backend, found)
        job = backend.job(found)
        if not job.state.ended:
            raise UsageError(
                f"{job.handle} has not ended", hint=f"`ddplaunch cancel {job.handle}` stops it first"
            )
        if deleting.remains(job.handle) is None:
            raise UsageError(
                f"{job.handle} was not started by ddplaunch, which deletes only what it made",
                hint="nothing was deleted",
            )
        deleting.delete(job.handle)


def _deleting(backend: Backend, handle: Handle) -> Deletes:
    from ddplaunch.backends import Deletes

    if not isinstance(backend, Deletes):
        raise ClusterError(
            f"{handle}: ddplaunch cannot delete jobs on {handle.target}",
            hint="the package that provides this target does not support it",
        )
    return backend


# --- waiting

GIVEN_UP_AFTER: Final = 10.0
"""Seconds for which a job must have been one that never starts, because a scheduler may change its mind."""
_UPDATE = 0.25
"""Seconds between two looks at a job that is being watched."""
_PAUSE = 2.0
"""Seconds between two looks at several jobs."""


class Wait:
    """The clock of one job that is waited for."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None

    def is_vain(self, job: Job) -> bool:
        """Whether the job, as it is now, has been one that never starts for long enough."""
        if not job.never_starts:
            self._since = None
            return False
        if self._since is None:
            self._since = self._clock()
        return self._clock() - self._since >= GIVEN_UP_AFTER

    def check(self, job: Job) -> None:
        """Raise NeverStartsError if waiting for the job is useless."""
        if self.is_vain(job):
            raise NeverStartsError(f"stopped waiting for {job.handle}: {job.detail}", hint=job.hint)


def watch(handle: Handle | str) -> Iterator[Job]:
    """Yield the job's state four times a second until it has ended; its end comes last.

    Raises as `status` does, and NeverStartsError if it has been pending for 10 s for a reason that waiting
    never cures, such as the failure of another job after which it was to start. It stays in the queue.
    """
    with connected_to(handle) as (backend, found):
        wait = Wait()
        job = backend.job(found)
        while not job.state.ended:
            yield job
            wait.check(job)
            time.sleep(_UPDATE)
            job = backend.job(job.handle)  # by now with its number: the name alone means the newest
        yield job


def wait(handle: Handle | str, timeout: float | None = None) -> Job:
    """Return the job when it has ended.

    Raises NotFinishedError if it has not ended after `timeout` seconds, and otherwise as `watch` does.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    for job in watch(handle):
        if job.state.ended:
            break
        if deadline is not None and time.monotonic() >= deadline:
            raise NotFinishedError(
                f"{job.handle} has not ended after {timeout:g} s: it is {job.state}",
                hint="the job keeps running; wait for it again, or cancel it",
            )
    return job


def wait_all(handles: Sequence[Handle | str]) -> Iterator[Diagnosis]:
    """Yield the diagnosis of each job when it ends, in the order in which they end.

    A job that has been pending for 10 s for a reason that waiting never cures is yielded too: its
    `never_starts` is true. Each scheduler is asked about all its jobs at once. Raises as `status` does.
    """
    from ddplaunch.report import diagnose

    waits = {parsed(handle): Wait() for handle in handles}
    with ExitStack() as stack:
        backends = {
            target: stack.enter_context(connected(target))
            for target in dict.fromkeys(each.target for each in waits)
        }
        while waits:
            known = {job.handle: job for backend in backends.values() for job in backend.jobs()}
            for handle, wait in list(waits.items()):
                backend = backends[handle.target]
                job = known.get(handle) or backend.job(handle)
                if job.state.ended:
                    del waits[handle]
                    yield diagnose(job, backend.collect(job.handle))
                elif wait.is_vain(job):
                    del waits[handle]
                    yield diagnose(job, None)
            if waits:
                time.sleep(_PAUSE)


def follow(handle: Handle | str) -> Iterator[str | Job | Diagnosis]:
    """Yield what happens to a job until its end, as `submit --wait` shows it.

    Text is a line of its output, as from `logs`. A `Job` is its state, up to four times a second. Its
    `Diagnosis` comes last. Raises as `watch` does.
    """
    from ddplaunch.backends.job import EVERYTHING
    from ddplaunch.report import diagnose

    with connected_to(handle) as (backend, found):
        wait = Wait()
        looked_at = 0.0
        for line in backend.logs(found, EVERYTHING, follow=True):
            if line:
                yield line
            if time.monotonic() - looked_at >= _UPDATE:
                job = backend.job(found)
                yield job
                wait.check(job)
                looked_at = time.monotonic()
        job = backend.job(found)
        yield diagnose(job, backend.collect(job.handle))
