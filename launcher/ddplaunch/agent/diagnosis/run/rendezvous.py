"""Rules about ranks that can never meet, by their calls of init_process_group, before the calls time out.

A call that has returned is right, whatever its arguments. So is a call that leads to the same place as all
the others, if a store can answer there: a script may choose its own rendezvous, as long as it works.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Optional, TypeVar

from ddplaunch.agent.contract import Setting, Verdict
from ddplaunch.agent.diagnosis import confidence as sure
from ddplaunch.agent.diagnosis.run import stacks
from ddplaunch.agent.diagnosis.run.call_records import ADDRESS, PORT, WORLD, Call, line
from ddplaunch.agent.diagnosis.run.view import JobView
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.system.torchrun import C10D
from ddplaunch.agent.text.quantities import count
from ddplaunch.agent.text.saying import Sayable, Subject, listed, say

_DELETE = "Delete the line: the launcher sets {}, and init_process_group reads it."
_DELETE_BOTH = (
    "Delete the lines that set MASTER_ADDR and MASTER_PORT: the launcher sets both, and init_process_group "
    "reads them."
)
_OMIT = (
    "Call init_process_group without `init_method` and `store`: the launcher sets MASTER_ADDR and "
    "MASTER_PORT, and init_process_group reads them."
)
_LOCAL_ADDR = (
    "With c10d, one torchrun gives all ranks its machine's full name, as `hostname --fqdn` prints it there. "
    "Make every node resolve it, or give each torchrun --local-addr, an address that the other nodes reach."
)
_ASK_AGAIN = (
    "A torchrun of c10d keeps the address of its first rendezvous. With TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 "
    "in its environment it asks for the address each time; else start all nodes again."
)
_IN_USE = re.compile(r"EADDRINUSE|address already in use", re.IGNORECASE)
_NO_GPU = re.compile(r"ProcessGroupNCCL is only supported with GPUs|nccl2 requires at least one CUDA device")
"""What torch says about NCCL without a GPU, up to version 2.14 and since."""
_DEBUG = "TORCH_DISTRIBUTED_DEBUG"
_WRAPPER = "_create_process_group_wrapper"
_PRIVATE = ("/tmp/", "/var/tmp/", "/dev/shm/")  # noqa: S108 - compared only


def nccl_without_gpu(view: JobView) -> Optional[Verdict]:
    """Return the verdict if torch refuses NCCL because it sees no GPU."""
    refused = [
        call
        for call in view.open_init_calls
        if any(_NO_GPU.search(raised.message) for raised in call.process.raised)
    ]
    if not refused:
        return None
    where = view.named({call.node for call in refused})
    return verdict(
        view,
        "backend-unfit",
        refused,
        say(f"{line(refused[0].made.frame)} asks for NCCL, and torch sees no GPU on ", where),
        'Ask for "gloo" where there is no GPU, or give the job GPUs and a torch that was built for them.',
    )


def unresolved(view: JobView) -> Optional[Verdict]:
    """Return the verdict if the master's name has no address; the launcher's name may still appear."""
    waiting = view.open_init_calls
    lost = [
        call
        for call in waiting
        if call.by_network and call.made.unresolved and (call.is_chosen or view.evidence.why != "call")
    ]
    if not lost:
        return None
    first = lost[0]
    unanswered = first.made.unresolved == "timeout"
    everywhere = len({call.node for call in lost}) == len({call.node for call in waiting})
    where = "" if everywhere else say(" on ", view.named({call.node for call in lost}))
    ending = "which the name server does not answer for" if unanswered else "which does not resolve"
    return verdict(
        view,
        "dns-unanswered" if unanswered else "dns-not-found",
        lost,
        say(f"{first.choice(ADDRESS)}, {ending}", where, proved(view)),
        _own_choice(first, ADDRESS)
        if first.is_chosen
        else _LOCAL_ADDR
        if _is_of_c10d(view, first)
        else "Set MASTER_ADDR to a name that every node resolves.",
    )


def _is_of_c10d(view: JobView, call: Call) -> bool:
    """Whether torchruns have agreed on the address, so that no variable of the user's changes it."""
    runs = view.nodes[call.node].torchruns
    return any(run.backend == C10D and run.pid == call.process.launcher for run in runs)


