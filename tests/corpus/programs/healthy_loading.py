"""Rank 0 prepares the data for long, and says so now and then; the others wait for it in barrier."""

import scene
import torch.distributed as dist


def tokenize():
    for part in range(10):
        scene.decode(scene.SECONDS / 10)
        print(f"tokenized part {part + 1} of 10", flush=True)


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        tokenize()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
