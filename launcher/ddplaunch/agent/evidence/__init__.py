"""Collectors: what the kernel, torch and logs say about a process, one source per file.

They know pids and paths, not the supervisor, the hub or the hook: the same collectors look at jobs that
ddplaunch did not start. Every collector is bounded in time and goes on when one source is missing. They must
not judge: what the facts mean is decided by the verdict rules.
"""
