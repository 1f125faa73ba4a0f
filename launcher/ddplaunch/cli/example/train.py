"""Teaches a small network to add numbers, on as many ranks as torchrun starts. Your own code takes its place.

With --hang it makes a mistake that stops many a real training: rank 0 calls a barrier, and the others do not.
"""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--hang", action="store_true", help="make the mistake, in epoch 3")
arguments = parser.parse_args()

if torch.cuda.is_available():
    device = torch.device("cuda", dist.get_node_local_rank())
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
else:
    torch.set_num_threads(1)  # the ranks of a node share its cores
    device = torch.device("cpu")
    dist.init_process_group("gloo")
rank = dist.get_rank()

torch.manual_seed(rank)  # each rank has numbers of its own
model = DistributedDataParallel(torch.nn.Linear(8, 1).to(device))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)

for epoch in range(1, arguments.epochs + 1):
    for _ in range(50):
        numbers = torch.rand(64, 8, device=device)
        loss = (model(numbers) - numbers.sum(dim=1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()  # DDP averages the gradients of all ranks here
        optimizer.step()
    if rank == 0:
        print(f"epoch {epoch:2d}  loss {loss.item():.5f}", flush=True)
        if arguments.hang and epoch == 3:
            dist.barrier()  # only rank 0 comes here

dist.destroy_process_group()