def loopback(view: JobView) -> Optional[Verdict]:
    """Return the verdict on ranks on several machines with an address that leads each to itself."""
    waiting = view.open_init_calls
    here = [call for call in waiting if call.loops_back]
    homes = by_machine(view, here)
    if "" in machines(view) or len(by_machine(view, waiting)) < 2:
        return None
    store = home_of_store(view)
    astray = [call for machine, group in homes.items() if machine != store for call in group]
    if not astray or (store is None and len(homes) < 2) or overlap(homes.values()):
        return None
    if any(could_be_a_job_of_its_own(view, group) for group in homes.values()):
        return None
    first = astray[0]
    if len(here) == len(waiting):
        nodes = len({call.node for call in here})
        ending = say(f"each of the {nodes} nodes waits for itself")
        astray = here
    else:
        ending = say(view.named({call.node for call in astray}), " waits for itself")
    return verdict(
        view,
        "master-is-loopback",
        astray,
        say(f"{first.choice(ADDRESS)}: ", ending, proved(view)),
        _own_choice(first, ADDRESS) if first.is_chosen else "Set MASTER_ADDR to an address of node 0.",
    )


def place_before_a_restart(view: JobView) -> Optional[Verdict]:
    """Return the verdict on ranks to which torchrun has given the address that rank 0 had before a restart.

    c10d numbers the nodes anew when one has left. A torchrun keeps the address of its first rendezvous,
    unless it becomes the first itself: `_bootstrap_store_info` of elastic/rendezvous/dynamic_rendezvous.py.
    """
    waiting = view.open_init_calls
    zeros = [call for call in waiting if call.rank == 0]
    if len(zeros) != 1 or not all(_is_of_c10d(view, call) and not call.is_chosen for call in waiting):
        return None
    if not any(call.process.restart for call in waiting):
        return None
    now = zeros[0]
    late = [call for call in waiting if call.endpoint != now.endpoint and call.made.port != now.made.port]
    if not late:
        return None
    ranks = sorted({call.rank for call in late})
    looks = phrases.one_or(ranks, "looks", "look")
    return verdict(
        view,
        "master-is-not-node-zero",
        late,
        say(
            subjects.ranks(ranks),
            f" still {looks} for rank 0 at {late[0].endpoint}, as before the restart; it is at "
            f"{now.endpoint} now",
        ),
        _ASK_AGAIN,
    )


def other_node(view: JobView) -> Optional[Verdict]:
    """Return the verdict if the address belongs to another node than the one that opens the store."""
    store = home_of_store(view)
    astray = [
        call
        for call in view.open_init_calls
        if store and not call.loops_back and leads_to(view, call) not in (None, "", store)
    ]
    if not astray:
        return None
    first = astray[0]
    owner = home(view, leads_to(view, first))
    return verdict(
        view,
        "master-is-not-node-zero",
        astray,
        say(
            f"{first.choice(ADDRESS)}, an address of ",
            owner,
            ": the store is on ",
            home(view, store),
            proved(view),
        ),
        _own_choice(first, ADDRESS) if first.is_chosen else "Set MASTER_ADDR to an address of rank 0's node.",
    )


def port_held(view: JobView) -> Optional[Verdict]:
    """Return the verdict if rank 0 cannot open its store, or all ranks reach another job's store."""
    waiting = view.open_init_calls
    for call in waiting:
        if not call.by_network or (call.rank != 0 and not call.made.agent_store):
            continue
        if call.made.agent_store and not call.is_astray:
            continue  # torchrun itself listens there
        refused = any(_IN_USE.search(raised.message) for raised in call.process.raised)
        if not call.made.holder and not refused:
            continue
        node = view.node(call.node)
        shared = [each for each in waiting if each.is_astray]
        held = f"is held by {call.made.holder}" if call.made.holder else "is held by another process"
        return verdict(
            view,
            "store-shared" if shared else "port-in-use",
            shared or [call],
            say(
                f"{call.choice(PORT)}, which on ",
                node,
                f" {held}" + ("; torchrun opens no store of this job's there" if shared else ""),
            ),
            _own_choice(call, PORT) if call.is_chosen else "Choose another port, or end what holds this one.",
        )
    return None


