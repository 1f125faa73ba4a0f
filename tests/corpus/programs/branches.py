"""A branch that not all ranks take leads to a collective; the argument says which."""

import os
import sys

import scene
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def log_loss(loss):
    dist.all_reduce(loss)
    return loss.sum().item()


def checkpoint():
    """Rank 2 sees a folder of its own, as on another node, and no checkpoint in it."""
    rank = dist.get_rank()
    folder = os.path.join(scene.FOLDER, "scratch" if rank == 2 else "shared")
    os.makedirs(folder, exist_ok=True)
    last = os.path.join(folder, "last.pt")
    if rank == 0:
        torch.save(torch.rand(8), last)
    dist.barrier()
    scene.stops()
    if os.path.exists(last):
        weights = torch.load(last)
        dist.broadcast(weights, 0)
    else:
        seed = torch.rand(1)
        dist.all_reduce(seed)
    dist.barrier()


def logs():
    """Rank 0 sums up its loss once more; the sums of all later steps do not belong together."""
    gradient = torch.rand(8)
    for step in range(40):
        if step == 10 and dist.get_rank() == 0:
            log_loss(torch.rand(8))
        dist.all_reduce(gradient)
    scene.stops()
    dist.barrier()


class Expert(torch.nn.Module):
    """Counts its tokens over all ranks."""

    def forward(self, tokens):
        load = torch.tensor(float(len(tokens)))
        dist.all_reduce(load)
        return tokens / load


class Router(torch.nn.Module):
    """Sends tokens to the expert if there are any that it wants."""

    def __init__(self):
        super().__init__()
        self.expert = Expert()

    def forward(self, tokens):
        chosen = tokens[tokens > 0]
        if chosen.numel():
            tokens = tokens + self.expert(chosen).sum()
        return tokens


def expert():
    """Rank 1 has no token for the expert."""
    model = Router()
    for step in range(40):
        sign = -1.0 if dist.get_rank() == 1 and step == 10 else 1.0
        if sign < 0:
            scene.stops()
        model(sign * torch.ones(8))
        dist.barrier()


def evaluates():
    """Rank 0 evaluates with the model that DDP has wrapped, which sends its buffers first."""
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)))
    for step in range(40):
        model(torch.rand(4, 8)).sum().backward()
        if step == 10:
            if dist.get_rank() == 0:
                scene.stops()
                with torch.no_grad():
                    model(torch.rand(4, 8))
            dist.barrier()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]]()
