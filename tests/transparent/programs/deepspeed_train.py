"""Trains with DeepSpeed's engine, ZeRO stage 1; leaves a file of each rank."""

import os
from pathlib import Path

import deepspeed  # type: ignore[import-not-found]
import torch

CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "zero_optimization": {"stage": 1},
    "zero_allow_untested_optimizer": True,
}

if __name__ == "__main__":
    torch.manual_seed(1)
    deepspeed.init_distributed()
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)
    for _ in range(5):
        loss = engine(torch.rand(4, 8, device=engine.device)).square().mean()
        engine.backward(loss)
        engine.step()
    rank = deepspeed.comm.get_rank()
    Path(f"loss-of-{rank}").write_text(f"{loss.item():.4f}\n")
    os.write(1, f"rank {rank} has trained\n".encode())
    deepspeed.comm.destroy_process_group()