def no_store(view: JobView) -> Optional[Verdict]:
    """Return the verdict if torchrun keeps the job's store, and the script sends its ranks elsewhere."""
    astray = [call for call in view.open_init_calls if call.is_astray]
    if not astray:
        return None
    first = astray[0]
    kept = f" at port {first.given_port}" if first.given_port else ""
    return verdict(
        view,
        "rendezvous-overridden",
        astray,
        f"{first.choice(PORT)}, where no rank opens a store: torchrun keeps the job's{kept}",
        _own_choice(first),
    )


def nobodys_address(view: JobView) -> Optional[Verdict]:
    """Return the verdict on a MASTER_ADDR that no node has and no load balancer leads to the right one."""
    astray = [call for call in view.open_init_calls if leads_to(view, call) == ""]
    if not astray:
        return None
    first = astray[0]
    return verdict(
        view,
        "master-is-not-node-zero",
        astray,
        f"{first.choice(ADDRESS)}, which is not an address of this job's nodes{proved(view)}",
        _own_choice(first, ADDRESS) if first.is_chosen else "Set MASTER_ADDR to an address of rank 0's node.",
        sure.LIKELY,
    )


def files_of_each_machine(view: JobView) -> Optional[Verdict]:
    """Return the verdict on a file at a path that is local to each machine."""
    waiting = view.open_init_calls
    first = waiting[0]
    private = first.made.file.startswith(_PRIVATE)
    if not private or len(machines(view) - {""}) < 2:
        return None
    return verdict(
        view,
        "rendezvous-overridden",
        waiting,
        f"{first.choice(ADDRESS)}: on each of the {len(view.nodes)} nodes that may be another file",
        "Use the launcher's rendezvous (init_method left out), or a file on storage that all nodes share.",
        sure.LIKELY,
    )


def file_of_an_earlier_run(view: JobView) -> Optional[Verdict]:
    """Return the verdict if even the first rank found keys in the file, before any rank of this job wrote.

    The store still works, with the addresses of processes that are gone. A call that returns is left alone.
    """
    waiting = view.open_init_calls
    made = view.init_calls
    found = {call.rank for call in made if call.made.file_used}
    files = {call.made.file for call in made}
    if view.evidence.why in ("call", "asked") or found != {*view.world} or len(files) > 1:
        return None
    return verdict(
        view,
        "store-shared",
        waiting,
        f"{waiting[0].choice(ADDRESS)}: the file held the keys of an earlier run when the first rank came",
        "Give each run its own file, or delete the file before each run; or leave init_method out, because "
        "the launcher has prepared a rendezvous.",
        sure.LIKELY,
    )


def otherwise_than_proved(view: JobView) -> Optional[Verdict]:
    """Return the verdict if the script has chosen an address or a port that the gate has not tried."""
    waiting = view.open_init_calls
    chosen = [call for call in waiting if call.is_chosen and call.by_network]
    proved = view.evidence.master_addr
    if not proved or view.unseen or len(chosen) < len(waiting) or chosen[0].made.agent_store:
        return None
    name = ADDRESS if chosen[0].made.address != proved else PORT
    return verdict(
        view,
        "rendezvous-overridden",
        chosen,
        f"{chosen[0].choice(name)}; the gate has proved {proved}:{view.evidence.master_port}, and all "
        "ranks wait in init_process_group",
        _own_choice(chosen[0]),
        sure.CHOSEN_UNTRIED,
    )


# --- ranks that meet and disagree: on world size, rank numbers, address, or backend


def rank_twice(view: JobView) -> Optional[Verdict]:
    """Return the verdict if two living processes that meet claim the same rank."""
    for group in by_place(view, view.open_init_calls).values():
        if group[0].made.file and len(by_machine(view, group)) > 1:
            continue  # one path may be two files on two machines
        claims: dict[int, list[Call]] = {}
        for call in group:
            claims.setdefault(call.rank, []).append(call)
        twice = {rank: same for rank, same in claims.items() if len(at_one_time(same)) > 1}
        if not twice:
            continue
        rank, same = min(twice.items())
        who = listed([say(f"pid {call.process.pid} on ", view.node(call.node)) for call in same[:3]])
        local = all(call.rank == call.process.local_rank for each in twice.values() for call in each)
        spread = len({call.node for call in same}) == len(same)
        reason = "; LOCAL_RANK counts from 0 on every node" if local and spread else ""
        if not reason and (own := _of_another_number(view, same)) is not None:
            return own
        return verdict(
            view,
            "rank-duplicate",
            [call for each in twice.values() for call in each],
            say(
                subjects.ranks(twice),
                f" {phrases.one_or([*twice], 'is', 'are')} claimed twice: rank {rank} by ",
                who,
                f"{phrases.at(same[0].made.frame)}{reason}",
            ),
            "Take the rank from RANK, which counts over all nodes; LOCAL_RANK only chooses the device.",
        )
    return None


