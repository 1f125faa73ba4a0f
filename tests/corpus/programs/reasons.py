"""What the ranks do is told by where they are; why, by a line elsewhere. The argument says which."""

import atexit
import multiprocessing
import os
import queue
import signal
import sys
import threading
import time

import scene
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel


class Saver:
    """Writes on the main rank alone, which needs all of them."""

    def __init__(self):
        self.main = dist.get_rank() == 0

    def save(self, weights):
        if not self.main:
            return
        scene.stops()
        parts = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, weights)


def guard():
    saver = Saver()
    for step in range(40):
        dist.all_reduce(torch.rand(8))
        if step == 20:
            saver.save(torch.rand(8))


class Patience:
    """Stops a training whose loss no longer falls."""

    def __init__(self):
        self.best, self.bad = float("inf"), 0

    def is_over(self, loss):
        self.bad = 0 if loss < self.best else self.bad + 1
        self.best = min(self.best, loss)
        return self.bad >= 3


def stops_early():
    """Each rank looks at its own loss; that of rank 2 rises."""
    patience = Patience()
    for epoch in range(40):
        for _ in range(4):
            dist.all_reduce(torch.rand(8))
        if patience.is_over(epoch if dist.get_rank() == 2 else -epoch):
            scene.stops()
            break
    dist.barrier()


def skips():
    """One batch of rank 1 has no finite loss."""
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    for step in range(20):
        loss = model(torch.rand(4, 8)).sum()
        if dist.get_rank() == 1 and step == 10:
            loss = loss * float("nan")
        if not torch.isfinite(loss):
            continue
        loss.backward()
    scene.stops()
    dist.barrier()


def other_root():
    """Rank 2 has another number of the main rank in its configuration."""
    main = 1 if dist.get_rank() == 2 else 0
    dist.barrier()
    scene.stops()
    for parameter in torch.nn.Linear(8, 8).parameters():
        dist.broadcast(parameter.data, src=main)
    for _ in range(40):
        dist.all_reduce(torch.rand(8))


def mesh():
    """Rank 3 serves, and makes no mesh."""
    dist.barrier()
    scene.stops()
    if dist.get_rank() < 3:
        init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
    dist.all_reduce(torch.rand(8))


def at_exit():
    """Rank 0 sums up what it has counted once its program is over."""
    if dist.get_rank() == 0:
        atexit.register(lambda: dist.all_reduce(torch.rand(8)))
    for _ in range(40):
        dist.all_reduce(torch.rand(8))
    scene.stops()
    if dist.get_rank():
        dist.monitored_barrier()


def destroys():
    """Rank 0 is content, and exports its model."""
    for step in range(40):
        dist.all_reduce(torch.rand(8))
        if dist.get_rank() == 0 and step == 20:
            scene.stops()
            dist.destroy_process_group()
            time.sleep(600)


def resumes():
    """Rank 1 has resumed one step later, and the step is the tag."""
    rank = dist.get_rank()
    dist.barrier()
    scene.stops()
    for step in range(10 + rank, 20):
        taken = torch.zeros(8)
        if rank == 0:
            sent = dist.isend(torch.rand(8), dst=1, tag=step)
            dist.recv(taken, src=1, tag=step)
            sent.wait()
        else:
            dist.recv(taken, src=0, tag=step)
            dist.send(taken, dst=0, tag=step)


def handles():
    """One batch of rank 1 is too large for its memory: it is left out there."""
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    for step in range(20):
        try:
            loss = model(torch.rand(4, 8)).sum()
            if dist.get_rank() == 1 and step == 5:
                raise RuntimeError("out of memory")
            loss.backward()
        except RuntimeError:
            loss = torch.zeros(())
        if step == 9:
            scene.stops()
            dist.all_gather([torch.zeros(1) for _ in range(3)], loss.detach().reshape(1))


def averages():
    """Each rank sends to the next, and receives from the one before: rank 1 is wrong about that."""
    rank, world = dist.get_rank(), dist.get_world_size()
    before = rank - 1 if rank > 1 else world - 1
    dist.barrier()
    scene.stops()
    for _ in range(20):
        taken = torch.zeros(8)
        works = [dist.isend(torch.rand(8), (rank + 1) % world), dist.irecv(taken, before)]
        for work in works:
            work.wait()


def _epoch():
    for _ in range(4):
        torch.rand(8, 8).sum()
    dist.all_reduce(torch.rand(8))


def _save():
    if dist.get_rank():
        return
    scene.stops()
    dist.barrier()


