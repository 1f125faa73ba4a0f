"""Run another program of this folder with a thread that dumps the flight recorder every two seconds.

`with_dump_files.py PROGRAM [ARGUMENT]`. torch writes where TORCH_FR_DUMP_TEMP_FILE says.
"""

import threading
import time

import begins
import torch
import torch.distributed as dist


def dumps(rank):
    """Dump for as long as the program runs."""
    while True:
        torch._C._distributed_c10d._dump_fr_trace_file(rank)
        time.sleep(2)


def begin():
    """Start the thread."""
    threading.Thread(target=dumps, args=(dist.get_rank(),), daemon=True).start()


if __name__ == "__main__":
    begins.after_init(begin)
