"""train.py as somebody changed it on a Friday: a checkpoint now and then, and one line in the wrong place.

It trains well, and then says nothing more.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from train import build_model, load_data, parse_arguments, save_checkpoint, start, train_epoch

arguments = parse_arguments()
device = start()
rank = dist.get_rank()

torch.manual_seed(0)
model = DistributedDataParallel(build_model().to(device))
optimizer = torch.optim.Adam(model.parameters(), lr=arguments.lr)
train_set, _ = load_data()
sampler = DistributedSampler(train_set)
batches = DataLoader(train_set, batch_size=arguments.batch_size, sampler=sampler)

for epoch in range(1, arguments.epochs + 1):
    sampler.set_epoch(epoch)
    loss = train_epoch(model, batches, optimizer, device)
    if rank == 0:
        print(f"epoch {epoch:2d}  loss {loss:.4f}", flush=True)
        if epoch % 3 == 0:
            save_checkpoint(arguments.checkpoint, model.module, optimizer, epoch)
            dist.barrier()  # so that nobody goes on before the file is there

dist.destroy_process_group()
