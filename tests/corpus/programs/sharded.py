"""FSDP over two ranks on CPU: in step 6 rank 1 does what the argument names instead of its forward pass."""

import sys
import time

import scene
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def raises():
    scene.stops()
    raise ValueError("loss is nan in step 6")


def stands():
    scene.stops()
    with open(scene.storage(), "rb") as file:
        file.read()


def leaves():
    scene.stops()
    sys.exit(0)


def reduces():
    scene.stops()
    dist.all_reduce(torch.ones(3))


def works_long():
    until = time.monotonic() + scene.SECONDS
    while time.monotonic() < until:
        torch.rand(64, 64) @ torch.rand(64, 64)


def main():
    dist.init_process_group("gloo")
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    for layer in (model[0], model[2]):
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    steps = 10 if sys.argv[1] == "works_long" else 1000
    for step in range(steps):
        if dist.get_rank() == 1 and step == 6:
            globals()[sys.argv[1]]()
        model(torch.rand(4, 16)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
