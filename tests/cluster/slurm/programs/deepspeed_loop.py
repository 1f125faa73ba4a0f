"""A loop of DeepSpeed's engine, ZeRO stage 1. The rank that STUCK names stays in `load_shard`."""

import os
import time

import deepspeed
import torch

CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "zero_optimization": {"stage": 1},
    "zero_allow_untested_optimizer": True,
}


def load_shard():
    """Wait for storage that does not answer."""
    time.sleep(3600)  # for longer than the job may hang: the watchdog ends it after 20 s


def main():
    """Train ten steps."""
    deepspeed.init_distributed()
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)
    rank, size = deepspeed.comm.get_rank(), deepspeed.comm.get_world_size()
    for step in range(10):
        if step == 5 and str(rank) == os.environ.get("STUCK"):
            load_shard()
        loss = engine(torch.rand(4, 8, device=engine.device)).square().mean()
        engine.backward(loss)
        engine.step()
    print("rank", rank, "of", size, "has trained", flush=True)
    deepspeed.comm.destroy_process_group()


if __name__ == "__main__":
    main()
