"""The last calls of real ranks with the real torch, by ring and flight recorder. Looking changes nothing."""

from __future__ import annotations

import pytest
from tests.agent.hook.conftest import Supervisor

from ddplaunch.agent.contract import Collective
from ddplaunch.agent.evidence import flight, ring
from ddplaunch.agent.supervisor.hooks import HookMessage

pytestmark = [pytest.mark.slow]

BEGIN = """
import os, signal, sys, torch
import torch.distributed as dist
from torch.distributed import all_reduce
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", f"file://{os.getcwd()}/store", rank=rank, world_size=2)
four = torch.ones(4)
"""


def calls(supervisor: Supervisor, program: str) -> list[list[Collective]]:
    """The last calls of two ranks that run `program`, once both have ended."""
    processes = [supervisor.start(BEGIN + program, rank=rank) for rank in range(2)]
    supervisor.until(lambda: None not in [process.poll() for process in processes], 60)
    files = {line.rank: line.ring_file for line, message in supervisor.heard if "hello" in message}
    rings = [ring.read(files[rank]) for rank in range(2)]
    assert None not in rings, [process.communicate() for process in processes]
    return [found.calls for found in rings if found is not None]


def test_a_killed_rank_leaves_the_call_in_which_it_stood(supervisor: Supervisor) -> None:
    mine, other = calls(
        supervisor,
        """
all_reduce(four)
if rank == 0:
    import threading
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGKILL)).start()
    dist.recv(four, src=1)
dist.barrier()
""",
    )

    assert [(call.op, call.state) for call in mine] == [("all_reduce", "returned"), ("recv", "entered")]
    assert (mine[1].p2p, mine[1].peer, mine[1].frames[0].line) == (True, 1, 13)
    assert [(call.op, call.state) for call in other] == [("all_reduce", "returned"), ("barrier", "raised")]


@pytest.mark.whole
def test_a_rank_that_aborts_in_gloo_leaves_what_it_called(supervisor: Supervisor) -> None:
    """Gloo ends the process from a thread of its own when its peer sends more than it expects."""
    found = calls(
        supervisor,
        """
for length in (4, 64 if rank else 16):
    all_reduce(torch.ones(length))
""",
    )

    assert [[[4], [16]], [[4], [64]]] == [[call.sizes[0] for call in its] for its in found]
    assert {"entered", "raised"} >= {its[-1].state for its in found}


def test_every_collective_of_one_tensor_has_its_shape(supervisor: Supervisor) -> None:
    """Torch names the parameter otherwise in each function; a wrong name would only cost the shape."""
    found = calls(
        supervisor,
        """
both, parts = torch.ones(8), [torch.ones(4), torch.ones(4)]
known = [getattr(dist, name, None) for name in ("all_gather_into_tensor", "all_gather_single")]
for function in filter(None, known):
    function(both, four)
for function in (dist.all_reduce, dist.broadcast, dist.reduce):
    function(four, *([] if function is dist.all_reduce else [0]))
dist.all_gather(parts, four)
dist.gather(four, parts if rank == 0 else None, dst=0)
dist.scatter(four, parts if rank == 0 else None, src=0)
try:
    dist.gather_single(four, both if rank == 0 else None, dst=0)
except (AttributeError, RuntimeError):  # Gloo has none
    pass
""",
    )

    for its in found:
        assert {(4,)} == {tuple(call.sizes[0]) if call.sizes else () for call in its}
        roots = {call.op: call.peer for call in its}
        assert [None, 0, 0, 0, 0] == [
            roots[op] for op in ("all_reduce", "broadcast", "reduce", "gather", "scatter")
        ]
        assert len(its) >= 7


