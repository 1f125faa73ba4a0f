"""Run another program of this folder with a thread that dumps the flight recorder every two seconds.

`with_dump_files.py PROGRAM [ARGUMENT]`, as if the program itself started the thread after init_process_group.
torch writes where TORCH_FR_DUMP_TEMP_FILE says.
"""

import os
import runpy
import sys
import threading
import time

import torch
import torch.distributed as dist

join = dist.init_process_group


def dumps(rank):
    while True:
        torch._C._distributed_c10d._dump_fr_trace_file(rank)
        time.sleep(2)


def join_with_dumps(*words, **more):
    """Join the job, and start the thread, once."""
    join(*words, **more)
    if not os.environ.get("CORPUS_DUMPS"):
        os.environ["CORPUS_DUMPS"] = "1"
        threading.Thread(target=dumps, args=(dist.get_rank(),), daemon=True).start()


def main():
    dist.init_process_group = join_with_dumps
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
