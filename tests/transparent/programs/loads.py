"""A loader with workers and shared memory; one dataset raises in its worker, and the program goes on."""

import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset[torch.Tensor]):
    def __init__(self, bad: int) -> None:
        self.bad = bad

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.bad:
            raise ValueError(f"item {index} is broken")
        return torch.full((64, 64), float(index))


if __name__ == "__main__":
    for bad in (-1, 5):
        try:
            for batch in DataLoader(Numbers(bad), batch_size=4, num_workers=2):
                print(batch.sum().item())
        except ValueError as error:
            text = str(error)
            print([line.strip().rpartition("/")[2] for line in text.splitlines() if "  File" in line])