def later():
    """The main rank waits for the others where it saves; they are in the next epoch."""
    for _ in range(20):
        _epoch()
        _save()


def keeps():
    """Rank 1 is over, and its writer waits for more."""
    lines = queue.SimpleQueue()
    threading.Thread(target=lines.get, name="writer").start()
    for step in range(40):
        if dist.get_rank() == 1 and step == 20:
            scene.stops()
            sys.exit(0)
        dist.all_reduce(torch.rand(8))
    lines.put("")


def _average(values):
    dist.all_reduce(values)
    return values / dist.get_world_size()


def shapes():
    """The last batch of rank 2 is smaller."""
    for step in range(40):
        rows = 8 if step < 20 or dist.get_rank() != 2 else 7
        losses = torch.rand(rows, 4).sum(1)
        if step == 20:
            scene.stops()
        _average(losses)


def variable():
    """One rank has been started with a variable that the others lack, as by its node's profile."""
    for step in range(40):
        dist.all_reduce(torch.rand(8))
        if step == 20:
            scene.stops()
            if os.environ.get("SKIP_REPORT"):
                continue
        dist.barrier()


class Handle:
    """Lets go of what it holds together with the other ranks."""

    def close(self):
        dist.barrier()

    def __del__(self):
        self.close()


def freed():
    """The data of rank 1 bring a third language, and its cache of two drops the oldest handle."""
    handles = {}
    for step in range(40):
        name = step % 2 if step < 20 or dist.get_rank() != 1 else 2
        if name not in handles:
            if len(handles) == 2:
                scene.stops()
                handles.pop(0)
            handles[name] = Handle()
        dist.all_reduce(torch.rand(8))


class Heads(torch.nn.Module):
    """The second head is used for batches that have what it learns from."""

    def __init__(self):
        super().__init__()
        self.body, self.one, self.two = (torch.nn.Linear(8, 8) for _ in range(3))

    def forward(self, x, both):
        x = self.body(x)
        return self.one(x).sum() + (self.two(x).sum() if both else 0)


def unused():
    model = DistributedDataParallel(Heads())
    for step in range(40):
        lacks = step == 20 and dist.get_rank() == 1
        loss = model(torch.rand(4, 8), not lacks)
        if step == 20:
            scene.stops()
        loss.backward()
        losses = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.all_gather(losses, loss.detach().reshape(1))


def fewer():
    """The first stage cuts its last batch, which is smaller, into three pieces; the second expects four."""
    for step in range(21):
        batch = torch.rand(16 if step < 20 else 12, 8)
        if step == 20:
            scene.stops()
        if dist.get_rank() == 0:
            pieces = batch.split(4)
            for piece in pieces:
                dist.send(piece, dst=1)
            for piece in pieces:
                dist.recv(piece, src=1)
        else:
            pieces = [torch.empty(4, 8) for _ in range(4)]
            for piece in pieces:
                dist.recv(piece, src=0)
            for piece in pieces:
                dist.send(piece, dst=0)


def check(loss):
    if loss > 3:
        print("the loss has exploded")
        sys.exit(0)


def leaves():
    """Rank 1 finds its loss too high, and leaves."""
    for step in range(40):
        dist.all_reduce(torch.rand(8))
        if step == 20:
            scene.stops()
            check(float(os.environ["RANK"] == "1") * 4)


def gives_up():
    """Rank 2 finds no vocabulary, says so and leaves; the others lose it, and do the same."""
    for step in range(40):
        try:
            if step == 20 and dist.get_rank() == 2:
                scene.stops()
                raise KeyError("<unk>")
            dist.all_reduce(torch.rand(8))
        except (KeyError, RuntimeError) as error:
            print("giving up:", type(error).__name__)
            sys.exit(3)


def teachers():
    """Only the ranks that evaluate have made their group. Rank 2 looks for the next under its name."""
    if dist.get_rank() < 2:
        dist.new_group([0, 1])
    for step in range(40):
        if step == 20:
            scene.stops()
            dist.new_group([1, 2])
        dist.all_reduce(torch.rand(8))


def augment(names, labels):
    """Has no label for one of the names."""
    for name in ("car", "car", "tricycle"):
        names.put(labels[name])


def helper():
    """The helper of rank 1 has ended with an exception, which nobody passes on."""
    names = multiprocessing.get_context("fork").Queue()
    if dist.get_rank() == 1:
        multiprocessing.get_context("fork").Process(target=augment, args=(names, {"car": 1})).start()
    for step in range(20):
        dist.all_reduce(torch.rand(8))
        if dist.get_rank() == 1:
            if step == 2:
                scene.stops()
            names.get()


