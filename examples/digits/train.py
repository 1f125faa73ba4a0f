"""Trains a small network on 1,797 handwritten digits, on as many ranks as torchrun starts.

The digits ship inside scikit-learn: nothing is downloaded. After every epoch rank 0 writes a checkpoint; with
--resume the training goes on behind the last one, with the numbers that it would have had without the break.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

TEST_SIZE = 360  # every fifth digit


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=32, help="per rank (default: 32)")
    parser.add_argument("--lr", type=float, default=3e-3)
    kept = Path(os.environ.get("DDPLAUNCH_RESUME_DIR", "."))  # the same folder in every attempt of a job
    parser.add_argument("--checkpoint", type=Path, default=kept / "digits.pt")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint, if there is one")
    parser.add_argument("--require", type=float, default=0.0, help="fail below this test accuracy, 0 to 1")
    return parser.parse_args()


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """Training and test set: images as [N, 1, 8, 8] floats in 0..1, labels as [N] integers."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    test, train = order[:TEST_SIZE], order[TEST_SIZE:]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def build_model() -> nn.Module:
    """A convolutional network of 19,000 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def train_epoch(
    model: nn.Module,
    batches: DataLoader[tuple[Tensor, ...]],
    optimizer: torch.optim.Optimizer,
    device: torch.device,
) -> float:
    """One pass over this rank's share of the training set. Returns its mean loss."""
    model.train()
    total = 0.0
    for images, labels in batches:
        loss = cross_entropy(model(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()  # DDP averages the gradients of all ranks here
        optimizer.step()
        total += loss.item()
    return total / len(batches)


@torch.no_grad()
def evaluate(model: nn.Module, batches: DataLoader[tuple[Tensor, ...]], device: torch.device) -> float:
    """Accuracy over the test set of which every rank counts a share: all ranks must call this."""
    model.eval()
    counts = torch.zeros(2, device=device)  # right, seen
    for images, labels in batches:
        predicted = model(images.to(device)).argmax(dim=1)
        counts += torch.tensor([(predicted == labels.to(device)).sum(), len(labels)], device=device)
    dist.all_reduce(counts)
    right, seen = counts.tolist()
    return right / seen


def save_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int) -> None:
    """Writes what `load_checkpoint` reads: the old file is there until the new one is whole."""
    part = path.with_name(path.name + ".part")
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    torch.save(state, part)
    part.replace(path)


def load_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """The epoch after which the checkpoint was written; 0, and nothing is changed, without one."""
    if not path.exists():
        return 0
    state = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["epoch"])


def start() -> torch.device:
    """Joins the other ranks. Returns the device that is this rank's own."""
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl")
        return device
    torch.set_num_threads(1)  # the ranks of a node share its cores
    dist.init_process_group("gloo")
    return torch.device("cpu")


def main() -> int:
    """Returns 1 if the model is worse than --require."""
    arguments = parse_arguments()
    torch.manual_seed(0)
    network = build_model()
    # Made before the process group: torch imports modules here that would keep a group that exists for good,
    # with Gloo's threads, and such a thread can abort a finished rank while Python shuts down.
    optimizer = torch.optim.Adam(network.parameters(), lr=arguments.lr)
    device = start()
    rank = dist.get_rank()
    network.to(device)
    done = load_checkpoint(arguments.checkpoint, network, optimizer) if arguments.resume else 0
    if done and rank == 0:
        print(f"resumed after epoch {done}", flush=True)
    model = DistributedDataParallel(network)
    train_set, test_set = load_data()
    sampler = DistributedSampler(train_set)
    train_batches = DataLoader(train_set, batch_size=arguments.batch_size, sampler=sampler)
    test_batches = DataLoader(test_set, batch_size=arguments.batch_size, sampler=DistributedSampler(test_set))

    accuracy = evaluate(model, test_batches, device) if done >= arguments.epochs else 0.0
    for epoch in range(done + 1, arguments.epochs + 1):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, train_batches, optimizer, device)
        accuracy = evaluate(model, test_batches, device)
        if rank == 0:
            print(f"epoch {epoch:2d}  loss {loss:.4f}  test accuracy {accuracy:.2%}", flush=True)
            save_checkpoint(arguments.checkpoint, model.module, optimizer, epoch)

    dist.destroy_process_group()
    if accuracy < arguments.require:
        if rank == 0:
            print(f"test accuracy {accuracy:.2%} is below {arguments.require:.2%}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
