"""A trainer with metrics, evaluation, early stopping and a reporter's thread; the argument says which."""

import contextlib
import sys
import threading
import time

import scene
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel


class Reporter(threading.Thread):
    """Gathers statistics every now and then, beside training."""

    def __init__(self, group=None):
        super().__init__(name="reporter", daemon=True)
        self.group, self.step, self.ended = group, 0, threading.Event()

    def run(self):
        everyone = [None] * dist.get_world_size()
        while min(step or 0 for step in everyone) < 60:
            self.ended.wait(0.1 + 0.07 * dist.get_rank())
            dist.all_gather_object(everyone, self.step, group=self.group)


def reported(group, steps):
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)))
    reporter = Reporter(group)
    reporter.start()
    for step in range(steps):
        reporter.step = step
        model(torch.rand(16, 64)).mean().backward()
        if group is not None and step == 20 and dist.get_rank() == 1:
            scene.decode(scene.SECONDS)
        time.sleep(0.01)
    reporter.step = 60
    reporter.join()


def reports():
    scene.stops()  # some steps later: which one is chance
    reported(None, 100000)


def reports_apart():
    reported(dist.new_group(), 60)


def order():
    """Metrics are reduced in the order of a set of names, which each process has for itself."""
    sizes = {"bleu": 4, "rouge": 3, "accuracy": 1, "confusion": 100, "histogram": 32, "perplexity": 2}
    metrics = {name: torch.ones(size) for name, size in sizes.items()}
    for _ in range(20):
        dist.all_reduce(torch.rand(10))
    scene.stops()
    for name in set(metrics):
        dist.all_reduce(metrics[name])


def overflow():
    """Two ranks reduce over the other dimension of the mesh first."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    for step in range(50):
        norm = torch.rand(4).norm()
        if step == 17:
            scene.stops()
        if step == 17 and dist.get_rank() in (0, 3):
            dist.all_reduce(norm, group=mesh.get_group("dp"))
            dist.all_reduce(norm, group=mesh.get_group("tp"))
        else:
            dist.all_reduce(norm, group=mesh.get_group("tp"))
            dist.all_reduce(norm, group=mesh.get_group("dp"))


def validate(samples, group):
    scores = []
    for sample in samples:
        pair = [None, None]
        dist.all_gather_object(pair, sample / 10, group=group)
        scores += pair
    return scores


def validates():
    """Two ranks validate, and one has a sample more."""
    rank, group = dist.get_rank(), dist.new_group([0, 1])
    for _ in range(4):
        for _ in range(10):
            dist.all_reduce(torch.rand(16))
        scene.stops()
        if rank in (0, 1):
            validate(range(9)[rank::2], group)
        dist.barrier()


def stops_early():
    """Rank 0 looks at its own loss, and ends; the others train on."""
    best, bad = float("inf"), 0
    for epoch in range(8):
        for _ in range(10):
            dist.all_reduce(torch.rand(16))
        loss = 1.0 if dist.get_rank() == 0 else 1.0 / (epoch + 1)
        bad = 0 if loss < best else bad + 1
        best = min(loss, best)
        if epoch == 2:
            scene.stops()
        if bad > 1:
            break
    dist.barrier()


class Tracker:
    """Gathers its rows from all ranks when it ends, also after an exception."""

    def __init__(self):
        self.rows = []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        rows = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
        dist.gather_object(self.rows, rows, dst=0)


def tracks():
    """Rank 1's batch lacks a column."""
    with Tracker() as tracker:
        for step in range(20):
            batch = {"text": torch.rand(8), "label": torch.zeros(8)}
            if step == 6:
                scene.stops()
                if dist.get_rank() == 1:
                    del batch["label"]
            tracker.rows.append((batch["text"] - batch["label"]).norm().item())
            dist.all_reduce(torch.rand(16))


def counts_tokens():
    """Gradients are shared each 64 tokens; rank 3 has them a batch earlier."""
    model = DistributedDataParallel(nn.Sequential(nn.Linear(24, 48), nn.Tanh(), nn.Linear(48, 2)))
    tokens = 0
    for number in range(60):
        size = 32 if dist.get_rank() == 3 and number >= 20 else 16
        if number == 20:
            scene.stops()
        tokens += size
        with contextlib.nullcontext() if tokens >= 64 else model.no_sync():
            model(torch.rand(size, 24)).square().mean().backward()
        tokens = 0 if tokens >= 64 else tokens
        dist.all_reduce(torch.ones(1))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]]()
    dist.destroy_process_group()
