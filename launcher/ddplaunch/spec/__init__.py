"""The job file: its model, how it is read, and the messages about its problems.

This layer turns text into a validated `JobSpec`, or into all problems of that text at once, each with its
line, what was found, what is wanted, and a hint. It knows of a scheduler only its section, and
it MUST NOT touch a subprocess, a socket, a clock or the environment; the one thing it reads is the job file
(`load`), the one thing it writes is a new one (`template.write_new`).
"""
