"""Makes this process's connections slow: TCP sockets send at most so many bytes a second (socket(7))."""

import os
import socket

SO_MAX_PACING_RATE = 47


def limit(rate):
    """Let every TCP connection of this process send at most `rate` bytes a second."""
    for name in os.listdir("/proc/self/fd"):
        try:
            copy = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        copy.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, int(rate))
        copy.close()
