"""The command line: turns arguments into calls, and results into text.

Only this layer prints, reads the terminal's size and ends the process. It judges no job; the layers below do
that. `main` prints each `DdplaunchError` as `error:`, an empty line and `hint:`, and returns its exit code.
Data goes to stdout, everything else to stderr.
"""
