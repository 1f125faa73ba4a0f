"""Checkpoints are gathered in a thread beside training: `saver.py default`, or `own` with its own group."""

import concurrent.futures
import sys
import time

import scene
import torch
import torch.distributed as dist


def save(step, group):
    time.sleep(0.002 * dist.get_rank())
    states = [None] * dist.get_world_size()
    dist.all_gather_object(states, {"step": step}, group=group)


def main():
    dist.init_process_group("gloo")
    group = dist.new_group() if sys.argv[1] == "own" else None
    if group is None:
        scene.stops()  # some steps later: which one is chance
    steps = 200 if group is not None else 10000
    with concurrent.futures.ThreadPoolExecutor(1, "saver") as pool:
        for step in range(steps):
            dist.all_reduce(torch.ones(64))
            if step % 5 == 0:
                pool.submit(save, step, group)
            if group is not None and step == steps // 2:
                scene.decode(scene.SECONDS)


if __name__ == "__main__":
    main()