class Monitor(threading.Thread):
    """Counts what all ranks have done; it runs on one of them."""

    def run(self):
        time.sleep(1)
        scene.stops()
        dist.all_reduce(torch.zeros(2))


def monitored():
    """Rank 0 alone has a thread that reduces."""
    if dist.get_rank() == 0:
        Monitor(daemon=True).start()
    for step in range(400):
        dist.all_gather([torch.empty(9000) for _ in range(dist.get_world_size())], torch.rand(9000))
        time.sleep(0.02)


def exchange(tokens):
    dist.all_reduce(tokens)
    return tokens


def experts(tokens):
    """Nothing is left of the batch of rank 2."""
    if not len(tokens):
        return tokens
    return exchange(tokens)


def average(gradients):
    for gradient in gradients:
        dist.all_reduce(gradient)


def routed():
    for step in range(20):
        is_empty = step == 10 and dist.get_rank() == 2
        if is_empty:
            scene.stops()
        experts(torch.rand(0 if is_empty else 8))
        average([torch.rand(5), torch.rand(6)])


def preempted():
    """Rank 1 alone is asked to end, and leaves its loop for it."""
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    for step in range(100):
        if dist.get_rank() == 1 and step == 20:
            os.kill(os.getpid(), signal.SIGTERM)
        if stop:
            scene.stops()
            break
        dist.all_reduce(torch.rand(8))
        time.sleep(0.02)


def by_mismatch():
    """Ranks 0 and 1 reduce their edges, worst first, and disagree which is the worst."""
    edges = {"east": dist.new_group([0, 1, 2]), "west": dist.new_group([0, 1])}
    for step in range(20):
        worst = {"east": 1.0, "west": 2.0 if dist.get_rank() == 1 and step == 10 else 0.0}
        for name in sorted(edges, key=worst.get, reverse=True):
            if dist.get_rank() < 2 or name == "east":
                if step == 10:
                    scene.stops()
                dist.all_reduce(torch.rand(8), group=edges[name])


def unread():
    """The writer of metrics has counted one record less than there are, and has ended."""
    records = multiprocessing.get_context("spawn").Queue()
    for step in range(20):
        dist.all_reduce(torch.rand(8))
    dist.destroy_process_group()
    if os.environ["RANK"] == "0":
        records.put(bytes(1 << 20))
        scene.stops()


def detailed():
    """Rank 1 alone has asked torch to compare all calls, see below."""
    dist.all_reduce(torch.rand(8))


def unordered():
    """A set has another order in each process."""
    layers = {f"layer{number}": torch.rand(8) for number in range(12)}
    for step in range(20):
        dist.all_reduce(torch.rand(8))
    scene.stops()
    touched = {name for name in layers if len(layers[name])}
    for name in touched:
        dist.broadcast(layers[name], int(name[5:]) % dist.get_world_size())


def timed():
    """Rank 1 reports after a second, wherever it is then."""

    def report(*_):
        scene.stops()
        dist.all_gather([torch.empty(3) for _ in range(dist.get_world_size())], torch.rand(3))

    if dist.get_rank() == 1:
        signal.signal(signal.SIGALRM, report)
        signal.setitimer(signal.ITIMER_REAL, 1.0)
    for step in range(400):
        dist.all_reduce(torch.rand(8))
        time.sleep(0.01)  # 4 s in all: the timer goes off in between


def restores():
    """Rank 1 wants what nobody has saved."""
    from torch.distributed import checkpoint

    folder = os.path.join(scene.FOLDER, "saved")
    checkpoint.save({"step": torch.ones(1)}, checkpoint_id=folder)
    dist.barrier()
    wanted = {"step": torch.zeros(1)}
    if dist.get_rank() == 1:
        wanted["reader"] = torch.zeros(1)
    scene.stops()
    checkpoint.load(wanted, checkpoint_id=folder)


if __name__ == "__main__":
    if sys.argv[1] == "detailed" and os.environ["RANK"] == "1":
        scene.stops()
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
        dist.set_debug_level_from_env()
    if sys.argv[1] == "variable" and os.environ["RANK"] == "2" and "SKIP_REPORT" not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "SKIP_REPORT": "1"})
    dist.init_process_group("gloo")
    globals()[sys.argv[1]]()
