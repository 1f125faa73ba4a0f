"""Rank 1 spends long in one call of a library: its stack does not change, its CPU time does."""

import hashlib
import time

import scene
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    gradient = torch.rand(8)
    started = time.monotonic()
    hashlib.pbkdf2_hmac("sha256", b"seed", b"salt", 1_000_000)
    # A machine that others use may be slower later on than while it was measured.
    rounds = int(0.7 * 1_000_000 * scene.SECONDS / (time.monotonic() - started))
    for _ in range(2):
        if dist.get_rank() == 1:
            hashlib.pbkdf2_hmac("sha256", b"seed", b"salt", rounds)
        dist.all_reduce(gradient)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
