"""Run another program of this folder with torch's debug server: `with_debug_server.py PROGRAM [ARGUMENT]`.

As if the program itself called start_debug_server, in the line after init_process_group.
"""

import os
import runpy
import sys

import torch.distributed as dist
from torch.distributed.debug import start_debug_server

join = dist.init_process_group


def join_with_server(*words, **more):
    """Join the job, and start the server, once."""
    join(*words, **more)
    if not os.environ.get("CORPUS_SERVED"):
        os.environ["CORPUS_SERVED"] = "1"
        start_debug_server(port=0)


def main():
    dist.init_process_group = join_with_server
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
