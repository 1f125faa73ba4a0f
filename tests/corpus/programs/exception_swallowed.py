"""Rank 2 catches an exception at step 7, logs it, skips the step, and is one collective behind from then."""

import logging

import scene
import torch
import torch.distributed as dist


def parse(step):
    if dist.get_rank() == 2 and step == 7:
        raise ValueError(f"corrupt record {step}")
    return torch.rand(8)


def main():
    dist.init_process_group("gloo")
    gradient = torch.zeros(8)
    for step in range(40):
        try:
            gradient += parse(step)
            dist.all_reduce(gradient)
        except ValueError:
            logging.exception("step %d skipped", step)
    scene.stops()
    dist.barrier()


if __name__ == "__main__":
    main()
