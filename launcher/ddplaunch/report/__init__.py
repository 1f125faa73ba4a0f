"""A bundle of evidence to something a person reads: terminal text, or one self-contained HTML file.

It reads what the backends brought home and calls the agent's verdict rules; it must not gather evidence
itself, talk to a scheduler, or decide what a job's exit code is.
"""
