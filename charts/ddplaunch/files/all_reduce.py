"""What `helm test` runs on two nodes, behind the gate: one collective that needs both."""

import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
tensor = torch.ones(1024)
dist.all_reduce(tensor)
nodes = dist.get_world_size()
assert tensor.eq(nodes).all(), tensor
print(f"rank {dist.get_rank()} of {nodes}: all_reduce gives {tensor[0].item():.0f}", flush=True)
dist.destroy_process_group()
