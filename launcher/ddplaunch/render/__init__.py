"""Plan to the exact files and commands of one target; what `submit` sends, byte for byte.

Pure and deterministic: the same plan and the same facts give the same bytes on every machine. It must not
start a process, open a socket, read the clock or the environment; what it needs to know of a cluster enters
as a value.
"""