def _of_another_number(view: JobView, same: Sequence[Call]) -> Optional[Verdict]:
    """Return the verdict on those of a rank's claimants to which the launcher gave another number."""
    rank = same[0].rank
    others: dict[int, Call] = {}
    for call in same:
        if call.made.given_rank is not None and call.made.given_rank != rank:
            others[call.made.given_rank] = call
    given = sorted(others)
    if not given or all(call.made.given_rank != rank for call in same):
        return None
    first = others[given[0]]
    found = verdict(
        view,
        "rank-duplicate",
        [*others.values()],
        say(
            f"rank {rank} is claimed twice: pid {first.process.pid} on ",
            view.node(first.node),
            f", to which the launcher gave RANK={given[0]}, joins as rank {rank}",
            phrases.at(first.made.frame),
        ),
        "Leave out `rank` and `world_size` of init_process_group, or take them from RANK and WORLD_SIZE.",
    )
    victims = [number for number in view.world if number not in given]
    return replace(found, ranks=given, victims=victims)


def joined_again(view: JobView) -> Optional[Verdict]:
    """Return the verdict if a program that a rank has started joins the job in the rank's place.

    It has inherited the rank's environment, and overwrites what the peers look up about it in the store.
    """
    twice = [
        (call, inner)
        for call in view.init_calls
        for inner in view.init_calls
        if _has_started(call, inner) and (call.rank, call.endpoint) == (inner.rank, inner.endpoint)
    ]
    if not twice or len(twice) == twice[0][0].world_size:  # such programs of all ranks may be their own world
        return None
    call, inner = twice[0]
    frames = stacks.main(call.process.stacks)
    site = stacks.user_frame(frames) if stacks.waits_for_process(frames) else None
    waits = f", and waits for it in {phrases.place(site)}" if site is not None else ""
    return verdict(
        view,
        "rank-duplicate",
        [inner],
        say(
            subjects.ranks([call.rank]),
            f" has started a program that joins the job as rank {call.rank} once more",
            f"{phrases.at(inner.made.frame)}{waits}",
        ),
        "Start it without the job's variables (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and those that "
        "begin with TORCHELASTIC_), or let it make no process group.",
        sure.LIKELY,
    )


def _has_started(call: Call, inner: Call) -> bool:
    """Whether the one call's process has its group, and has started the other call's process."""
    process = call.process
    below = {child.pid for child in process.children}
    is_below = inner.process.launcher == process.pid or inner.process.pid in below
    lives = process.alive and bool(process.initialized) and inner.process.alive
    return is_below and lives and call.node == inner.node and call.made.passed


def sizes_differ(view: JobView) -> Optional[Verdict]:
    """Return the verdict on ranks that meet but wait for different numbers of ranks."""
    for group in by_place(view, view.open_init_calls).values():
        counts = Counter(call.world_size for call in group if call.world_size is not None)
        if len(counts) < 2:
            continue
        right = usual(counts, view.evidence.world_size)
        wrong = [call for call in group if call.world_size not in (right, None)]
        first = wrong[0]
        like_it = [call.rank for call in wrong if call.world_size == first.world_size]
        others = f"the others with {right}" if right is not None else "others with another"
        return verdict(
            view,
            "world-size-differs",
            wrong,
            say(
                subjects.ranks(like_it),
                f" {phrases.one_or(like_it, 'calls', 'call')} init_process_group with world size "
                f"{first.world_size}{phrases.at(first.made.frame)}, {others}",
            ),
            "Give every rank the same world_size, or leave it out: torchrun sets WORLD_SIZE.",
            sure.PROVEN if right is not None else sure.SIDES_EQUAL,
        )
    return None


