"""Seed 002, third program: a module prints its exception and returns nothing; `fault`: on one rank."""

import os
import sys

import torch
import torch.distributed as dist

FAULT = "fault" in sys.argv


class Careful(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(10, 10)
        self.calls = 0

    def forward(self, batch):
        try:
            self.calls += 1
            if FAULT and os.environ["RANK"] == "1" and self.calls == 10:
                raise ValueError("a sample that cannot be read")
            return self.linear(batch)
        except Exception as error:
            print(f"error in the module: {error}", flush=True)
            return None


def main():
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(Careful())
    for _ in range(20):
        loss = torch.nn.functional.mse_loss(model(torch.randn(20, 10)), torch.zeros(20, 10))
        loss.backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
