"""The job file and the user's configuration: their models, how they are read, messages about their problems.

This layer turns text into a validated `JobSpec`, or into all problems of that text at once, each with its
line, what was found, what is wanted, and a hint. Of a scheduler it knows only the section in the job file. It
MUST NOT touch a subprocess, a socket, a clock or the environment; it only reads the job file (`load`) and the
configuration (`config`), and writes a new job file (`template.create`).
"""