def places_differ(view: JobView) -> Optional[Verdict]:
    """Return the verdict on ranks of one world that go to different addresses or ports."""
    groups = by_place(view, view.open_init_calls)
    if len(groups) < 2 or overlap(groups.values()):
        return None
    if any(could_be_a_job_of_its_own(view, group) for group in groups.values()):
        return None
    counts = Counter({place: len(group) for place, group in groups.items()})
    unchanged = {place for place, group in groups.items() if not all(call.is_chosen for call in group)}
    right = usual(counts, unchanged.pop() if len(unchanged) == 1 else None)
    wrong = [call for place, group in groups.items() if place != right for call in group]
    first = wrong[0]
    name = PORT if first.changed(PORT) is not None else ADDRESS
    theirs = f", the others go to {groups[right][0].endpoint}" if right is not None else ""
    return verdict(
        view,
        "rendezvous-overridden" if first.is_chosen else "environment-differs",
        wrong,
        f"rank {first.rank} goes to {first.endpoint} ({first.choice(name)})"
        f"{theirs or ', each rank to another place'}",
        _own_choice(first) if first.is_chosen else "Give all nodes the same MASTER_ADDR and MASTER_PORT.",
        sure.PROVEN if right is not None else sure.SIDES_EQUAL,
    )


def backends_differ(view: JobView) -> Optional[Verdict]:
    """Return the verdict on ranks that meet but ask for different backends."""
    for group in by_place(view, view.open_init_calls).values():
        counts = Counter(call.made.backend for call in group if call.made.backend)
        if not any(a.isdisjoint(b) for a, b in combinations(map(_kinds, counts), 2)):
            continue
        right = usual(counts, None)
        wrong = [call for call in group if call.made.backend not in (right, "")]
        first = wrong[0]
        return verdict(
            view,
            "environment-differs",
            wrong,
            say(
                subjects.ranks({call.rank for call in wrong}),
                f" {phrases.one_or(wrong, 'asks', 'ask')} for backend {first.made.backend}"
                f"{phrases.at(first.made.frame)}, the others for {right or 'another'}",
            ),
            "Every rank must ask for the same backend.",
            sure.PROVEN if right is not None else sure.SIDES_EQUAL,
        )
    return None


def detail_alone(view: JobView) -> Optional[Verdict]:
    """Return the verdict on ranks that alone have TORCH_DISTRIBUTED_DEBUG=DETAIL, as the program sets it.

    init_process_group makes a second group then, to compare calls, and waits until all ranks have made it:
    `_create_process_group_wrapper` in torch's distributed_c10d.py. The others do not, and go on.
    """
    waiting = {call.rank: call for call in view.open_init_calls}
    passed = {call.rank: call for call in view.init_calls if call.rank not in waiting}
    if not waiting or not passed or {*waiting, *passed} != {*view.alive} or view.unseen:
        return None
    if not all(stacks.calls(stacks.main(call.process.stacks), _WRAPPER) for call in waiting.values()):
        return None
    ask, refuse = ([_level(call) for call in camp.values()] for camp in (waiting, passed))
    asks = all(each is not None and each.value.upper() == "DETAIL" for each in ask)
    refuses = all(each is not None and each.value.upper() != "DETAIL" for each in refuse)
    if not refuses and (not asks or any(refuse)):
        return None  # what the ranks had from outside is not known
    set_there = [each for each in (ask if asks else refuse) if each is not None]
    few = min(waiting, passed, key=len)
    return verdict(
        view,
        "environment-differs",
        [*few.values()] if len(waiting) != len(passed) else [*waiting.values(), *passed.values()],
        say(
            subjects.ranks([*waiting]),
            f" {phrases.one_or([*waiting], 'has', 'have')} {_DEBUG}=DETAIL, ",
            subjects.ranks([*passed]),
            f" {phrases.one_or([*passed], 'does', 'do')} not: {line(set_there[0].frame)} sets it. With "
            "DETAIL, init_process_group waits until all ranks have made a second group",
        ),
        f"Set {_DEBUG} for all ranks: with `env` in the job file, or before torchrun starts.",
        sure.PROVEN if len(waiting) != len(passed) else sure.SIDES_EQUAL,
    )


def _level(call: Call) -> Optional[Setting]:
    """Return the program's own setting of TORCH_DISTRIBUTED_DEBUG."""
    return next((each for each in call.made.settings if each.name == _DEBUG), None)


