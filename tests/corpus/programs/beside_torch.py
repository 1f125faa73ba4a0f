"""Rank 0 calls a collective of its own beside those that torch makes by itself."""

import sys

import scene
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def ddp():
    """Rank 0 sums up a number for its log, and the others' next collective is that of their gradients."""
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    for step in range(1000):
        model(torch.rand(8, 64)).sum().backward()
        if step == 10 and dist.get_rank() == 0:
            scene.stops()
            dist.all_reduce(torch.zeros(1))


def fsdp():
    """Rank 0 alone gathers the whole model."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for step in range(1000):
        model(torch.rand(8, 64)).sum().backward()
        if step == 10 and dist.get_rank() == 0:
            scene.stops()
            get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]]()
