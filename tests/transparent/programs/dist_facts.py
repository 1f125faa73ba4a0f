"""What a program sees of torch.distributed's functions, alone in its group: `dist_facts.py KIND`."""

import inspect
import os
import pickle
import sys
import traceback
import warnings
from pathlib import Path

import torch
import torch.distributed as dist

NAMES = ("all_reduce", "barrier", "isend", "init_process_group", "destroy_process_group", "new_group", "send")
NAMES += ("all_gather_object", "broadcast", "monitored_barrier", "all_gather_coalesced")


def frames(text: str) -> list[str]:
    """Return the frames of a traceback, without folders and without what the interpreter draws below a line."""
    lines = [line.strip() for line in text.splitlines() if line.startswith("  File")]
    return [line.rpartition("/")[2] for line in lines]


def tracebacks() -> None:
    value = torch.ones(2)
    calls = (
        lambda: dist.all_reduce(value, group="no group"),
        lambda: dist.broadcast(value, src=7),
        lambda: dist.send(value, dst=0),
        lambda: dist.isend(value, dst=0),
        lambda: dist.all_reduce(5),
        lambda: dist.all_reduce(),
        lambda: dist.all_gather_object([], object()),
        lambda: dist.init_process_group("gloo"),
        lambda: dist.new_group([0, 1, 2]),
        lambda: dist.monitored_barrier(dist.group.WORLD, "soon"),
        lambda: dist.destroy_process_group("none"),
        lambda: dist.all_reduce(value, op="sum", async_op=True).wait(),
    )
    for call in calls:
        try:
            call()
            print("passes")
        except Exception:
            print(*frames(traceback.format_exc()), sep="\n")
            print(traceback.format_exc().splitlines()[-1])
    dist.all_reduce(value, group=7)  # and one that ends the program


def uses() -> None:
    for name in NAMES:
        function = getattr(dist, name)
        print(name, inspect.signature(function), function.__module__, function.__qualname__, type(function))
        print(pickle.loads(pickle.dumps(function)) is function)
        print(function is getattr(sys.modules["torch.distributed.distributed_c10d"], name), function.__doc__)
        print(Path(inspect.unwrap(function).__code__.co_filename).name, inspect.getsourcelines(function)[1])
        print(function.__annotations__)
    print(dist.Work, dist.Work.wait.__name__, dist.Work.wait.__doc__)
    work = dist.all_reduce(torch.ones(2), async_op=True)
    print(work.wait(), type(work), isinstance(work, dist.Work))
    print(pickle.loads(pickle.dumps(dist.isend)) is dist.isend)
    print(sorted(set(dir(dist)) - {"__cached__"}))


def warned() -> None:
    """The lines of torch's warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            dist.all_gather_coalesced([[torch.ones(1)]], [torch.ones(1)])
            dist.all_reduce_coalesced([torch.ones(1)])
            dist._all_gather_base(torch.ones(1), torch.ones(1))
        except Exception as error:
            print(error)
    print([(Path(each.filename).name, each.lineno, each.category.__name__) for each in caught])


def compiled() -> None:
    """A collective in a compiled function leaves no break, and is compiled once."""
    import torch._dynamo

    seen = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        seen.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return graph.forward

    @torch.compile(backend=backend, fullgraph=True)
    def whole(value: torch.Tensor) -> torch.Tensor:
        value = value * 2
        dist.all_reduce(value)
        return value + 1

    @torch.compile(backend=backend)
    def broken(value: torch.Tensor) -> torch.Tensor:
        value = value * 2
        dist.barrier()
        dist.broadcast(value, 0)
        work = dist.all_reduce(value, async_op=True)
        work.wait()
        return value + 1

    print(whole(torch.ones(3)), whole(torch.ones(3)))
    print(broken(torch.ones(3)), broken(torch.ones(3)))
    print(*seen, sep="\n")
    print({key: dict(value) for key, value in torch._dynamo.utils.counters.items() if key == "stats"})


def profiled() -> None:
    value = torch.ones(4)
    with torch.profiler.profile(with_stack=True) as profile:
        dist.all_reduce(value)
        value.sum()
    names = sorted({each.key for each in profile.key_averages()})
    print([name for name in names if "record" not in name.lower()])
    with torch.profiler.profile() as profile:
        value.sum()
    profile.export_chrome_trace("trace.json")
    print(os.path.getsize("trace.json") > 100)
    os.unlink("trace.json")


def called() -> None:
    """cProfile counts the program's calls."""
    import cProfile
    import pstats

    value = torch.ones(4)
    profiler = cProfile.Profile()
    for _ in range(10):
        profiler.runcall(dist.all_reduce, value)
    stats = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    print(
        sorted(
            (Path(key[0]).name, key[2], value[0]) for key, value in stats.items() if "all_reduce" in key[2]
        )
    )


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]]()
    dist.destroy_process_group()
