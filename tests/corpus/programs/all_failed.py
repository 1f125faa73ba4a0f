"""The data set is not where every rank looks for it: nobody is a victim."""

import scene
import torch.distributed as dist


def load_dataset():
    scene.stops()
    with open("/no/such/dataset.bin", "rb") as file:
        return file.read()


def main():
    dist.init_process_group("gloo")
    dist.barrier()
    load_dataset()


if __name__ == "__main__":
    main()
