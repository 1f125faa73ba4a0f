"""Process groups over plain sockets, under the names of torch.distributed."""

from torch.distributed.distributed_c10d import all_reduce as all_reduce
from torch.distributed.distributed_c10d import destroy_process_group as destroy_process_group
from torch.distributed.distributed_c10d import get_rank as get_rank
from torch.distributed.distributed_c10d import init_process_group as init_process_group