def test_torchs_functions_look_and_answer_and_compile_as_before(supervisor: Supervisor) -> None:
    found = calls(
        supervisor,
        """
import inspect, pickle
assert str(inspect.signature(dist.all_reduce)) == str(inspect.signature(dist.all_reduce.__wrapped__))
assert (all_reduce.__name__, all_reduce.__module__) == ("all_reduce", "torch.distributed.distributed_c10d")
assert pickle.loads(pickle.dumps(dist.broadcast)) is dist.broadcast
operations = [dist.P2POp(dist.isend, four, 1 - rank), dist.P2POp(dist.irecv, torch.zeros(4), 1 - rank)]
for work in dist.batch_isend_irecv(operations):
    work.wait()
def step(tensor):
    doubled = tensor * 2
    all_reduce(doubled)
    return doubled + 1
compiled = torch.compile(step, backend="eager", fullgraph=True)
assert compiled(four).tolist() == [5.0] * 4
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
model(torch.ones(2, 4)).sum().backward()
things = [None, None]
dist.all_gather_object(things, rank)
assert things == [0, 1]
work = dist.all_reduce(four, async_op=True)
work.wait()
dist.destroy_process_group()
""",
    )

    expected = ["isend", "irecv", "all_gather_object", "all_reduce"]
    for its in found:
        assert [call.op for call in its] == expected
        assert (its[0].peer, its[-1].state) == (its[1].peer, "waited")


def test_a_groups_own_barrier_is_a_call(supervisor: Supervisor) -> None:
    """As Lightning Fabric calls it; what torch's function calls of the group is still one call."""
    mine, other = calls(
        supervisor,
        """
group = dist.new_group()
group.monitored_barrier()
dist.monitored_barrier(group)
""",
    )

    assert mine[0].group == mine[1].group
    for its in (mine, other):
        assert [("monitored_barrier", "returned", line) for line in (10, 11)] == [
            (call.op, call.state, call.frames[0].line) for call in its
        ]


def test_a_program_that_calls_nothing_leaves_no_file(supervisor: Supervisor) -> None:
    code, _, err = supervisor.run("import torch.distributed")

    assert (code, err) == (0, "")
    assert not (supervisor.folder / "node-0" / "rings").exists()


PROGRAM = """
import os, sys, time, torch
import torch.distributed as dist
dist.init_process_group("gloo", f"file://{os.getcwd()}/store", rank=0, world_size=1)
for _ in range(100):
    dist.all_reduce(torch.ones(4))
open("ready", "w").close()
time.sleep(60)
"""


def dumped(supervisor: Supervisor, program: str) -> HookMessage:
    """What a rank that runs `program` answers."""
    supervisor.start(program, env={"TORCH_FR_BUFFER_SIZE": "2000"})
    supervisor.until((supervisor.folder / "ready").exists, 60)
    return supervisor.ask(supervisor.line("rank"), "dump")


def test_call_sites_are_not_worth_an_import_of_torchs_compiler(supervisor: Supervisor) -> None:
    seen = "time.sleep(2)\nopen(str('torch._inductor' in sys.modules), 'w')\ntime.sleep(60)"
    answer = dumped(supervisor, PROGRAM.replace("time.sleep(60)", seen))
    dump = answer["recorders"]["gloo"]

    assert (len(dump["entries"]), flight.counters(dump)) == (100, {"0": (100, 100)})
    supervisor.until((supervisor.folder / "False").exists, 60)


def test_call_sites_are_the_users_own_lines_where_the_compiler_is_loaded(supervisor: Supervisor) -> None:
    dump = dumped(supervisor, "import torch._inductor.codecache" + PROGRAM)["recorders"]["gloo"]
    found = flight.collectives(dump)

    assert (len(dump["entries"]), flight.counters(dump)) == (100, {"0": (100, 100)})
    assert [False] * 36 + [True] * 64 == ["frames" in entry for entry in dump["entries"]]
    assert {(each.seq - number, each.done) for number, each in enumerate(found)} == {(37, True)}
    expected = [("<module>", str(supervisor.folder / "train0.py"), 6)]
    assert [(each.name, each.file, each.line) for each in found[-1].frames] == expected