def _kinds(backend: str) -> set[str]:
    """'cpu:gloo,cuda:nccl' -> gloo and nccl: ranks that share one meet by it."""
    return {each.rpartition(":")[2] for each in backend.lower().split(",")}


def too_few(view: JobView) -> Optional[Verdict]:
    """Return the verdict on a job whose ranks have all called, and wait for more ranks than there are.

    Their number is in the job file, or else in the WORLD_SIZE that the launcher gave to every rank.
    """
    waiting = view.open_init_calls
    seen = {call.rank for call in waiting}
    size = waiting[0].world_size
    given = {_given_world(call) for call in waiting}
    there_are = view.evidence.world_size or (given.pop() if len(given) == 1 else None)
    if size is None or seen != set(range(there_are or 0)) or size <= len(seen):
        return None
    ranks = count(len(seen), "rank")
    sentence = (
        f"{line(waiting[0].made.frame)} calls init_process_group with world size {size}; the job has "
        f"{ranks}, and all of them wait there"
    )
    hint = "Leave world_size out, or take it from WORLD_SIZE, which the launcher sets."
    if waiting[0].changed(WORLD) is not None:
        sentence = (
            f"{waiting[0].choice(WORLD)}; the job has {ranks}, and all of them wait in init_process_group"
        )
        hint = "Leave WORLD_SIZE as the launcher sets it, for each rank."
    return verdict(view, "world-size-differs", waiting, sentence, hint, sure.LIKELY)


def _given_world(call: Call) -> Optional[int]:
    """Return the WORLD_SIZE that the launcher gave, also if the program has set another."""
    setting = call.changed(WORLD)
    if setting is not None and setting.given.isdigit():
        return int(setting.given)
    return call.made.given_world


def other_script(view: JobView) -> Optional[Verdict]:
    """Return the verdict on one node that runs another file than the others."""
    waiting = view.open_init_calls
    counts = Counter(call.made.script for call in waiting if call.made.script)
    right = usual(counts, None)
    wrong = [call for call in waiting if call.made.script not in (right, "")]
    if len(counts) < 2 or right is None or not wrong:
        return None
    ranks = [call.rank for call in wrong]
    return verdict(
        view,
        "environment-differs",
        wrong,
        say(
            subjects.ranks(ranks),
            f" {phrases.one_or(ranks, 'runs', 'run')} another version of the program's main file than "
            "the others, and all wait in init_process_group",
        ),
        "Give all nodes the same file: `source` in the job file carries it to each of them.",
        sure.CHOSEN_UNTRIED,
    )


# --- where calls lead, and on what they agree
#
# Two calls lead to the same place if their connections end on the same machine and port, under any name.


_T = TypeVar("_T")

Place = tuple[str, Optional[int]]
"""A machine, or an address that no node of the job has, and a port; a file has no port."""


def place(view: JobView, call: Call) -> Optional[Place]:
    """Return where the call leads; None if that is not known."""
    if call.made.file:
        return f"file {call.made.file}", None
    machine = leads_to(view, call)
    if machine is None:
        return None
    return machine or f"address {min(call.addresses)}", call.made.port


def leads_to(view: JobView, call: Call) -> Optional[str]:
    """Return the machine where the call's connections end; "": none of the job's; None: not known."""
    if not call.by_network or not call.addresses:
        return None
    if call.loops_back:
        return view.nodes[call.node].machine or None
    for node in view.nodes.values():
        if set(node.addresses) & set(call.addresses):
            return node.machine or None
    known = len(view.nodes) == view.evidence.nodes and all(node.addresses for node in view.nodes.values())
    return "" if known else None


def machines(view: JobView) -> set[str]:
    """Return the machines of all known nodes, with "" for a node whose machine is not known."""
    return {node.machine for node in view.nodes.values()}


def could_be_a_job_of_its_own(view: JobView, group: list[Call]) -> bool:
    """Whether these calls, with processes beside them that wait nowhere else, may be a whole world."""
    homes = {view.nodes[call.node].machine for call in group}
    elsewhere = {(call.node, call.process.pid) for call in view.open_init_calls if call not in group}
    beside = [
        process
        for node in view.nodes.values()
        for process in node.ranks
        if node.machine in homes and (node.node, process.pid) not in elsewhere
    ]
    return any(call.world_size is None or call.world_size <= len(beside) for call in group)


