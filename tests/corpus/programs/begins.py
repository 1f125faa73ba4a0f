"""Runs another program of this folder, with something that it would have begun by itself."""

import os
import runpy
import sys

import torch.distributed as dist

join = dist.init_process_group


def after_init(begin):
    """Run the program in sys.argv[1]; once in each process call `begin` right after init_process_group."""

    def join_and_begin(*words, **more):
        join(*words, **more)
        if not os.environ.get("CORPUS_BEGUN"):
            os.environ["CORPUS_BEGUN"] = "1"
            begin()

    dist.init_process_group = join_and_begin
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
