"""A thread of rank 0 writes its log while the loader forks a worker, which inherits the log's lock, held."""

import logging
import threading

import scene
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class FileOnce(logging.Handler):
    """A handler with a lock of its own, which logging does not make new in a forked child."""

    def __init__(self):
        super().__init__()
        self.writing = threading.Lock()
        self.begun, self.finished = threading.Event(), threading.Event()

    def handle(self, record):
        with self.writing:
            self.begun.set()
            self.finished.wait()


class Shards(Dataset):
    def __init__(self, log):
        self.log = log

    def __len__(self):
        return 400

    def __getitem__(self, index):
        if dist.get_rank() == 0 and index == 8:
            scene.stops()
            self.log.warning("shard %d is small", index)
        return torch.ones(8)


def main():
    dist.init_process_group("gloo")
    handler = FileOnce()
    log = logging.getLogger("shards")
    log.addHandler(handler)
    writer = threading.Thread(target=log.warning, args=("the first line takes long",))
    writer.start()
    handler.begun.wait()
    batches = iter(DataLoader(Shards(log), batch_size=2, num_workers=1))
    handler.finished.set()
    writer.join()
    gradient = torch.zeros(8)
    for batch in batches:
        gradient += batch.sum()
        dist.all_reduce(gradient)


if __name__ == "__main__":
    main()
