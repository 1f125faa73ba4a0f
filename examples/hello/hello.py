"""Every rank contributes a one: the smallest job that proves all ranks can talk to one another."""

import torch
import torch.distributed as dist

dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
ones = torch.ones(1, device=f"cuda:{dist.get_node_local_rank()}" if torch.cuda.is_available() else "cpu")
dist.all_reduce(ones)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: the ranks sum up to {int(ones)}")
dist.destroy_process_group()
