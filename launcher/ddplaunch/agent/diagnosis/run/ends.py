"""Rules about bad ends: ranks that were killed or failed, launch commands, and nodes that were lost."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Optional

from ddplaunch.agent import platforms
from ddplaunch.agent.contract import (
    AnyFact,
    Collective,
    Fact,
    Files,
    Frame,
    JobEvidence,
    Lost,
    NodeEvidence,
    RankEvidence,
    Signalled,
    Source,
    Verdict,
)
from ddplaunch.agent.diagnosis import confidence as sure
from ddplaunch.agent.diagnosis.run import devices, exits, signals, slow, stacks
from ddplaunch.agent.diagnosis.run.causes import (
    LOADER_KILLED,
    TOGETHER,
    Cause,
    Held,
    causes_of,
    complaint,
    failed_ranks,
    first_ends,
    same_failure,
    site_of,
    words_of,
)
from ddplaunch.agent.diagnosis.run.held import held_back, raised_by
from ddplaunch.agent.diagnosis.run.view import JobView
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.text.saying import Sayable, Text, joined, say, spelled

_CHECKPOINTS = "Have the job write checkpoints, and resume from the last one."
_SOMEBODY = (
    "Somebody sent it: a person, the scheduler, or a memory killer outside the job's own cgroup. Look at "
    "the node's kernel log (dmesg) and the scheduler's log at that time."
)
_CRASH = (
    "Native code crashed. PYTHONFAULTHANDLER=1 makes Python print where; a library built for another torch "
    "or another CPU is the usual reason."
)
_HINTS = {
    **dict.fromkeys(("SIGSEGV", "SIGILL", "SIGFPE", "SIGABRT", "SIGBUS"), _CRASH),
    "SIGALRM": "A timer of the program went off (signal.alarm, signal.setitimer), and the process had no "
    "handler for it: set one with signal.signal before the timer, or stop the timer once the work is done.",
    "SIGPIPE": "It wrote to a pipe or a socket whose reader had ended. Python ignores this signal unless the "
    "program asks for SIG_DFL: find out which process should have read.",
    "SIGXCPU": "It used up its limit of CPU time: `ulimit -t` shows it, and batch systems set it.",
    "SIGXFSZ": "It wrote past the limit for the size of a file: `ulimit -f` shows it.",
}
"""What to do about a signal that nobody but the kernel or the process itself is likely to have sent."""
_TERMINATE = "terminate called without an active exception"
_GOODBYE = (
    "A thread was still running when the process ended, most often one of torch's: call "
    "torch.distributed.destroy_process_group() as the program's last act."
)
_LATE = (
    "A GPU's error is raised late, at any line that needs a result. CUDA_LAUNCH_BLOCKING=1 in the next run "
    "raises it at the line that causes it; look there"
)
_OTHER_MODEL = re.compile(r"appears not to match|DDP expects same model")
"""What DistributedDataParallel says of parameters that differ, while it is made (torch's reducer.cpp)."""
_ONE_MODEL = (
    "The model must be the same on all ranks: do not let its sizes, or its layers, come from what only this "
    "rank has read. "
)
_TRACEBACK = "Traceback (most recent call last):"
_QUOTED = 10
"""Last lines of a rank or a command that a verdict quotes."""
_HELD = re.compile(r"Killed process (\d+) .*anon-rss:(\d+)kB")
"""Linux, mm/oom_kill.c: the process that was killed, and its own resident memory."""
_MEMORY = (
    "Give the node more memory, or use less: smaller batches, fewer DataLoader workers, no tensors kept "
    "across steps (a loss that is kept as a tensor keeps its whole graph)."
)


def rank_killed_memory(view: JobView) -> Optional[Verdict]:
    """Return the verdict on SIGKILL where the kernel counted or logged an out-of-memory kill on the node."""
    causes = first_ends(view, "memory")
    if not causes:
        return None
    facts = []
    for node in view.nodes_of([cause.rank for cause in causes]):
        found = view.nodes[node]
        if found.oom_kills:
            facts.append(
                f"{view.node(node)}: the memory cgroup has counted {found.oom_kills} kill(s) for memory"
            )
        kills = [line for line in found.kernel if _HELD.search(line)]
        facts += [f"{view.node(node)}'s kernel: {phrases.clipped(line)}" for line in kills[-2:]]
    where = view.named(view.nodes_of([cause.rank for cause in causes]))
    limits = _memory(view, causes[0])
    return verdict_on(
        view,
        "rank-killed-memory",
        causes,
        say(killed_whom(causes), " killed for memory on ", where, limits and ": " + limits),
        facts,
        _MEMORY,
        sure.KERNEL_KILLED,
    )


def rank_killed(view: JobView) -> Optional[Verdict]:
    """Return the verdict on a signal that neither torchrun nor the supervisor sent."""
    causes = first_ends(view, "signal")
    if not causes:
        return None
    first = causes[0]
    facts: list[AnyFact] = []
    if first.what == "SIGKILL":
        node = view.node_of[first.rank]
        unread = any(text.startswith("kernel log") for text in view.nodes[node].missing)
        logged = "what the kernel logged was not seen" if unread else "the kernel logged none"
        facts.append(f"{view.node(node)}: the cgroup counted no kill for memory, and {logged}")
    if not first.loader:
        facts += [*crash(view, first.rank), *view.last_call(first.rank)]
    if first.loader:
        facts += shared_memory(view, first.rank)
    facts += last_lines(view, first)
    came = _came_to_rank_too(view, first)
    too = f", which rank {first.rank} got as well and handles{signals.by(came)}" if came is not None else ""
    sentence = say(killed_whom(causes), f" killed by {first.what}{_crashed_at(view, first)}{too}")
    unfinished = first.what == "SIGABRT" and _TERMINATE in view.ranks[first.rank].last_output
    hint = _GOODBYE if unfinished else _HINTS.get(first.what, _SOMEBODY)
    if came is not None:
        hint = _SPARE.format(signal=first.what)
    return verdict_on(view, "rank-killed", causes, sentence, facts, hint, sure.OWN_END)


def _came_to_rank_too(view: JobView, cause: Cause) -> Optional[Signalled]:
    """Return the signal that has killed a rank's DataLoader worker, if it has come to the rank as well."""
    signal = (
        signals.before(view.ranks[cause.rank], cause.at + _ONE_LOOK) if cause.loader is not None else None
    )
    same = signal is not None and phrases.signal_name(signal.number) == cause.what
    return signal if same else None


def rank_failed(view: JobView) -> Optional[Verdict]:
    """Return the verdict on the first exception, or exit code, that is not another rank's fault.

    A script may exit because a peer went away, so without an exception all peers must have been seen.
    """
    causes = first_ends(view, "exception") or ([] if view.unseen else first_ends(view, "code"))
    if not causes:
        return None
    # Also of ranks that their launcher has ended since: a look at the first end has seen them there.
    others = [number for number in view.ranks if number not in {cause.rank for cause in causes}]
    held = {number: its for number in others if (its := held_back(view, number)) is not None}
    if held and (causes[0].kind == "code" or view.ranks[causes[0].rank].left):
        return _held_beside_exits(view, causes, held)
    return _failure(view, [*causes, *_not_ended(view, causes[0])])


def _held_beside_exits(view: JobView, causes: list[Cause], held: dict[int, Held]) -> Verdict:
    """Return the verdict on ranks that ended with an exit code, most likely for what another one has raised.

    They printed no traceback: that rank was still in the handler that they had left, and shows the exception.
    What they have handled themselves, where sys.exit says so, is the proof.
    """
    ended = sorted(cause.rank for cause in causes)
    number, its = next(iter(held.items()))
    site = stacks.user_frame(its.raised.frames)
    raised = Cause(number, "exception", causes[0].at, same_failure(its.raised), its.raised)
    proved = causes[0].what == raised.what
    frames = stacks.main(view.ranks[number].stacks)
    at = stacks.user_frame(frames)
    place = f", in {phrases.place(at)}" if at is not None else ""
    return verdict_on(
        view,
        "rank-failed",
        [raised, *causes],
        say(
            raised_by(view, [number], its.raised),
            f" and stayed in its `{its.kind}`{place}, while ",
            subjects.ranks(ended),
            f" {_ended_with(view, causes, within=not proved)}",
        ),
        [
            f"rank {number} raised it in {stacks.chain(its.raised.frames)}",
            view.of_stacks(f"rank {number} was in {stacks.chain(frames)}", [number]),
            *last_lines(view, causes[0]),
        ],
        f"Fix {phrases.place(site) if site else 'what the traceback names'}. Print the traceback before "
        "sys.exit, or raise again: an exit code alone does not say why.",
        sure.OWN_END if proved else sure.EXIT_CODE_ALONE,
    )


def _ended_with(view: JobView, causes: list[Cause], within: bool = True) -> str:
    """'ended with exit code 3, by sys.exit(3) (train.py:57), in the branch of train.py:55 (`if bad`)'."""
    end = view.ranks[causes[0].rank].exit
    code = end.code if end is not None else None
    where = exits.where_left(view, [cause.rank for cause in causes], within)
    return f"ended with exit code {code}" + (
        f", by {where}" if where else " and no exception (sys.exit or os._exit)"
    )


def _not_ended(view: JobView, first: Cause) -> list[Cause]:
    """Return the ranks that have raised the same exception, and are still on the way to their end."""
    return [
        replace(first, rank=number)
        for number in view.alive
        if first.raised is not None
        and any(same_failure(raised) == first.what for raised in view.ranks[number].in_flight)
    ]


_RENDEZVOUS = {
    "RendezvousTimeoutError": (
        "Not all nodes came to the rendezvous in time (--rdzv-conf join_timeout, 600 s). See whether "
        "torchrun runs on all nodes, with the same --rdzv-endpoint, --rdzv-id and --nnodes. "
    ),
    "RendezvousClosedError": (
        "The rendezvous was closed when this node came: the others had ended, or had used up --max-restarts. "
        "Start torchrun on all nodes together, and all of them again after an end. "
    ),
}
"""What to do about torchrun's own exceptions (torch/distributed/elastic/rendezvous/dynamic_rendezvous.py)."""


def _of_rendezvous(said: Sequence[str]) -> str:
    """Return the hint for the exception in the last line of a torchrun; "" if it is none of these."""
    name = said[-1].strip().rpartition(".")[2] if said else ""
    return _RENDEZVOUS.get(name, "")


def launch_failed(view: JobView) -> Optional[Verdict]:
    """Return the verdict on a launch command that failed without workers, or was killed with them."""
    failed = sorted(
        (node.launch_exit.at, number)
        for number, node in view.nodes.items()
        if node.launch_exit is not None
        and not node.launch_exit.by_us
        and (node.launch_exit.signal or (node.launch_exit.code and not node.ranks))
    )
    if not failed or any(cause.at < failed[0][0] - TOGETHER for cause in causes_of(view)):
        return None
    number = failed[0][1]
    node = view.nodes[number]
    assert node.launch_exit is not None
    if node.launch_port is not None:
        return _port_taken(view, node)
    how = phrases.exited(node.launch_exit)
    when = "while its workers ran" if node.ranks else "before it started a worker"
    said = [line for line in node.launch_output if line.strip(" -=*")]  # mpirun frames its messages
    return Verdict.of(
        code="launch-failed",
        sentence=say(
            view.node(number),
            f"'s launch command ended with {how} {when}{': ' if said else ''}"
            f"{phrases.clipped(said[-1]) if said else ''}",
        ),
        where="launch",
        nodes=[number],
        victims=view.victims_of([]),
        confidence=sure.LAUNCHER_ENDED,
        facts=_quoted(f"{view.node(number)}'s launch command", said),
        hint=f"{_of_rendezvous(said)}`ddplaunch logs` shows all of its output, as does "
        f"{Files.NODE.format(node=number)}/{Files.LAUNCH_LOG} in the job's folder",
    )


def _port_taken(view: JobView, node: NodeEvidence) -> Verdict:
    """Return the verdict on a launch command that found the port of its store taken."""
    which = f"port {node.launch_port}" if node.launch_port else "its port"
    holder = node.launch_port_holder or "another process"
    return Verdict.of(
        code="port-in-use",
        sentence=say(
            view.node(node.node),
            f"'s launch command could not listen on {which}: {holder} has it",
        ),
        where="launch",
        nodes=[node.node],
        victims=view.victims_of([]),
        confidence=sure.LAUNCHER_ENDED,
        facts=_quoted(f"{view.node(node.node)}'s launch command", node.launch_output[-1:]),
        hint="Give each torchrun on this machine a port of its own with `--master-port`, or let it take a "
        "free one with `--standalone`; or end the process that has this one.",
    )


def late_for_monitored_barrier(view: JobView) -> Optional[Verdict]:
    """Return the verdict on ranks that torch's monitored_barrier has missed, wherever they are by now."""
    for number, rank in view.ranks.items():
        for raised in rank.raised:
            found = _MISSED.search(raised.message)
            late = sorted({*map(int, re.findall(r"\d+", found[1]))} & {*view.world}) if found else []
            if found is None or raised.handled or not late or number in late:
                continue
            waited = int(found[2]) / 1000
            site = stacks.user_frame(raised.frames)
            came = [call.at for each in late for call in _barriers(view, each)]
            begun = [call.at for call in _barriers(view, number)]
            after = f", {phrases.span(min(came) - begun[0])} after rank {number}" if came and begun else ""
            return verdict_on(
                view,
                "rank-in-user-code",
                [Cause(each, "exception", raised.at, "") for each in late],
                say(
                    subjects.ranks(late),
                    f" came too late to monitored_barrier{phrases.at(site)}{after}"
                    if after
                    else f" did not come to monitored_barrier{phrases.at(site)}",
                    f": rank {number} waited {phrases.span(waited)}, as the call's timeout says",
                ),
                view.last_call(late[0]),
                f"Give monitored_barrier a timeout that is longer than what {subjects.ranks(late)} may take "
                "before it, or share that work out more evenly.",
                sure.MISSED_BY_TORCH,
            )
    return None


_MISSED = re.compile(r"Ranks? ([\d, ]+) failed to pass monitoredBarrier in (\d+) ms")
"""torch/csrc/distributed/c10d/ProcessGroupGloo.cpp; rank 0 alone knows it."""


def _barriers(view: JobView, number: int) -> list[Collective]:
    """Return the rank's last call, if it is of monitored_barrier."""
    return [call for call in view.ranks[number].calls[-1:] if call.op == "monitored_barrier"]


def victims_alone(view: JobView) -> Optional[Verdict]:
    """Return a verdict that blames no rank: each failed by another's fault, and the first was not seen."""
    failed = [
        (rank.exit.at, number)
        for number, rank in view.ranks.items()
        if rank.exit is not None and (rank.exit.code or rank.exit.signal) and not rank.exit.by_us
    ]
    if not failed or view.absent or view.unseen:
        return None
    at, first = min(failed)
    reason = complaint(view.ranks[first])
    found = verdict_on(
        view,
        "rank-failed",
        [Cause(first, "exception", at, reason)],
        f"rank {first} was the first to fail ({reason}), but by its own words another rank is at fault, "
        "and which one is not known",
        [f"rank {number} ended, and its exit code was not seen" for number in _unseen_ends(view)],
        "Read the logs of the other ranks and nodes just before this time; the evidence here does not name "
        "the cause.",
        sure.NO_CAUSE_SEEN,
    )
    return replace(found, nodes=[], ranks=[], victims=sorted({first, *found.victims}))


def _unseen_ends(view: JobView) -> list[int]:
    """Return the ranks that ended without an exception and whose exit codes were not seen."""
    ended = {number: rank for number, rank in view.ranks.items() if rank.exit is not None and not rank.raised}
    return [
        n for n, rank in ended.items() if rank.exit and rank.exit.code is None and rank.exit.signal is None
    ]


_ENDED_BY_HANDLER = (
    "The program handles the signal, and has most likely ended for it. If it has saved a checkpoint and you "
    "want the job to be started again, see `retries` and `signal` in the job file."
)


def _failure(view: JobView, causes: list[Cause]) -> Verdict:
    first = causes[0]
    numbers = sorted({cause.rank for cause in causes})
    who: Sayable = "all ranks" if view.is_everyone(numbers) else subjects.ranks(numbers)
    if first.raised is None:
        rank = view.ranks[first.rank]
        said = f"; its last line: {phrases.clipped(rank.last_output)}" if rank.last_output else ""
        came = signals.ended_after(view, {cause.rank: cause.at for cause in causes})
        ended = f" {_ended_with(view, causes)}"
        hint = "See what it ran last; `ddplaunch logs` shows everything that it wrote."
        return verdict_on(
            view,
            "rank-failed",
            causes,
            say(who, ended, *(("; before that, ", came) if came else (said,))),
            [*view.last_call(first.rank), *last_lines(view, first)],
            _ENDED_BY_HANDLER if came else hint,
            sure.EXIT_CODE_ALONE,
        )
    raised = first.raised
    kind = raised.type.rpartition(".")[2]
    site = site_of(raised)
    message = f": {phrases.clipped(words_of(raised))}" if raised.message else ""
    failed = failed_ranks(raised)
    if view.is_everyone(numbers) and failed and set(failed) < set(numbers):
        causes = [cause for cause in causes if cause.rank in failed]
        first = causes[0]
        message = f" for {phrases.ranks(failed)}{message}"
    facts: list[AnyFact] = []
    if raised.frames:
        facts.append(f"rank {first.rank} raised it in {stacks.chain(raised.frames)}")
    for call in view.ranks[first.rank].left[:1]:
        at = phrases.at(stacks.user_frame(call.frames))
        facts.append(f"rank {first.rank} handled it, and called {call.type}({call.message}){at}")
    still = [cause.rank for cause in causes if view.ranks[cause.rank].alive]
    facts += [f"not ended yet: {spelled(place)}" for place in view.places(still)]
    facts += last_lines(view, first)
    if "CUDA" in raised.message:
        facts += devices.gpu_facts(view, view.nodes_of(numbers))
    fix = f"Fix {phrases.place(site) if site else 'what the traceback names'}"
    hint = _LATE if "CUDA error" in raised.message else fix
    alone = view.is_everyone(sorted({cause.rank for cause in causes}))
    others = "" if alone else "; errors on other ranks are a consequence"
    return verdict_on(
        view,
        "rank-failed",
        causes,
        say(who, f" raised {kind}{message}{phrases.at(site)}"),
        facts,
        f"{_ONE_MODEL if _OTHER_MODEL.search(raised.message) else ''}"
        f"{_of_a_file(view, kind, numbers)}{hint}{others}.",
        sure.OWN_END,
    )


def _of_a_file(view: JobView, kind: str, ranks: list[int]) -> str:
    """Return what it may mean that a file is missing on these ranks alone; "" if it is not, or on all."""
    others = [rank for rank in view.world if rank not in ranks]
    if kind != "FileNotFoundError" or not others:
        return ""
    why = "the path may depend on the rank, or these ranks may have looked before the file was there"
    if view.machines(ranks).isdisjoint(view.machines(others)):
        why = f"it may not be in the same folder on all nodes; or {why}"
    return f"Not all ranks raised this. If another rank makes the file, {why}. "


def last_lines(view: JobView, cause: Cause) -> list[str]:
    """Return the rank's last lines of output, without the traceback, which the verdict shortens."""
    lines = view.ranks[cause.rank].last_lines
    traces = [number for number, line in enumerate(lines) if _TRACEBACK in line]
    if cause.raised is not None:
        lines = lines[: traces[0]] if traces else []
    return _quoted(f"rank {cause.rank}", lines)


def _quoted(whose: str, lines: list[str]) -> list[str]:
    """'the last lines of rank 1:', then each with a bar before it."""
    last = [phrases.clipped(line) for line in lines[-_QUOTED:]]
    return [f"the last lines of {whose}:", *(f"| {line}" for line in last)] if last else []


def verdict_on(
    view: JobView,
    code: str,
    causes: list[Cause],
    sentence: Sayable,
    facts: Sequence[AnyFact],
    hint: str,
    confidence: float,
) -> Verdict:
    """Return a verdict on the ranks that ended so; the later ends of others are its last facts."""
    numbers = sorted({cause.rank for cause in causes})
    first = causes[0]
    victims = view.victims_of(numbers)
    later = []
    for number in victims:
        end = view.ranks[number].exit
        if end is not None and not end.by_us and (end.code or end.signal):
            later.append(
                f"rank {number} ended {phrases.span(end.at - first.at)} later, as a victim: "
                f"{complaint(view.ranks[number])}"
            )
    return view.verdict(
        code=code,
        sentence=sentence,
        ranks=numbers,
        victims=victims,
        confidence=confidence,
        facts=[*facts, *later[:4], *([f"and {len(later) - 4} more victims"] if len(later) > 4 else [])],
        hint=hint,
    )


def killed_whom(causes: list[Cause]) -> Text:
    """'rank 1 was', 'rank 0's DataLoader worker 812 was'."""
    loader = causes[0].loader
    if loader is not None:
        return say(f"rank {causes[0].rank}'s DataLoader worker {loader} was")
    numbers = sorted({cause.rank for cause in causes})
    return say(subjects.ranks(numbers), f" {phrases.one_or(numbers, 'was', 'were')}")


def crash(view: JobView, number: int) -> list[Fact]:
    """'rank 1 crashed in main (train.py:50) > step (train.py:40)', as a fact; none if that is not known."""
    rank = view.ranks[number]
    if rank.stack_source != "crash":
        return []
    chain = stacks.chain(_crashed_in(rank))
    text = f"rank {number} crashed in {chain}"
    if not chain:
        chain = stacks.chain(stacks.main(rank.stacks))
        main = f"was in {chain}" if chain else "ran no Python"
        text = f"rank {number} crashed in native code's own thread; its main thread {main}"
    return [view.fact(text, "the stack by faulthandler", [number], "stacks")]


def _crashed_in(rank: RankEvidence) -> list[Frame]:
    return next((stack.frames for stack in rank.stacks if stack.crashed), [])


def _crashed_at(view: JobView, cause: Cause) -> str:
    """' (train.py:40)', the user's line; empty for a loader's worker, or if it is not known."""
    rank = view.ranks[cause.rank]
    return "" if cause.loader is not None else phrases.at(stacks.user_frame(_crashed_in(rank)))


def _memory(view: JobView, cause: Cause) -> str:
    """'limit 16.0 GiB, it held 15.2 GiB'. What the cgroup uses after the kill means nothing."""
    node = view.nodes[view.node_of[cause.rank]]
    pid = cause.loader or view.ranks[cause.rank].pid
    parts = [] if node.memory_limit is None else [f"limit {phrases.size(node.memory_limit)}"]
    for line in node.kernel:
        held = _HELD.search(line)
        if held and int(held[1]) == pid:
            parts.append(f"it held {phrases.size(1024 * int(held[2]))}")
            break
    return ", ".join(parts)


def shared_memory(view: JobView, number: int) -> list[Fact]:
    """'node 0: /dev/shm holds 12 MiB of 64 MiB, and held 64 MiB at most', where it is known."""
    node = view.nodes[view.node_of[number]]
    if node.shm_size is None or node.shm_used is None:
        return []
    held = f"{phrases.size(node.shm_used)} of {phrases.size(node.shm_size)}"
    most = max(node.shm_peak or 0, node.shm_used)
    more = f", and held {phrases.size(most)} at most" if most > node.shm_used else ""
    where = f"shm_size, shm_used of node {node.node} in bundle.json"
    source = Source("the size of shared memory", f"node {node.node}", where)
    return [Fact(f"{view.node(node.node)}: /dev/shm holds {held}{more}", source)]


# --- SIGBUS: a mapped page with no memory or file behind it, often because /dev/shm was full


_FULL = 0.95
"""Share of /dev/shm above which it counts as full, because the page that did not fit is not in it."""
_SMALL = 1 << 30
"""Bytes. A smaller /dev/shm may fill up and be empty again between two looks."""
_ENLARGE = (
    "Make /dev/shm larger: `resources.shm` in the job file, --shm-size with Docker. Or use less of it: "
    "fewer DataLoader workers, a smaller prefetch_factor."
)
_CUT = (
    "A page of a mapped file could not be read: the file was truncated or overwritten in place while it was "
    "mapped, or its storage failed (dmesg). Write to another file and rename it over the old one, and let "
    "no job change a file that another has mapped (mmap=True, numpy.memmap, safetensors)."
)


def rank_killed_bus(view: JobView) -> Optional[Verdict]:
    """Return the verdict on SIGBUS of a rank or its DataLoader worker, with what /dev/shm held."""
    causes = first_ends(view, "signal")
    if not causes or causes[0].what != "SIGBUS":
        return None
    first = causes[0]
    node = view.nodes[view.node_of[first.rank]]
    why, hint, confidence = _why(view, node)
    facts = shared_memory(view, first.rank)
    if first.loader is None:
        facts += [*crash(view, first.rank), *view.last_call(first.rank)]
    return verdict_on(
        view,
        "rank-killed-bus",
        causes,
        say(killed_whom(causes), f" killed by SIGBUS{_crashed_at(view, first)}", why),
        [*facts, *last_lines(view, first)],
        hint,
        confidence,
    )


def _why(view: JobView, node: NodeEvidence) -> tuple[Sayable, str, float]:
    """Return the end of the sentence, the hint, and the confidence."""
    enlarge = platforms.named(view.evidence.platform).hint("shm", _ENLARGE)
    size, most = node.shm_size, max(node.shm_peak or 0, node.shm_used or 0)
    if not size or node.shm_used is None:
        return "", f"{_CUT} Or /dev/shm ran full: `df -h /dev/shm`. {enlarge}", sure.SHM_UNKNOWN
    held = f"{phrases.size(most)} of {phrases.size(size)}"
    if most >= _FULL * size:
        return say(": /dev/shm on ", view.node(node.node), f" was full ({held})"), enlarge, sure.OWN_END
    known = say("; /dev/shm on ", view.node(node.node), f" was not seen full ({held})")
    return known, f"{_CUT} {enlarge}" if size < _SMALL else _CUT, sure.SHM_NOT_SEEN_FULL


# --- a job that was ended from outside: its launch command or its ranks; no rank is at fault


_STOPS = frozenset(["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"])
"""Signals that ask a program to end; a crash and the memory killer send others."""
_TORCHRUN = re.compile(r"SignalException: Process \d+ got signal: (\d+)")
"""torch/distributed/elastic/multiprocessing/api.py, when torchrun itself is sent a signal."""
_HINT = (
    "Look for the sender: a person, `timeout` or `kill` in a script, a memory killer outside the job's "
    "cgroup, the scheduler's log at that time, or a line of the program that ends processes."
)

_SPARE = (
    "Such a signal may reach every process of a job step. So that the ranks can finish after it, let the "
    "workers ignore it: `signal.signal(signal.{signal}, signal.SIG_IGN)` in worker_init_fn."
)

_BROKEN = (
    "ConnectionResetError",
    "ConnectionRefusedError",
    "BrokenPipeError",
    "EOFError",
    "FileNotFoundError",
)
_ONE_LOOK = 3.0
"""Seconds after its exception in which a rank is still there, and a look notes what has come to it."""
_CONNECTION = re.compile(r"(^|/)multiprocessing/(connection|reduction|resource_sharer|queues)\.py$")


def stopped_from_outside(view: JobView) -> Optional[Verdict]:
    """Return the verdict if a signal to end reached a launch command or ranks before anything failed."""
    found = _launches(view) or _workers(view) or _ranks(view)
    if found is None:
        return None
    if any(cause.what not in _STOPS and cause.at < found.at - TOGETHER for cause in causes_of(view)):
        return None
    return Verdict.of(
        code="node-evicted",
        sentence=found.sentence,
        where="run",
        nodes=found.nodes,
        victims=sorted(view.ranks),
        confidence=sure.STOPPED_FROM_OUTSIDE
        if found.is_outside and len(view.ranks) == len(view.world)
        else sure.SIGNAL_OF_UNKNOWN_SENDER,
        facts=view.counts(),
        hint=found.hint,
    )


class _Found(NamedTuple):
    sentence: Text
    nodes: list[int]
    at: float
    is_outside: bool  # for certain: a single rank may have sent the signal to itself
    hint: str = _HINT


def _launches(view: JobView) -> Optional[_Found]:
    by = {number: signal for number, node in view.nodes.items() if (signal := _stop_of(node))}
    if not by:
        return None
    nodes = sorted(by)
    ends = [end.at for number in nodes if (end := view.nodes[number].launch_exit) is not None]
    commands = say("the launch command of ", view.named(nodes))
    if len(nodes) == 1:  # it may have sent the signal to itself
        return _Found(
            say(commands, f" ended by {by[nodes[0]]}, and the sender is unknown"), nodes, min(ends), True
        )
    return _Found(say(commands, f" were each stopped from outside by {by[nodes[0]]}"), nodes, min(ends), True)


def _workers(view: JobView) -> Optional[_Found]:
    """Return the signal that ranks have got and handle, and that has ended their DataLoader workers.

    These leave without a word; then the rank raises that one of them is gone, or from its connection to it.
    What comes to the other ranks after that may be their launcher's SIGTERM.
    """
    causes = causes_of(view)
    if not causes or not _lost_worker(causes[0]):
        return None
    first = causes[0]
    came = signals.before(view.ranks[first.rank], first.at + _ONE_LOOK)
    if came is None or phrases.signal_name(came.number) not in _STOPS:
        return None
    earlier = {rank: signals.before(its, first.at) for rank, its in view.ranks.items()}
    same = [rank for rank, each in earlier.items() if each is not None and each.number == came.number]
    got = sorted({first.rank, *same})
    lost = [cause.rank for cause in causes if _lost_worker(cause)]
    everyone = view.is_everyone(got)
    handle = phrases.one_or(got, "handles", "handle")
    sentence = say(
        f"{phrases.signal_name(came.number)} came to ",
        "all ranks" if everyone else subjects.ranks(got),
        f", which {handle} it{signals.by(came)}, and ended DataLoader workers of ",
        subjects.ranks(sorted(lost)),
    )
    spare = _SPARE.format(signal=phrases.signal_name(came.number))
    return _Found(sentence, view.nodes_of(got), first.at, everyone, f"{_HINT} {spare}")


def _lost_worker(cause: Cause) -> bool:
    """Whether the rank has failed because a worker of its DataLoader is gone."""
    raised = cause.raised
    if raised is None:
        return False
    broken = (
        raised.type in _BROKEN and _CONNECTION.search(next((f.file for f in raised.frames), "")) is not None
    )
    return LOADER_KILLED.search(raised.message) is not None or (broken and stacks.in_loader(raised.frames))


def _stop_of(node: NodeEvidence) -> str:
    """Return the signal that ended its launch command, seen or reported by torchrun; empty: none did."""
    end = node.launch_exit
    if end is None or end.by_us:
        return ""
    reported = next(filter(None, map(_TORCHRUN.search, reversed(node.launch_output))), None)
    number = end.signal or (int(reported[1]) if reported else None)
    name = phrases.signal_name(number) if number else ""
    return name if name in _STOPS else ""


def _ranks(view: JobView) -> Optional[_Found]:
    """Return the signal of the ranks that ended first, if their launcher had no reason to send it.

    Ranks that the launcher ended after that may have been seen to end at the same moment.
    """
    causes = [cause for cause in first_ends(view, "signal") if cause.what in _STOPS]
    ends = [node.launch_exit for node in view.nodes.values() if node.launch_exit is not None]
    if not causes or any(end.signal and end.at <= causes[0].at + TOGETHER for end in ends):
        return None
    numbers = sorted({cause.rank for cause in causes})
    all_of_them = view.is_everyone(numbers)
    who: Sayable = "all ranks" if all_of_them else subjects.ranks(numbers)
    # A rank may have sent it to itself.
    whence = "which came from outside" if all_of_them else "and the sender is unknown"
    seen = "" if len(view.ranks) == len(view.world) else " of those seen"
    sentence = say(who, f" ended by {causes[0].what}, {whence}: no rank{seen} had failed before")
    return _Found(sentence, view.nodes_of(numbers), causes[0].at, all_of_them)


def node_evicted(
    evidence: JobEvidence, why: str, missing: Optional[list[int]] = None, evicted: Sequence[int] = ()
) -> Verdict:
    """Return the verdict on a job that is ended although nothing is wrong, with how far it had got.

    `missing`: nodes that had not come, while the job is still at the gate; None later. `evicted`: the nodes
    that got a signal to stop while the others did not; `why`: by what.
    """
    view = JobView(evidence)
    if missing is not None:
        waited = say(", waiting for ", view.named(missing)) if missing else ""
        how_far = say("the nodes were at the gate", waited)
    elif not view.ranks:
        how_far = say("no rank had started yet")
    else:
        how_far = joined("; ", (text for text, _ in view.counted())) or say(
            subjects.ranks(view.ranks), " had called no collective"
        )
    if evicted:
        whom = view.named(evicted)
        were = phrases.one_or(evicted, "was", "were")
        what = say(whom, f" {were} told to stop by {why}, and the others were not")
    else:
        what = say(f"the job is being ended from outside: {why}")
    # Including ranks that have already ended because they lost a peer, but none that was done.
    victims = [
        number
        for number, rank in view.ranks.items()
        if evicted and view.node_of[number] not in evicted and (rank.exit is None or rank.exit.code != 0)
    ]
    return Verdict.of(
        code="node-evicted",
        sentence=say(what, "; ", how_far),
        where="gate" if missing is not None else "run",
        nodes=missing or list(evicted),
        victims=victims,
        confidence=sure.TOLD_TO_STOP,
        facts=[slow.pace_fact(view, rank) for rank in view.alive[:8]],
        hint=platforms.named(evidence.platform).hint("evicted", _CHECKPOINTS),
    )


# --- a node that no longer answers; what its peers report afterwards follows from that


def network_lost(view: JobView) -> Optional[Verdict]:
    """Return the verdict on nodes that no longer answer, unless a rank had failed by itself before that."""
    lost = view.evidence.lost
    if not lost or any(cause.at < min(each.at for each in lost) - TOGETHER for cause in causes_of(view)):
        return None
    nodes = [each.node for each in lost]
    there = [rank for rank in view.ranks if view.node_of[rank] in nodes]
    dead = [number for number, rank in view.ranks.items() if not rank.alive and number not in there]
    return Verdict.of(
        code="network-lost",
        sentence=say(view.named(nodes), f" {_what(lost)}"),
        where="run",
        nodes=nodes,
        victims=view.victims_of(there),
        confidence=sure.NODE_FROZEN if _frozen(lost) else sure.NODE_SILENT,
        facts=[
            *(_last_word(view, each) for each in lost[:8]),
            *(f"rank {number}: {complaint(view.ranks[number])}" for number in dead[:8]),
            *view.counts(),
        ],
        hint=_FROZEN if _frozen(lost) else platforms.named(view.evidence.platform).hint("lost", _GONE),
    )


_GONE = (
    "Check whether the node is up and its network works (power, cable, switch port), and whether the "
    "scheduler, a person or the kernel (out of memory) has ended its part of the job."
)
_FROZEN = (
    "Check whether the machine, its container or the job's cgroup is paused or suspended, or whether it "
    "swaps; once it runs again, so does the job."
)


def _frozen(lost: list[Lost]) -> bool:
    return all(each.frozen for each in lost)


def _what(lost: list[Lost]) -> str:
    at = phrases.clock(lost[0].at)
    if _frozen(lost):
        has, its = ("have", "their") if len(lost) > 1 else ("has", "its")
        kernels, acknowledge = ("kernels", "acknowledge") if len(lost) > 1 else ("kernel", "acknowledges")
        return (
            f"{has} said nothing since {at}, but {its} {kernels} still {acknowledge} what is sent there: "
            f"{its} processes are frozen or starved"
        )
    if all(each.closed for each in lost):
        return f"went away{'' if len(lost) > 1 else ': its agent ended without a word'} at {at}"
    return f"stopped answering at {at}"


def _last_word(view: JobView, lost: Lost) -> str:
    if lost.closed:
        how = "its connection was closed"
    elif lost.frozen:
        how = "its kernel still acknowledges what is sent to it"
    else:
        how = "not even its kernel acknowledges what is sent to it"
    done = f", {lost.completed} collectives done by its ranks together" if lost.completed else ""
    span = phrases.span(max(view.evidence.at - lost.at, 0.0))
    return f"{view.node(lost.node)} was last heard {span} ago{done}; {how}"
