"""Collectors: what the kernel, torch and logs say about a process, one source per file.

Collectors know pids and paths, not the supervisor, the hub or the hook. Every collector is bounded in time
and goes on when one source is missing. Collectors must not judge: the verdict rules interpret the facts.
"""
