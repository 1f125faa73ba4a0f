"""A training by Hugging Face's Trainer. The rank that STUCK names stays in `load_shard`."""

import os
import time

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments


def load_shard():
    """Wait for storage that does not answer."""
    time.sleep(3600)


class Rows(torch.utils.data.Dataset):
    """Random rows."""

    def __len__(self):
        return 160

    def __getitem__(self, index):
        return {"row": torch.rand(8), "labels": torch.rand(1)}


class Model(torch.nn.Module):
    """One layer."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def forward(self, row, labels):
        """Return the loss, as the Trainer wants it."""
        return {"loss": (self.layer(row) - labels).square().mean()}


class Stuck(TrainerCallback):
    """Waits for storage after five steps, on one rank."""

    def on_step_end(self, args, state, control, **_):
        """Wait on the rank that is meant."""
        if state.global_step == 5 and os.environ["RANK"] == os.environ.get("STUCK"):
            load_shard()


def main():
    """Train ten steps."""
    options = {"per_device_train_batch_size": 4, "max_steps": 10, "save_strategy": "no", "report_to": []}
    arguments = TrainingArguments(output_dir="trained", use_cpu=True, **options)
    Trainer(Model(), arguments, train_dataset=Rows(), callbacks=[Stuck()]).train()
    print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "has trained", flush=True)


if __name__ == "__main__":
    main()
