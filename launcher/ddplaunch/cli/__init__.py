"""Arguments to calls, results to words: the command line.

The only layer that prints, asks the terminal what it can show, and ends the process. It decides nothing
about a job: what is wrong is known below, here it is said. `main` turns every `DdplaunchError` into
`error:`, a blank line, `hint:`, and its exit code; data goes to stdout, everything else to stderr.
"""
