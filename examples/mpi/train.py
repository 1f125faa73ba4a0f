"""Learns to tell points inside a circle from those outside, with gradients averaged by MPI.

Every rank draws its own points. Started by mpirun or srun, which `ddplaunch submit` calls.
"""

from __future__ import annotations

import argparse
import sys

import torch
from mpi4py import MPI
from torch import nn


def draw(generator: torch.Generator, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points [count, 2] in the square from -1 to 1, and whether each is in the circle of radius 0.8."""
    points = 2 * torch.rand(count, 2, generator=generator) - 1
    return points, (points.norm(dim=1) < 0.8).float()


def average(comm: MPI.Intracomm, tensors: list[torch.Tensor]) -> None:
    """Each tensor's mean over all ranks, in place: one Allreduce for all of them."""
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    comm.Allreduce(MPI.IN_PLACE, flat)
    flat /= comm.size
    for tensor, mean in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(mean.view_as(tensor))


def train(comm: MPI.Intracomm, steps: int) -> nn.Module:
    """The same weights on every rank, at the start and after each step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    generator = torch.Generator().manual_seed(comm.rank)
    for step in range(1, steps + 1):
        points, inside = draw(generator, 256)
        loss = nn.functional.binary_cross_entropy_with_logits(model(points).squeeze(1), inside)
        optimizer.zero_grad()
        loss.backward()
        average(comm, [weight.grad for weight in model.parameters() if weight.grad is not None])
        optimizer.step()
        if comm.rank == 0 and step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    return model


def main() -> int:
    """Returns 0 when the accuracy that is required was reached."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--require", type=float, default=0.0, help="accuracy on new points, else exit code 1")
    arguments = parser.parse_args()
    comm = MPI.COMM_WORLD
    model = train(comm, arguments.steps)
    points, inside = draw(torch.Generator().manual_seed(-1), 10_000)
    right = ((model(points).squeeze(1) > 0) == inside.bool()).float().mean().reshape(1)
    average(comm, [right])
    if comm.rank == 0:
        print(f"accuracy {right.item():.3f} of {comm.size} ranks", flush=True)
    return int(right.item() < arguments.require)


if __name__ == "__main__":
    sys.exit(main())