def _own_choice(call: Call, name: str = "") -> str:
    """Return the hint for a program that chooses itself where its ranks meet, by this variable or by both."""
    if call.made.method != "env":
        return _OMIT
    return _DELETE.format(name) if name else _DELETE_BOTH


def verdict(
    view: JobView,
    code: str,
    astray: Sequence[Call],
    sentence: Sayable,
    hint: str,
    confidence: float = sure.PROVEN,
) -> Verdict:
    """Return a verdict on the ranks whose calls are `astray`; its facts are all calls."""
    ranks = sorted({call.rank for call in astray})
    made = [f"{subjects.ranks(who)}: {what}" for what, who in _grouped(view).items()]
    return Verdict.of(
        code=code,
        sentence=sentence,
        where="run",
        nodes=sorted({call.node for call in astray}),
        ranks=ranks,
        victims=[rank for rank in view.victims_of(ranks) if rank not in ranks],
        confidence=confidence,
        facts=made[:4] + ([f"and {len(made) - 4} more calls"] if len(made) > 4 else []),
        hint=hint,
    )


def _grouped(view: JobView) -> dict[str, list[int]]:
    """'init_process_group (train.py:12) by n1:29500, world size 4' -> the ranks that call so."""
    found: dict[str, list[int]] = {}
    for call in view.init_calls:
        size = "" if call.world_size is None else f", world size {call.world_size}"
        resolved = [address for address in call.made.resolved if address != call.made.address]
        leads = f" ({', '.join(resolved[:2])})" if resolved else ""
        by = f"{call.endpoint or call.made.method}{leads}"
        text = f"init_process_group{phrases.at(call.made.frame)} by {by}{size}"
        found.setdefault(text, []).append(call.rank)
    return found


def proved(view: JobView) -> str:
    """'; the job's master is n1', as the gate has proved it."""
    address = view.evidence.master_addr
    return f"; the job's master is {address}" if address else ""


def usual(counts: Mapping[_T, int], wanted: Optional[_T]) -> Optional[_T]:
    """Return `wanted` if a call has it, otherwise what most have; None if two are equally frequent."""
    if wanted in counts:
        return wanted
    ordered = sorted(counts, key=lambda value: -counts[value])
    tie = len(ordered) > 1 and counts[ordered[0]] == counts[ordered[1]]
    return ordered[0] if ordered and not tie else None


def home(view: JobView, machine: Optional[str]) -> Subject:
    """'node 1 (n2)': the nodes on this machine."""
    return view.named([node.node for node in view.nodes.values() if node.machine == machine])


def home_of_store(view: JobView) -> Optional[str]:
    """Return the machine with the store: where rank 0 runs, else torchrun's first node; None: not known.

    With c10d, node 0 of the job may be any of torchrun's.
    """
    homes = {view.nodes[call.node].machine for call in view.init_calls if call.rank == 0}
    if homes:
        return (homes.pop() or None) if len(homes) == 1 else None
    kept = [call for call in view.init_calls if call.made.agent_store]
    first = view.nodes.get(0)
    if not kept or first is None or any(_is_of_c10d(view, call) for call in kept):
        return None
    return first.machine or None


def by_machine(view: JobView, group: Sequence[Call]) -> dict[str, list[Call]]:
    """Return the calls by the machine on which they were made."""
    found: dict[str, list[Call]] = {}
    for call in group:
        found.setdefault(view.nodes[call.node].machine, []).append(call)
    return found


def by_place(view: JobView, group: Sequence[Call]) -> dict[Place, list[Call]]:
    """Return the calls whose places are known, by place."""
    found: dict[Place, list[Call]] = {}
    for call in group:
        where = place(view, call)
        if where is not None:
            found.setdefault(where, []).append(call)
    return found


def overlap(groups: Iterable[Sequence[Call]]) -> bool:
    """Whether two of the groups claim the same rank: then each may be its own job."""
    seen: set[int] = set()
    for group in groups:
        ranks = {call.rank for call in group}
        if seen & ranks:
            return True
        seen |= ranks
    return False


def at_one_time(same: list[Call]) -> list[Call]:
    """Return the calls, except of processes that ended before another called: a restart replaced them."""
    return [
        call
        for call in same
        if call.process.exit is None or all(call.process.exit.at > other.made.at for other in same)
    ]
