"""Run another program of this folder with torch's debug server: `with_debug_server.py PROGRAM [ARGUMENT]`."""

import begins
from torch.distributed.debug import start_debug_server

if __name__ == "__main__":
    begins.after_init(lambda: start_debug_server(port=0))
