"""Facts and means of this machine: processes, ports, names, files. Linux only.

This package knows the contract and no scheduler. It must not judge.
"""
