"""Seed 002, first program: DDP's own all_reduce of gradients, and one of the script's between two steps.

With `fault` only the ranks whose loss is large make the script's: ranks wait in different collectives.
"""

import sys
import time

import torch
import torch.distributed as dist

FAULT = "fault" in sys.argv


def main():
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(400 if FAULT else 20):
        optimizer.zero_grad()
        loss = model(torch.randn(20, 10)).square().mean()
        loss.backward()
        if not FAULT or step < 5 or dist.get_rank() == 0:
            dist.all_reduce(loss.detach())
        optimizer.step()
        time.sleep(0.05)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
